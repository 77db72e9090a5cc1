"""Which packages a command imports: heavy ones only where they are used, so that commands start quickly."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from codes.data.images import save_image

ROOT = Path(__file__).parents[1]
HEAVY = {
    "cv2", "diffusers", "fastapi", "gradio", "huggingface_hub", "lpips", "matplotlib", "numpy", "onnx", "open_clip",
    "pandas", "PIL", "pydantic", "requests", "safetensors", "scipy", "skimage", "sympy", "tensorboard", "timm", "torch",
    "torchvision", "tqdm", "transformers", "yaml",
}  # fmt: skip
_PROGRAM = """
import sys
from codes.commands.main import main
try:
    code = main(sys.argv[1:])
except SystemExit as ended:
    code = ended.code
print("MODULES", code or 0, *sorted({name.partition(".")[0] for name in sys.modules}))
"""


def imported(*arguments: str) -> set[str]:
    """The heavy packages in memory after a command that worked."""
    command = [sys.executable, "-c", _PROGRAM, *arguments]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    code, *names = result.stdout.rpartition("MODULES ")[2].split()
    assert code == "0", result.stderr
    return HEAVY & set(names)


def test_the_help_needs_no_package_at_all():
    assert imported("--help") == set()
    assert imported("--version") == set()


@pytest.mark.parametrize("command", ["restore", "test", "train", "app"])
def test_the_help_of_a_command_reads_options_at_most(command):
    assert imported(command, "--help") <= {"pydantic", "yaml", "tqdm"}


def test_restoring_imports_what_a_network_and_an_image_need(tmp_path):
    save_image(np.full((32, 40, 3), 90, np.uint8), tmp_path / "photo.png")
    needed = {"cv2", "numpy", "pydantic", "safetensors", "torch", "tqdm", "yaml"}
    assert imported("restore", str(tmp_path / "photo.png"), "-o", str(tmp_path / "out")) == needed
    assert (tmp_path / "out" / "photo.png").is_file()
