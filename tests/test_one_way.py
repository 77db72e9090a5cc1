"""For one image and one solver a test run does everything once."""

from collections import Counter

from codes.commands.test import main as run_test

from .evaluation import write_images, write_options, write_weights


def test_one_image_is_decoded_once_and_planned_once(tmp_path, monkeypatch):
    write_weights(tmp_path / "tiny.safetensors")
    write_images(tmp_path / "data", ("rainy",), images=1)
    options = write_options(tmp_path, sde={"algorithm": "posterior"}, sampler={"num_sample_steps": 2})
    counted: Counter[str] = Counter()

    def count(module, name):
        original = getattr(module, name)

        def counting(*arguments, **options):
            counted[name] += 1
            return original(*arguments, **options)

        for other in list(__import__("sys").modules.values()):
            if getattr(other, "__name__", "").startswith("codes") and getattr(other, name, None) is original:
                monkeypatch.setattr(other, name, counting)

    import codes.evaluation.run

    count(codes.solvers.registry, "make_plan")
    count(codes.networks.checkpoints, "load_network")
    count(codes.data.images, "decode_picture")
    initialise = codes.sde.MeanRevertingSDE.__post_init__

    def counting_init(self):
        counted["MeanRevertingSDE"] += 1
        initialise(self)

    monkeypatch.setattr(codes.sde.MeanRevertingSDE, "__post_init__", counting_init)
    assert run_test(["-opt", str(options)]) == 0
    assert counted == {"make_plan": 1, "load_network": 1, "decode_picture": 2, "MeanRevertingSDE": 1}
