"""Weight files: every published form loads, nothing else does, and the message says what is wrong."""

import json
import logging
import pickle
from collections import OrderedDict
from pathlib import Path

import pytest
import torch

from codes.commands.convert import main as convert
from codes.networks import Architecture, build_network
from codes.networks.checkpoints import (
    CheckpointError,
    Metadata,
    SDESettings,
    expected_state,
    find_file,
    identify,
    load_network,
    load_weights,
    read_checkpoint,
    save_checkpoint,
)

from .network_examples import EXAMPLES, GOLDEN, example, inputs


def same(a, b) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


@pytest.fixture
def nafnet():
    return example("refusion", torch.float32)


WRAPPINGS = {
    "bare": lambda state: (state, "online"),
    "ordered": lambda state: (OrderedDict(state), "online"),
    "module": lambda state: ({f"module.{key}": value for key, value in state.items()}, "online"),
    "state_dict": lambda state: ({"epoch": 3, "name": "x", "state_dict": state, "optimizer": {}}, "online"),
    "ema inside": lambda state: ({"state_dict": {k: v + 1 for k, v in state.items()}, "ema": state}, "ema"),
    "ema_pytorch": lambda state: (
        {"initted": torch.tensor(True), "step": torch.tensor(7)}
        | {f"online_model.{key}": value + 1 for key, value in state.items()}
        | {f"ema_model.{key}": value for key, value in state.items()},
        "ema",
    ),
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("suffix", [".pth", ".pt"])
def test_every_wrapping_gives_the_same_weights(nafnet, tmp_path, wrapping, suffix):
    content, weights = WRAPPINGS[wrapping](nafnet.state_dict())
    torch.save(content, tmp_path / f"x{suffix}")
    network = build_network(*EXAMPLES["refusion"][::2])
    assert load_weights(network, tmp_path / f"x{suffix}").weights == weights
    assert same(network.state_dict(), nafnet.state_dict())


def test_old_torch_files_load(nafnet, tmp_path):
    torch.save(nafnet.state_dict(), tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    network, _ = load_network(tmp_path / "old.pth")
    assert same(network.state_dict(), nafnet.state_dict())


def test_a_folder_gives_its_ema_weights_and_says_so(nafnet, tmp_path, caplog):
    ema = {key: value * 2 for key, value in nafnet.state_dict().items()}
    torch.save(nafnet.state_dict(), tmp_path / "latest_G.pth")
    torch.save(nafnet.state_dict(), tmp_path / "90000_G.pth")
    assert same(read_checkpoint(tmp_path).state, nafnet.state_dict())
    torch.save(ema, tmp_path / "lastest_EMA.pth")
    with caplog.at_level(logging.INFO):
        network, metadata = load_network(tmp_path)
        assert same(network.state_dict(), ema)
        assert metadata.weights == "ema" and metadata.source.endswith("lastest_EMA.pth")
        assert "using lastest_EMA.pth" in caplog.text
        online, metadata = load_network(tmp_path / "latest_G.pth")
    assert same(online.state_dict(), nafnet.state_dict()) and metadata.weights == "online"
    assert "the same folder has EMA weights in lastest_EMA.pth" in caplog.text


def test_what_only_looks_like_a_number_is_no_iteration(tmp_path):
    for name in ("²_EMA.safetensors", "8_EMA.safetensors"):
        (tmp_path / name).touch()
    assert find_file(tmp_path).name == "8_EMA.safetensors"


def test_the_newest_iteration_of_a_folder(nafnet, tmp_path):
    for iteration in (5000, 100000, 20000):
        torch.save({k: v + iteration for k, v in nafnet.state_dict().items()}, tmp_path / f"{iteration}_G.pth")
    assert read_checkpoint(tmp_path).path.name == "100000_G.pth"


def test_daclip_files_with_and_without_duplicates(tmp_path):
    config = json.loads((GOLDEN / "daclip_tiny.manifest.json").read_text())["config"]
    network = build_network("DaCLIP", config)
    load_weights(network, GOLDEN / "daclip_tiny.safetensors")
    published = {"epoch": 1, "name": "", "state_dict": {f"module.{k}": v for k, v in network.state_dict().items()}}
    assert any(key.startswith("module.visual.") for key in published["state_dict"])
    torch.save(published, tmp_path / "daclip.pt")
    other = build_network("DaCLIP", config)
    assert not any(key.startswith("visual.") for key in load_weights(other, tmp_path / "daclip.pt").state)
    assert same(other.state_dict(), network.state_dict())

    published["state_dict"]["module.visual.proj"] = published["state_dict"]["module.visual.proj"] + 1
    torch.save(published, tmp_path / "daclip.pt")
    with pytest.raises(CheckpointError, match=r"visual.\* should equal clip.visual.\* and does not: visual.proj"):
        load_weights(other, tmp_path / "daclip.pt")


# What is refused.


class Crafted:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return (Path.touch, (self.target,))


@pytest.mark.parametrize("form", ["zip", "old", "plain pickle"])
def test_a_crafted_pickle_never_runs(tmp_path, form):
    target, file = tmp_path / "created", tmp_path / "crafted.pth"
    content = {"weight": torch.zeros(2), "extra": Crafted(target)}
    if form == "plain pickle":
        file.write_bytes(pickle.dumps({"extra": Crafted(target)}))
    else:
        torch.save(content, file, _use_new_zipfile_serialization=form == "zip")
    pickle.loads(pickle.dumps(Crafted(target)))
    assert target.exists()  # the object does what it is made for
    target.unlink()
    with pytest.raises(CheckpointError, match=r"crafted.pth: refused\. .*would run code"):
        read_checkpoint(file)
    assert not target.exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.bin", b"", r"x.bin: expected a file ending in .pth, .pt, .safetensors"),
        ("x.pth", b"", r"x.pth: not a readable torch file"),
        ("x.pth", b"PK\x03\x04 broken", r"x.pth: (not a readable torch file|refused)"),
        ("x.safetensors", b"broken", r"x.safetensors: not a readable safetensors file"),
    ],
)
def test_unreadable_files(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(tmp_path / name)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"epoch": 1, "iter": 2, "schedulers": [], "optimizers": []}, "a training state without weights"),
        ([torch.zeros(1)], "expected a state dict, found list"),
        ({}, "expected a state dict"),
        ({"a": torch.zeros(1), "b": 3}, "expected tensors only, found b"),
    ],
)
def test_files_without_weights(tmp_path, content, message):
    torch.save(content, tmp_path / "x.pth")
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(tmp_path / "x.pth")


def test_a_missing_file_is_named_with_its_place(tmp_path):
    which, _, setting = EXAMPLES["daclip"]
    with pytest.raises(FileNotFoundError, match=r"x.pth: no such file.*universal-ir.*224 keys.*pretrained/README.md"):
        load_network(tmp_path / "x.pth", which, setting)
    with pytest.raises(CheckpointError, match=r"expected one weight file .* found none"):
        load_network(tmp_path)


def test_every_difference_is_in_one_error(nafnet, tmp_path):
    state = nafnet.state_dict()
    removed = [key for key in state if key.startswith("middle_blks.0.")]
    broken = {key: value for key, value in state.items() if key not in removed}
    broken["bogus.weight"] = torch.zeros(1)
    broken["intro.weight"] = torch.zeros(8, 5, 3, 3)
    torch.save(broken, tmp_path / "x.pth")
    with pytest.raises(CheckpointError) as error:
        load_weights(nafnet, tmp_path / "x.pth")
    text = str(error.value)
    assert f"{len(removed)} missing: {', '.join(removed[:10])} and {len(removed) - 10} more" in text
    assert "1 unexpected: bogus.weight" in text
    assert "1 of another shape: intro.weight (8, 5, 3, 3) instead of (8, 6, 3, 3)" in text
    assert "fits" not in text.splitlines()[-1]


def test_a_file_of_another_network_is_recognised(nafnet, tmp_path):
    torch.save(example("irsde", torch.float32).state_dict(), tmp_path / "x.pth")
    with pytest.raises(CheckpointError, match=r"The file fits ConditionalUNet \(variant irsde, .*nf: 8, depth: 3"):
        load_weights(nafnet, tmp_path / "x.pth")


@pytest.mark.parametrize("name", EXAMPLES)
def test_keys_tell_architecture_and_setting(name):
    which, variant, setting = EXAMPLES[name]
    found = identify(example(name).state_dict())
    assert found is not None and (found.which_model_G, found.variant) == (which, variant)
    defaults = {"use_image_context": False, "img_channel": 3}
    assert {key: value for key, value in found.setting.items() if defaults.get(key) != value} == {
        key: value for key, value in setting.items() if defaults.get(key) != value
    }


def test_full_size_keys_are_identified():
    for path in GOLDEN.glob("*.keys.json"):
        manifest = json.loads(path.read_text())
        state = {
            key: torch.empty(shape, device="meta")
            for key, (shape, _) in manifest["state_dict"].items()
            if not key.startswith("visual.")
        }
        found = identify(state)
        assert found is not None, path
        config = {key: value for key, value in manifest["config"].items() if key != "custom_text"}
        assert {key: found.setting[key] for key in config} == config
    assert identify({"bogus": torch.zeros(1)}) is None


def test_options_that_disagree_with_the_file_are_told_what_it_is(tmp_path):
    torch.save(example("denoising-unet", torch.float32).state_dict(), tmp_path / "x.pth")
    with pytest.raises(CheckpointError, match=r"options ask for ConditionalUNet \(variant irsde.*variant denoising"):
        load_network(tmp_path / "x.pth", *EXAMPLES["denoising-unet"][::2], variant="irsde")
    for variant in ("denoising", None):  # published option files do not name it
        network, _ = load_network(tmp_path / "x.pth", *EXAMPLES["denoising-unet"][::2], variant=variant)
        assert same(network.state_dict(), example("denoising-unet", torch.float32).state_dict())


# Our own files.


def test_a_saved_file_is_enough_to_rebuild_the_network(tmp_path):
    network = example("latent-nafnet", torch.float32)
    choice = Architecture(*(EXAMPLES["latent-nafnet"][i] for i in (0, 1, 2)))
    metadata = Metadata(
        choice, "noise", SDESettings(30, T=1000, schedule="linear", eps=0.01, convention="irsde"),
        weights="ema", source="models/lastest_EMA.pth",
    )  # fmt: skip
    file = tmp_path / "x.safetensors"
    save_checkpoint(file, network.state_dict(), metadata)
    again, read = load_network(file)
    assert (read.architecture, read.fit_target, read.sde, read.weights) == (choice, "noise", metadata.sde, "ema")
    x, mu, _ = inputs("latent-nafnet", dtype=torch.float32)
    with torch.no_grad():
        assert torch.equal(again(x, mu, 4), network(x, mu, 4))
    # Same keys, other function: only the metadata can tell.
    with pytest.raises(CheckpointError, match=r"variant refusion.*the file is ConditionalNAFNet .variant latent"):
        load_network(file, *EXAMPLES["latent-nafnet"][::2], variant="refusion")
    with pytest.raises(FileExistsError, match="exists already"):
        save_checkpoint(file, network.state_dict(), metadata)
    with pytest.raises(CheckpointError, match="not written, the tensors are not those of"):
        save_checkpoint(tmp_path / "y.safetensors", {"a": torch.zeros(1)}, metadata)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.safetensors"]


@pytest.mark.parametrize(
    ("options", "prediction"),
    [
        ("train: {target: velocity}", "velocity"),
        ("train: {target: published}", "noise"),
        ("sampler: {fit_target: data}\ntrain: {target: velocity}", "data"),
        ("based_on: base.yml", "velocity"),
    ],
)
def test_convert_takes_the_prediction_from_an_option_file(tmp_path, options, prediction):
    """Of a training too: with the wrong one the network restores nothing."""
    torch.save(example("refusion", torch.float32).state_dict(), tmp_path / "in.pth")
    (tmp_path / "mine.yml").write_text(options)
    (tmp_path / "base.yml").write_text("train: {target: velocity}")
    out = tmp_path / "out.safetensors"
    assert convert([str(tmp_path / "in.pth"), str(out), "--opt", str(tmp_path / "mine.yml")]) == 0
    assert load_network(out)[1].fit_target == prediction


def test_convert_keeps_what_inference_needs(tmp_path, capsys):
    network = example("daclip", torch.float32)
    state = {f"module.{key}": value for key, value in network.state_dict().items()}
    torch.save({"state_dict": state, "optimizer": {"state": {0: torch.zeros(1000)}}}, tmp_path / "in.pth")
    out = tmp_path / "out.safetensors"
    assert convert([str(tmp_path / "in.pth"), str(out)]) == 0
    again, metadata = load_network(out)
    assert same(again.state_dict(), network.state_dict())
    assert metadata.sde == SDESettings(50) and metadata.fit_target == "noise"
    separate = f"{out}: not enough by itself: DA-CLIP's encoder stays a file of its own, give it as path.daclip\n"
    assert capsys.readouterr().out.endswith(separate)
    before = out.read_bytes()
    assert convert([str(tmp_path / "in.pth"), str(out), "--max-sigma", "10"]) == 2
    assert "exists already" in capsys.readouterr().err and out.read_bytes() == before
    assert convert([str(tmp_path / "in.pth"), str(out), "--max-sigma", "10", "--overwrite"]) == 0
    assert load_network(out)[1].sde == SDESettings(10.0)


def test_convert_asks_for_the_sde_where_it_is_not_known(tmp_path, capsys):
    torch.save(example("irsde", torch.float32).state_dict(), tmp_path / "in.pth")
    arguments = [str(tmp_path / "in.pth"), str(tmp_path / "out.safetensors")]
    assert convert(arguments) == 2
    assert "give --max-sigma" in capsys.readouterr().err
    options = tmp_path / "o.yml"
    options.write_text("sde: {max_sigma: 30, T: 100, schedule: cosine, eps: 0.005}\n")
    assert convert([*arguments, "--opt", str(options)]) == 0
    assert load_network(arguments[1])[1].sde == SDESettings(30, convention="irsde")
    assert f"{arguments[1]}: enough by itself, as path.pretrain_model_G or " in capsys.readouterr().out


def test_convert_drops_daclips_duplicates(tmp_path, capsys):
    config = json.loads((GOLDEN / "daclip_tiny.manifest.json").read_text())["config"]
    network = build_network("DaCLIP", config)
    torch.save({"state_dict": network.state_dict()}, tmp_path / "in.pt")
    options = tmp_path / "o.yml"
    options.write_text(json.dumps({"network_G": {"which_model_G": "DaCLIP", "setting": config}}))
    assert convert([str(tmp_path / "in.pt"), str(tmp_path / "out.safetensors"), "--opt", str(options)]) == 0
    assert "out.safetensors: give it as path.daclip beside the network that needs it\n" in capsys.readouterr().out
    assert read_checkpoint(tmp_path / "out.safetensors").state.keys() == expected_state(network).keys()
    again, metadata = load_network(tmp_path / "out.safetensors")
    assert same(again.state_dict(), network.state_dict()) and metadata.architecture.setting == config
