"""Who may import whom, and that CPU-only torch gets along with torchvision."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "codes").rglob("*.py"))


def imported(path: Path) -> set[str]:
    """The modules that a file imports anywhere, relative ones with their dots."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("." * node.level + (node.module or ""))
    return names


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_package_imports_itself_relatively_and_edits_no_path(path):
    names = imported(path)
    assert not any(name.split(".")[0] in ("codes", "scripts", "tests") for name in names)
    assert "sys.path" not in path.read_text()


def test_solvers_know_nothing_of_images_networks_or_options_files():
    allowed = {"codes.sde", "codes.prediction", "codes.tensors", "codes.choices", "codes.defaults"}
    for path in (ROOT / "codes" / "solvers").glob("*.py"):
        for name in imported(path):
            assert name.split(".")[0] not in ("yaml", "cv2", "torchvision", "lpips", "open_clip"), (path, name)
            if name.startswith(".."):
                assert f"codes.{name[2:]}" in allowed, (path, name)


def test_torchvision_and_what_needs_it_import():
    code = (
        "from codes.torchvision_compat import ensure_torchvision; ensure_torchvision();"
        "import torchvision, lpips, open_clip; print(torchvision.transforms.Resize(4))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("Resize(size=4")
