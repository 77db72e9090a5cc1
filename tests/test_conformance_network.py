"""A new network is one file and one row: a copy of the package gets both, and every entrance accepts the network."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .evaluation import write_images, write_options

ROOT = Path(__file__).parent.parent

NETWORK = '''
import torch
from torch import Tensor, nn


class Dummy(nn.Module):
    """Two convolutions and a scale for the time: no fast path, no memory estimate."""

    def __init__(self, width: int = 8, activation: str = "relu") -> None:
        super().__init__()
        self.first = nn.Conv2d(6, width, 3, padding=1)
        self.last = nn.Conv2d(width, 3, 3, padding=1)
        self.activation = getattr(torch, activation)

    def forward(self, x: Tensor, mu: Tensor, t: Tensor) -> Tensor:
        h = self.activation(self.first(torch.cat([x - mu, mu], dim=1)))
        return mu + 0.1 * self.last(h) / (1 + t.view(-1, 1, 1, 1))


def setting_of(state):
    return {"width": len(state["first.bias"])}
'''
ROW = """
    Row(
        name="Dummy",
        variant="plain",
        network="dummy:Dummy",
        title="a network of the conformance test",
        setting_of="dummy:setting_of",
        sde=SDESettings(40, convention="irsde"),
    ),
"""
PYTHON = """
import sys
import torch
from codes import load_restorer
from codes.config import load_options
from codes.networks import architecture, build, build_network
from codes.networks.checkpoints import Metadata, SDESettings, identify, load_network, published_sde, save_checkpoint

torch.manual_seed(0)
choice = architecture("Dummy", {"width": 4, "activation": "tanh"})
assert choice.variant == "plain" and published_sde(choice) == SDESettings(40, convention="irsde")
network = build(choice)
save_checkpoint("tiny.safetensors", network.state_dict(), Metadata(choice, "data", SDESettings(50)))
again, metadata = load_network("tiny.safetensors")
assert metadata.architecture == choice
assert all(torch.equal(value, again.state_dict()[key]) for key, value in network.state_dict().items())
torch.save(network.state_dict(), "tiny.pth")
assert str(identify(network.state_dict())) == "Dummy (variant plain, setting {width: 4})"
assert load_network("tiny.pth")[1].architecture.which_model_G == "Dummy"

options = load_options("run.yml")
assert options.network_G.which_model_G == "Dummy" and options.tile == "auto"
image = torch.rand(3, 40, 32, generator=torch.Generator().manual_seed(0))
from_file, from_options = (load_restorer(path, device="cpu") for path in ("tiny.safetensors", "run.yml"))
restored = from_file(image, nfe=3)
assert restored.shape == image.shape and bool(torch.isfinite(restored).all())
assert torch.equal(restored, from_options(image, nfe=3, algorithm=from_file.solver()))

try:
    build_network("Dummy", {"widht": 4})
except ValueError as error:
    assert "network_G.setting.widht" in str(error) and "did you mean 'width'" in str(error), error
try:
    load_network("missing.pth", "Dummy", {})
except FileNotFoundError as error:
    assert "a network of the conformance test" in str(error), error
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The package with the new file and the new row, and an option file for the network."""
    folder = tmp_path_factory.mktemp("conformance")
    shutil.copytree(ROOT / "codes", folder / "codes", ignore=shutil.ignore_patterns("__pycache__"))
    for launcher in ("test.py", "restore.py"):
        shutil.copy(ROOT / launcher, folder)
    (folder / "codes" / "networks" / "dummy.py").write_text(NETWORK)
    rows = folder / "codes" / "networks" / "rows.py"
    text = rows.read_text()
    assert text.count("\nROWS = (\n") == 1
    rows.write_text(text.replace("\nROWS = (\n", f"\nROWS = ({ROW}"))
    write_images(folder / "data", tasks=("rainy",), images=2)
    write_options(
        folder,
        network_G={"which_model_G": "Dummy", "setting": {"width": 4, "activation": "tanh"}},
        sde={"algorithm": "mrsampler-pc"},
        sampler={"num_sample_steps": 2},
        metrics={"names": ["psnr"]},
    )
    run(folder, "-c", PYTHON)
    return folder


def run(folder, *arguments):
    result = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(folder)},
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_python_checkpoints_and_load_restorer(copy):
    assert (copy / "tiny.pth").exists()  # the script that made it has the assertions


def test_option_files_and_the_test_program(copy):
    run(copy, "test.py", "-opt", "run.yml")
    summary = json.loads((copy / "results" / "run" / "summary.json").read_text())
    assert "psnr" in json.dumps(summary)
    assert len(list((copy / "results" / "run").glob("*/*/*.png"))) == 2


def test_the_restore_program(copy):
    run(copy, "restore.py", copy / "data" / "rainy" / "LQ", "-o", copy / "restored", "-opt", "tiny.safetensors")
    assert len(list((copy / "restored").glob("*.png"))) >= 2


def test_the_reference_of_options_lists_it(copy):
    text = run(copy, "-m", "codes.config")
    assert "`Dummy`" in text and "`plain`" in text
