"""Damaged and hostile weight files: refused with one line that names the file, before they take memory or time."""

import errno
import json
import os
import time
import zipfile
from pathlib import Path

import psutil
import pytest
import safetensors.torch
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from codes.networks import Architecture, architecture
from codes.networks.checkpoints import CheckpointError, Metadata, SDESettings, load_network, read_checkpoint
from codes.networks.checkpoints import save_checkpoint as save

from .network_examples import EXAMPLES
from .network_examples import example as network_of

NAME, VARIANT, SETTING = EXAMPLES["refusion"]
CHOICE = Architecture(NAME, VARIANT, SETTING)


class Tensors(dict):
    """Tensors by name. hypothesis prints its arguments, and thousands of numbers help nobody."""

    def __repr__(self) -> str:
        return f"{len(self)} tensors"


@pytest.fixture(scope="module")
def state():
    found = network_of("refusion", torch.float32).state_dict()
    return Tensors({key: value.contiguous().clone() for key, value in found.items()})


@pytest.fixture(scope="module")
def whole(state, tmp_path_factory):
    """A checkpoint of ours, and its header."""
    path = tmp_path_factory.mktemp("whole") / "x.safetensors"
    save(path, state, Metadata(CHOICE, "noise", SDESettings(50)))
    with safetensors.safe_open(path, "pt") as file:
        return path, file.metadata()


def refused(path: Path, *words: str) -> str:
    """The message for a file that does not load: it names the file."""
    with pytest.raises(CheckpointError) as caught:
        load_network(path)
    text = str(caught.value)
    assert text.startswith(str(path)) and all(word in text for word in words), text
    return text


def rewritten(path: Path, state, header, **changes) -> Path:
    """The file with other metadata, as another program would write it: without a checksum. None removes an entry."""
    entries = {**{key: value for key, value in header.items() if key != "sha256"}, **changes}
    safetensors.torch.save_file(state, path, {key: value for key, value in entries.items() if value is not None})
    return path


# ---- metadata

BAD_METADATA = {
    "setting: no JSON": ({"setting": "{"}, "setting: not JSON"),
    "setting: a list": ({"setting": "[1]"}, "setting: expected a mapping, got list"),
    "setting: nested": ({"setting": "[" * 10**5}, "setting: not JSON"),
    "setting: missing": ({"setting": None}, "setting: missing"),
    "setting: unknown key": ({"setting": json.dumps({**SETTING, "colour": 1})}, "network_G.setting.colour"),
    "setting: text": (
        {"setting": json.dumps({**SETTING, "width": "8"})},
        "network_G.setting.width: expected a positive",
    ),
    "network": ({"which_model_G": "Nothing"}, "network_G.which_model_G: unknown network 'Nothing'"),
    "variant": ({"variant": "x"}, "network_G.variant: unknown variant"),
    "variant: missing": ({"variant": None}, "network_G.variant: unknown variant"),
    "sde: no JSON": ({"sde": "x"}, "sde: not JSON"),
    "sde: a list": ({"sde": "[]"}, "sde: expected a mapping"),
    "sde: unknown key": ({"sde": '{"max_sigma": 50, "t": 1}'}, "unknown key of sde 't'"),
    "sde: nothing": ({"sde": "{}"}, "sde.max_sigma: missing"),
    "sde.T: 1.5": ({"sde": '{"max_sigma": 50, "T": 1.5}'}, "sde.T: expected a whole number from 1 to 100,000, got 1.5"),
    "sde.T: true": ({"sde": '{"max_sigma": 50, "T": true}'}, "sde.T: expected a whole number"),
    "sde.T: huge": ({"sde": '{"max_sigma": 50, "T": 100000000}'}, "sde.T: expected a whole number from 1 to 100,000"),
    "sde.max_sigma": ({"sde": '{"max_sigma": NaN}'}, "sde.max_sigma: expected a number above 0"),
    "sde.eps": ({"sde": '{"max_sigma": 50, "eps": "x"}'}, "sde.eps: expected a number above 0"),
    "sde.schedule": ({"sde": '{"max_sigma": 50, "schedule": "x"}'}, "sde.schedule: expected one of cosine"),
    "fit_target: empty": ({"fit_target": ""}, "unknown fit_target ''"),
    "fit_target": ({"fit_target": "nois"}, "unknown fit_target 'nois', did you mean 'noise'?"),
    "recommended": ({"recommended": "[]"}, "its metadata cannot be used"),
}


@pytest.mark.parametrize("case", BAD_METADATA)
def test_bad_metadata_is_one_line(case, state, whole, tmp_path):
    """C7 and W7: each names the file and the entry."""
    changes, words = BAD_METADATA[case]
    text = refused(rewritten(tmp_path / "x.safetensors", state, whole[1], **changes), words)
    assert "\n" not in text


@pytest.mark.parametrize(
    "change",
    [
        {"width": 20_000},
        {"width": 10**6},
        {"width": 10**30},
        {"enc_blk_nums": [10**6, 1]},
        {"enc_blk_nums": [1] * 100},
        {"enc_blk_nums": [], "dec_blk_nums": []},
        {"middle_blk_num": 10**5},
    ],
)
def test_metadata_of_an_enormous_network_takes_no_memory(change, state, whole, tmp_path):
    """H3: a network of 12.8 GB or 32 TB, or a million blocks, in a file of 100 KB."""
    path = rewritten(tmp_path / "x.safetensors", state, whole[1], setting=json.dumps({**SETTING, **change}))
    before, start = psutil.Process().memory_info().rss, time.process_time()
    refused(path)
    assert psutil.Process().memory_info().rss - before < 200e6 and time.process_time() - start < 20


@pytest.mark.parametrize(("name", "key"), [("irsde", "depth"), ("daclip", "nf"), ("latent-unet", "ch")])
def test_bounds_hold_for_every_network(name, key):
    which, variant, setting = EXAMPLES[name]
    with pytest.raises(ValueError, match=rf"network_G.setting.{key}: expected at most [\d,]+, got 1000000"):
        architecture(which, {**setting, key: 10**6}, variant)
    with pytest.raises(ValueError, match="vision_cfg.layers: expected at most 100, got 1000000"):
        architecture("DaCLIP", {"embed_dim": 8, "vision_cfg": {"layers": 10**6}, "text_cfg": {}})


# ---- tensors

TYPES = {
    "int8": lambda value: value.to(torch.int8),
    "int64": lambda value: value.to(torch.int64),
    "bool": lambda value: value > 0,
    "complex64": lambda value: value.to(torch.complex64),
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_weights_that_are_no_floating_point_numbers(kind, suffix, state, tmp_path):
    """W7: the imaginary part was dropped, whole numbers were taken for weights."""
    path = tmp_path / f"x{suffix}"
    changed = {**state, "intro.weight": TYPES[kind](state["intro.weight"])}
    if suffix == ".pth":
        torch.save(changed, path)
    else:
        safetensors.torch.save_file(changed, path)
    with pytest.raises(
        CheckpointError, match=f"x{suffix}.*\n  1 of another type: intro.weight {kind} instead of float32"
    ):
        load_network(path, NAME, SETTING, VARIANT)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_floating_point_numbers_are_converted(dtype, state, tmp_path):
    torch.save({key: value.to(dtype) for key, value in state.items()}, tmp_path / "x.pth")
    network, _ = load_network(tmp_path / "x.pth")
    assert all(torch.equal(value, state[key].to(dtype).float()) for key, value in network.state_dict().items())


ODD = {
    "sparse": lambda value: value.to_sparse(),
    "quantised": lambda value: torch.quantize_per_tensor(value, 0.1, 0, torch.qint8),
    "meta": lambda value: value.to("meta"),
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.filterwarnings("ignore")  # torch means to give up quantised tensors
def test_sparse_quantised_and_meta_tensors(kind, state, tmp_path):
    torch.save({**state, "intro.weight": ODD[kind](state["intro.weight"])}, tmp_path / "x.pth")
    text = refused(tmp_path / "x.pth")
    assert f"found {kind} ones: intro.weight" in text or "not a readable torch file" in text or "refused" in text


def test_a_tensor_larger_than_its_file(tmp_path):
    """One number, expanded to a terabyte."""
    torch.save({"intro.weight": torch.zeros(1).expand(10**6, 10**5)}, tmp_path / "x.pth")
    refused(tmp_path / "x.pth", "its tensors would take 400,000,000,000 bytes, and the file has")


def test_a_compressed_archive(state, tmp_path):
    torch.save(state, tmp_path / "plain.pth")
    with zipfile.ZipFile(tmp_path / "plain.pth") as plain, zipfile.ZipFile(tmp_path / "x.pth", "w", 8) as packed:
        for name in plain.namelist():
            packed.writestr(name, plain.read(name))
    refused(tmp_path / "x.pth", "compressed parts")


# ---- files


def test_what_is_no_file(tmp_path):
    """H5: a named pipe waits for ever, a device has no end."""
    os.mkfifo(tmp_path / "x.pth")
    refused(tmp_path / "x.pth", "a named pipe; expected a file")
    (tmp_path / "zero.safetensors").symlink_to("/dev/zero")
    refused(tmp_path / "zero.safetensors", "a device; expected a file")
    with pytest.raises(FileNotFoundError, match="no such file"):
        load_network("a\0b.pth")


@pytest.mark.parametrize("content", [b"<!DOCTYPE html>", b"version https://git-lfs.github.com/spec/v1\noid sha256:0"])
def test_a_page_or_a_pointer_in_place_of_weights_is_told_as_such(content, tmp_path):
    file = tmp_path / "weights.pth"
    file.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(file)
    assert str(caught.value) == f"{file}: not a readable torch file (it begins with {content[:40]!r})"


def test_a_file_that_may_not_be_read(whole, monkeypatch):
    """C8: told as what it is, not as missing."""

    def closed(self, *_):
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", closed)
    refused(whole[0], "cannot be read: Permission denied; give yourself permission")


# ---- bytes


def outcome(path: Path, wanted) -> None:
    """Either one line, or exactly the tensors that were written."""
    try:
        found = read_checkpoint(path).state
    except CheckpointError as error:
        assert str(error).startswith(str(path))
        return
    assert found.keys() == wanted.keys() and all(torch.equal(found[key], wanted[key]) for key in wanted)


SMALL = {"a.weight": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(-1.5)}


def small_files(folder: Path) -> list[Path]:
    """The same tensors in two forms, small enough to change every byte. The safetensors file has a checksum."""
    from codes.networks.weight_files import digest_of

    header = {"weights": "online"}
    safetensors.torch.save_file(SMALL, folder / "x.safetensors", {**header, "sha256": digest_of(SMALL, header)})
    torch.save(SMALL, folder / "x.pth")
    return [folder / "x.safetensors", folder / "x.pth"]


def test_a_checkpoint_cut_off_anywhere(tmp_path):
    for path in small_files(tmp_path):
        content = path.read_bytes()
        for length in range(0, len(content), 1 if path.suffix == ".safetensors" else 7):
            path.write_bytes(content[:length])
            refused(path)


def test_the_end_of_an_archive_says_that_it_has_several_volumes(tmp_path):
    """Found by the test below."""
    path = small_files(tmp_path)[1]
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x06\x07") + 4] ^= 1
    path.write_bytes(content)
    refused(path, "not a readable torch file (damaged or cut off (zipfiles that span multiple disks")


@given(place=st.floats(0, 1, exclude_max=True), mask=st.integers(1, 255), form=st.integers(0, 1))
def test_a_checkpoint_with_one_byte_changed(place, mask, form, tmp_path):
    path = small_files(tmp_path)[form]
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= mask
    path.write_bytes(content)
    outcome(path, SMALL)


@pytest.mark.hypothesis
@pytest.mark.skipif(not os.environ.get("MR_FUZZ"), reason="takes a minute; make fuzz runs it")
def test_a_checkpoint_with_any_byte_changed(tmp_path):
    for path in small_files(tmp_path):
        content = path.read_bytes()
        for place in range(len(content)):
            for mask in (1, 2, 4, 8, 16, 32, 64, 128, 255):
                path.write_bytes(content[:place] + bytes([content[place] ^ mask]) + content[place + 1 :])
                outcome(path, SMALL)


@given(content=st.binary(max_size=400), suffix=st.sampled_from([".pth", ".pt", ".safetensors"]))
@example(content=b"PK\x05\x06" + bytes(18), suffix=".pth")  # an empty archive
@example(content=b"\x80\x02}q\x00.", suffix=".pth")  # an empty dictionary
@example(content=b"\x02\x00\x00\x00\x00\x00\x00\x00{}", suffix=".safetensors")
def test_any_bytes_are_refused(content, suffix, tmp_path):
    path = tmp_path / f"x{suffix}"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="x"):
        load_network(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NUMBERS = st.sampled_from([0, -1, 1, 2, 8, 1.5, 10**6, 10**30, -(10**30), float("nan"), float("inf"), True, "8", None])


@given(
    key=st.sampled_from(["setting", "sde", "fit_target", "variant", "which_model_G", "recommended", "weights"]),
    value=JSON.map(json.dumps) | st.text(max_size=20) | st.none(),
)
def test_any_metadata_loads_or_is_one_line(key, value, state, whole, tmp_path):
    path = rewritten(tmp_path / "x.safetensors", state, whole[1], **{key: value})
    try:
        network, metadata = load_network(path)
    except CheckpointError as error:
        assert str(error).startswith(str(path))
    else:
        assert metadata.fit_target in ("noise", "data", "velocity", "score", None)
        assert torch.equal(network.state_dict()["intro.weight"], state["intro.weight"])


@given(
    setting=st.dictionaries(
        st.sampled_from([*SETTING]), NUMBERS | st.lists(NUMBERS, max_size=4), min_size=1, max_size=2
    ),
    sde=st.dictionaries(st.sampled_from(["T", "max_sigma", "eps"]), NUMBERS, max_size=2),
)
def test_any_numbers_in_metadata_load_or_are_one_line(setting, sde, state, whole, tmp_path):
    changes = {"setting": json.dumps({**SETTING, **setting}), "sde": json.dumps({"max_sigma": 50, **sde})}
    path = rewritten(tmp_path / "x.safetensors", state, whole[1], **changes)
    try:
        _, metadata = load_network(path)
    except CheckpointError as error:
        assert str(error).startswith(str(path))
    else:
        assert 1 <= metadata.sde.T <= 100_000 and 0 < metadata.sde.max_sigma <= 10_000
