"""Exported graphs give the images of torch, at sizes that they have never seen."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("onnx", reason="`make test-integrations` installs it")
pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")

from codes import load_restorer
from codes.commands.main import main
from codes.integrations.export import Unrolled, runner
from codes.runtime.paths import PROJECT

WEIGHTS = PROJECT / "pretrained" / "mr-universal.safetensors"
PHOTO = PROJECT / "options" / "demo" / "GT" / "rocket.png"
SIZES = [(64, 96), (128, 64), (72, 136), (8, 8)]


@pytest.fixture(scope="module")
def restorer():
    return load_restorer(WEIGHTS, device="cpu", overrides=["precision=fp32"])


@pytest.fixture(scope="module", params=["onnx", "openvino"])
def format(request):
    return request.param


@pytest.fixture(scope="module", params=[1, 2], ids="nfe{}".format)
def nfe(request):
    return request.param


@pytest.fixture(scope="module")
def exported(format, nfe, tmp_path_factory):
    file = tmp_path_factory.mktemp("graph") / {"onnx": "graph.onnx", "openvino": "graph.xml"}[format]
    command = ["export", "--opt", str(WEIGHTS), "--nfe", str(nfe), "--format", format, "-o", str(file)]
    assert main(command) == 0
    return file


@pytest.fixture(scope="module")
def compute(exported):
    return runner(exported)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_graph_computes_what_torch_does(compute, restorer, nfe, size):
    """One graph for all sizes; the weights are the ones that come with the project."""
    module = Unrolled(restorer, restorer.plan(None, nfe)).eval()
    rng = torch.Generator().manual_seed(7)
    image = torch.rand(1, 3, *size, generator=rng)
    noise = torch.stack([torch.randn(image.shape[1:], generator=rng)[None] for _ in range(module.draws)])
    expected = module(image, noise).numpy()
    found = compute(image.numpy(), noise.numpy())
    assert found.shape == expected.shape and np.abs(found - expected).max() < 1e-4


def test_the_graph_is_the_restorer_at_full_strength(compute, restorer, nfe):
    image, rng = torch.rand(3, 40, 48, generator=torch.Generator().manual_seed(1)), torch.Generator().manual_seed(9)
    module = Unrolled(restorer, restorer.plan(None, nfe))
    noise = torch.stack([torch.randn(image.shape, generator=rng)[None] for _ in range(module.draws)])
    found = compute(image[None].numpy(), noise.numpy())[0]
    assert np.abs(found - restorer(image, nfe=nfe, seed=9, strength=1.0).numpy()).max() < 1e-4


def test_the_example_runs_with_onnxruntime_alone(exported, tmp_path):
    if exported.suffix != ".onnx":
        pytest.skip("OpenVINO's files have none")
    example = exported.with_name("run_graph.py")
    assert len(example.read_text().splitlines()) <= 30
    Image.open(PHOTO).crop((0, 0, 61, 50)).save(tmp_path / "photo.png")  # no multiples of 8
    watch = (
        "import sys, runpy, atexit; atexit.register(lambda: print('torch' in sys.modules or 'codes' in sys.modules))"
    )
    code = f"{watch}\nsys.argv = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')"
    command = [sys.executable, "-c", code, example, exported, tmp_path / "photo.png", tmp_path / "out.png"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": ""})
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
    assert Image.open(tmp_path / "out.png").size == (61, 50)


def test_without_options_the_graph_is_what_restore_does_by_itself(monkeypatch, tmp_path, capsys):
    """The solver that the checkpoint recommends, in float32: nothing is said of another precision."""
    monkeypatch.chdir(tmp_path)
    assert main(["export", "--nfe", "1"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "restore-1.onnx: 1 evaluation, 2 draws of noise; beside it run_restore_1.py\n"
    assert "bf16" not in printed.err
    restorer, rng = load_restorer(WEIGHTS, "cpu", ["precision=fp32"]), torch.Generator().manual_seed(3)
    image = torch.rand(3, 24, 32, generator=rng)
    rng.manual_seed(5)
    noise = torch.stack([torch.randn(image.shape, generator=rng)[None] for _ in range(2)])
    found = runner(tmp_path / "restore-1.onnx")(image[None].numpy(), noise.numpy())[0]
    assert np.abs(found - restorer(image, nfe=1, seed=5, strength=1.0).numpy()).max() < 1e-4


def test_existing_files_and_wrong_names_are_told(exported, format, capsys):
    assert main(["export", "--opt", str(WEIGHTS), "--format", format, "-o", str(exported)]) == 2
    assert capsys.readouterr().err.endswith(f"{exported}: exists already; --overwrite replaces it\n")
    assert main(["export", "--opt", str(WEIGHTS), "--format", format, "-o", "graph.bin"]) == 2
    assert f"-o graph.bin: expected a name ending in {exported.suffix}" in capsys.readouterr().err
