"""Networks: equal to the published ones, at any size, in any batch, with any kind of time."""

import json
import shutil

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from benchmarks import published_graph
from parity_groups.networks import cases

from codes.networks import architecture, build_network, cpu, layers
from codes.networks.predictor import half_precision_problem, predictor, resolve_precision
from codes.networks.rows import NETWORKS

from .network_examples import DACLIP_SETTING, EXAMPLES, GOLDEN, NAFNET_SETTING, example, inputs

CONDITIONAL = [name for name, (which, variant, _) in EXAMPLES.items() if which != "UNet" and variant != "denoising"]


def run(network, name, x, mu, time, contexts):
    arguments = (x, time) if "denoising" in name else (x, mu, time)
    with torch.no_grad():
        return network(*arguments, **contexts)


def test_golden_networks_are_reproduced():
    results = list(cases(GOLDEN.parent))
    assert len(results) == 27 - 1 + 4 * 3 + 3 * 3 + 3 * 3 + 4  # DaCLIP, U-Net, NAFNet, IR-SDE U-Net, key lists
    assert [case.name for case in results if case.failed] == []


def test_parity_notices_a_changed_weight(tmp_path):
    folder = tmp_path / "networks"
    shutil.copytree(GOLDEN, folder, ignore=shutil.ignore_patterns("*.keys.json", "daclip_*"))
    with np.load(folder / "nafnet_tiny.npz") as file:
        arrays = dict(file)
    arrays["c1_float/out_f64"] = arrays["c1_float/out_f64"] * (1 + 1e-9)
    np.savez(folder / "nafnet_tiny.npz", **arrays)
    assert [case.name for case in cases(tmp_path) if case.failed] == ["networks/nafnet_tiny/c1_float/float64-vs-f64"]


@pytest.mark.parametrize(
    ("file", "keys", "parameters"),
    [
        ("daclip_unet_full", 224, 48_975_747),
        ("nafnet_full", 668, 76_608_387),
        ("irsde_unet_full", 151, 137_147_523),
        ("daclip_ViT-B-32", 631, 246_213_634),
    ],
)
def test_full_size_networks_have_the_published_size(file, keys, parameters):
    manifest = json.loads((GOLDEN / f"{file}.keys.json").read_text())
    which = {"daclip_unet_full": "ConditionalUNet", "irsde_unet_full": "ConditionalUNet"}.get(file)
    which = which or ("ConditionalNAFNet" if file.startswith("nafnet") else "DaCLIP")
    with torch.device("meta"):
        network = build_network(which, manifest["config"])
    assert len(network.state_dict()) == len(manifest["state_dict"]) == keys
    assert sum(p.numel() for p in network.parameters()) == parameters


@pytest.mark.parametrize("name", [name for name in CONDITIONAL if name != "coded"])  # ours, it has no published graph
@pytest.mark.parametrize("size", [(16, 24), (19, 9)])
def test_our_graph_equals_the_published_graph(name, size):
    network = example(name)
    x, mu, contexts = inputs(name, size=size)
    theirs = published_graph.evaluate(network, x, mu, 12.345678, **contexts)
    assert torch.allclose(run(network, name, x, mu, 12.345678, contexts), theirs, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", CONDITIONAL)
def test_pieces_equal_the_whole(name, monkeypatch):
    network = example(name)
    x, mu, contexts = inputs(name, size=(96, 40))
    with torch.enable_grad():  # works on whole images
        whole = network(x, mu, 7, **contexts).detach()
    monkeypatch.setattr(cpu, "PIECE_BYTES", 1)
    monkeypatch.setattr(cpu, "CHUNK_TOKENS", 100)
    assert torch.allclose(run(network, name, x, mu, 7, contexts), whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "latent"])
def test_a_batch_equals_its_images_one_by_one(name):
    network = example(name)
    x, mu, contexts = inputs(name, batch=3)
    times = torch.tensor([3.0, 50.0, 99.5], dtype=torch.float64)
    batch = run(network, name, x, mu, times, contexts)
    for i in range(3):
        own = {key: None if value is None else value[i : i + 1] for key, value in contexts.items()}
        single = run(network, name, x[i : i + 1], mu[i : i + 1], float(times[i]), own)
        assert torch.allclose(batch[i : i + 1], single, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("time", [7, 7.0, np.float64(7), torch.tensor(7), torch.tensor([7]), torch.tensor([7.0, 7.0])])
def test_kinds_of_time_agree(time):
    network = example("irsde")
    x, mu, _ = inputs("irsde")
    expected = run(network, "irsde", x, mu, torch.tensor([7.0], dtype=torch.float64), {})
    assert torch.allclose(run(network, "irsde", x, mu, time, {}), expected, rtol=1e-12, atol=1e-12)


def test_a_python_time_is_not_rounded_to_float32():
    t = layers.time_tensor(12.345678, torch.zeros(1, dtype=torch.float64))
    assert t.item() == 12.345678


@pytest.mark.parametrize("name", ["daclip", "wild-ir", "refusion"])
@pytest.mark.parametrize("size", [(1, 1), (1, 37), (8, 8), (3, 17)])
def test_any_size_down_to_one_pixel(name, size):
    network = example(name)
    x, mu, contexts = inputs(name, size=size)
    multiple = 2 ** (network.depth if hasattr(network, "depth") else network.stages)
    pad = getattr(network, "pad", layers.reflect_pad)
    padded = run(network, name, pad(x, multiple), pad(mu, multiple), 5, contexts)
    assert torch.allclose(run(network, name, x, mu, 5, contexts), padded[..., : size[0], : size[1]], atol=1e-12)


def test_padding_is_reflection_where_that_is_defined_and_repeats_it_below():
    x = torch.rand(2, 3, 9, 30)
    assert torch.equal(layers.reflect_pad(x, 16), F.pad(x, (0, 2, 0, 7), mode="reflect"))
    row = torch.tensor([0.0, 1.0, 2.0]).view(1, 1, 1, 3)
    assert layers.reflect_pad(row, 8)[0, 0, 0].tolist() == [0, 1, 2, 1, 0, 1, 2, 1]
    assert torch.equal(layers.reflect_pad(row, 8), layers.reflect_pad(row, 8)[:, :, :1].expand(1, 1, 8, 8))


def test_dead_parameters_have_no_influence_and_all_others_do():
    network = example("daclip")
    x, mu, contexts = inputs("daclip", batch=1)
    network.requires_grad_(True)
    with torch.enable_grad():
        network(x, mu, 20, **contexts).square().sum().backward()
    dead = {name for name, p in network.named_parameters() if p.grad is None or not p.grad.abs().any()}
    manifest = json.loads((GOLDEN / "daclip_unet_tiny.manifest.json").read_text())
    assert dead == set(manifest["sensitivity"]["no_effect"])


@pytest.mark.parametrize("name", ["refusion", "latent-nafnet"])
def test_a_training_step_computes_what_an_evaluation_does(name):
    """With gradients the scales of a block are part of its weights, without them they are applied to the image."""
    network = example(name)
    x, mu, _ = inputs(name)
    time = torch.tensor([30.0, 60.0])
    learned = network(x, mu, time)
    assert torch.allclose(learned.detach(), run(network, name, x, mu, time, {}), rtol=0, atol=1e-12)
    learned.square().sum().backward()
    for key in ("beta", "gamma"):
        parameter = getattr(network.middle_blks[0], key)
        step = torch.zeros_like(parameter)
        step[0, 1] = 1e-6
        with torch.no_grad():
            parameter += step
            above = run(network, name, x, mu, time, {}).square().sum()
            parameter -= 2 * step
            below = run(network, name, x, mu, time, {}).square().sum()
            parameter += step
        assert parameter.grad[0, 1].item() == pytest.approx(float(above - below) / 2e-6, rel=1e-6)


@pytest.mark.parametrize("name", ["daclip", "irsde", "refusion", "denoising-nafnet", "denoising-unet"])
def test_cached_embeddings_give_bit_identical_results(name):
    network = example(name, torch.float32)
    x, mu, contexts = inputs(name, dtype=torch.float32)
    predict = predictor(network, **contexts)
    for t in (80, 3.5, 80):
        assert torch.equal(predict(x, mu, t), run(network, name, x, mu, t, contexts))


def test_time_and_contexts_are_embedded_once(monkeypatch):
    network = example("daclip", torch.float32)
    x, mu, contexts = inputs("daclip", dtype=torch.float32)
    calls = []
    for name in ("embed", "embed_context"):
        original = getattr(network, name)
        monkeypatch.setattr(network, name, lambda *a, n=name, f=original: (calls.append(n), f(*a))[1])
    predict = predictor(network, **contexts)
    for t in (9.0, 9.0, 4.0, 9.0):
        predict(x, mu, t)
    assert calls == ["embed_context", "embed", "embed"]


def test_latent_network_decodes_with_the_skips_of_another_image():
    network = example("latent")
    a, b, _ = inputs("latent", size=(21, 34))
    with torch.no_grad():
        z_a, skips = network.encode(a)
        z_b, _ = network.encode(b)
        assert z_a.shape == (2, 4, 6, 10)  # 24 x 40 after padding, divided by 4
        first, second = network.decode(z_a, skips), network.decode(z_b, skips)
        assert torch.equal(first, network(a)) and first.shape == a.shape
        assert (first - second).abs().max() > 1e-6


def test_latent_nafnet_adds_the_first_convolution_before_the_last():
    latent = example("latent-nafnet")
    plain = build_network("ConditionalNAFNet", EXAMPLES["latent-nafnet"][2], "refusion").double()
    plain.load_state_dict(latent.state_dict())
    x, mu, _ = inputs("latent-nafnet")
    intro = latent.intro(torch.cat([x - mu, mu], 1))
    extra = F.conv2d(intro, latent.ending.weight, padding=1)
    with torch.no_grad():
        assert torch.allclose(latent(x, mu, 3), plain(x, mu, 3) + extra, atol=1e-11)


# Choosing a network.


@pytest.mark.parametrize("which", NETWORKS)
def test_every_variant_is_the_default_of_some_setting_or_named(which):
    defaults = {variant for w, variant, setting in EXAMPLES.values() if w == which}
    assert which == "DaCLIP" or defaults == set(NETWORKS[which])


@pytest.mark.parametrize(
    ("which", "setting", "expected"),
    [
        ("ConditionalUNet", {"in_nc": 3, "out_nc": 3, "nf": 8, "depth": 2}, "irsde"),
        ("ConditionalUNet", {"in_nc": 3, "out_nc": 3, "nf": 8}, "irsde"),
        ("ConditionalUNet", {"in_nc": 3, "out_nc": 3, "nf": 8, "ch_mult": [1, 2], "context_dim": 8}, "daclip"),
        ("ConditionalUNet", {"in_nc": 3, "out_nc": 3, "nf": 8, "ch_mult": [1, 2], "scale": 0.5}, "wild-ir"),
        ("ConditionalNAFNet", NAFNET_SETTING, "refusion"),
        ("ConditionalNAFNet", {"img_channel": 8, **NAFNET_SETTING}, "latent"),
        ("CodedNAFNet", NAFNET_SETTING, "coded"),
    ],
)
def test_the_setting_chooses_the_variant(which, setting, expected):
    choice = architecture(which, setting)
    assert choice.variant == expected
    built, named = build_network(which, setting), build_network(which, setting, expected)
    assert type(built) is type(named) and built.state_dict().keys() == named.state_dict().keys()


def test_variants_of_one_class_differ_in_what_their_rows_fix():
    assert not build_network("ConditionalNAFNet", NAFNET_SETTING, "refusion").intro_residual
    assert build_network("ConditionalNAFNet", NAFNET_SETTING, "latent").intro_residual
    for key, variant in (("scale", "daclip"), ("upscale", "wild-ir"), ("transformers_at", "wild-ir")):
        with pytest.raises(ValueError, match=rf"network_G.setting.{key}: unknown option of ConditionalUNet"):
            architecture("ConditionalUNet", {**DACLIP_SETTING, key: 1}, variant)


@pytest.mark.parametrize(
    ("which", "setting", "variant", "message"),
    [
        (
            "ConditionalUnet",
            {},
            None,
            r"network_G.which_model_G: unknown network 'ConditionalUnet', did you mean 'ConditionalUNet'",
        ),
        ("ConditionalUNet", {}, "daklip", r"network_G.variant: .*'daklip', did you mean 'daclip'"),
        ("ConditionalUNet", {"depht": 4}, "irsde", r"network_G.setting.depht: .*did you mean 'depth'"),
        ("ConditionalUNet", {"in_nc": 3, "nf": 8, "depth": 2}, None, r"network_G.setting.out_nc: .*needs it"),
        ("ConditionalUNet", {"in_nc": 3, "out_nc": 3, "nf": "64"}, None, r"network_G.setting.nf: .*whole.*got '64'"),
        ("ConditionalUNet", {"in_nc": 3, "out_nc": 3, "nf": True}, None, r"network_G.setting.nf: .*got True"),
        ("ConditionalUNet", {**DACLIP_SETTING, "use_degra_context": 1}, None, r"use_degra_context: .*true or false"),
        ("ConditionalUNet", {**DACLIP_SETTING, "ch_mult": [1, 2.5]}, None, r"ch_mult: .*list of whole numbers"),
        ("ConditionalUNet", {**DACLIP_SETTING, "nf": 24}, None, r"multiples of 32, got 24"),
        ("ConditionalNAFNet", {"enc_blk_nums": [1, 1], "dec_blk_nums": [1]}, None, r"dec_blk_nums: expected 2 stages"),
        ("DaCLIP", {"embed_dim": 8}, None, r"DaCLIP: missing entries \['text_cfg', 'vision_cfg'\]"),
    ],
)
def test_a_wrong_choice_is_named(which, setting, variant, message):
    with pytest.raises(ValueError, match=message):
        build_network(which, setting, variant)


def test_wrong_arguments_are_named():
    network = example("daclip")
    x, mu, contexts = inputs("daclip")
    for arguments, message in [
        ((x, mu, 5, contexts["text_context"], None), "image_context: this network .* cannot do without"),
        ((x, mu, 5, contexts["text_context"][:, :7], contexts["image_context"]), r"text_context: .*\(B, 64\)"),
        ((x, mu[:1], 5), "image_context"),
        ((x, mu[..., :3], 5, None, contexts["image_context"]), "mu: expected the shape of x"),
        ((x[:, :2], mu, 5, None, contexts["image_context"]), r"x: expected an image batch \(B, 3, H, W\)"),
        ((x, mu, torch.zeros(2, 2), None, contexts["image_context"]), "time: expected a number or a 1-D"),
        ((x, mu, "soon", None, contexts["image_context"]), "time: expected a number .* got 'soon'"),
        ((x, mu, torch.zeros(3), None, contexts["image_context"]), "time: expected 1 or 2 entries"),
        ((x, mu, 5, None, torch.zeros(3, 64)), "image_context: expected 1 or 2 entries"),
    ]:
        with pytest.raises(ValueError, match=message):
            network(*arguments)
    with pytest.raises(ValueError, match="text_context: a NAFNet takes none"):
        predictor(example("refusion"), text_context=torch.zeros(1, 4))


# Precision.


def test_auto_is_float32_on_a_cpu():
    assert resolve_precision("auto", torch.device("cpu")) is None
    with pytest.raises(ValueError, match="unknown precision 'bf61', did you mean 'bf16'"):
        resolve_precision("bf61", torch.device("cpu"))


def test_a_cpu_that_dies_of_half_precision_is_refused(monkeypatch):
    killed = half_precision_problem("bf16", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    assert killed == "a trial was killed by signal 4"
    assert "ValueError: no" in half_precision_problem("bf16", "raise ValueError('no')")
    monkeypatch.setattr("codes.networks.predictor.half_precision_problem", lambda precision: killed)
    with pytest.raises(ValueError, match=r"precision: bf16 does not work on this CPU .*signal 4.*use fp32"):
        predictor(example("refusion", torch.float32), precision="bf16")


@pytest.mark.parametrize("name", ["daclip", "refusion"])
def test_bfloat16_is_close_and_upcast_where_the_cpu_has_it(name):
    if half_precision_problem("bf16"):
        pytest.skip(f"bf16 on this CPU: {half_precision_problem('bf16')}")
    network = example(name, torch.float32)
    x, mu, contexts = inputs(name, dtype=torch.float32, size=(32, 32))
    exact = predictor(network, **contexts)(x, mu, 30.0)
    half = predictor(network, precision="bf16", **contexts)(x, mu, 30.0)
    assert half.dtype == torch.float32
    assert 0 < (half - exact).abs().max() < 0.1 * exact.std() + 0.05
    # One image in a training step: norms take its time's scale and shift as weights, in float32.
    with torch.autocast("cpu", torch.bfloat16):
        one = network(x[:1], mu[:1], torch.tensor([30.0]), **{key: value[:1] for key, value in contexts.items()})
    assert (one.float() - exact[:1]).abs().max() < 0.1 * exact.std() + 0.05
