"""Who may import whom, and that CPU-only torch gets along with torchvision."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "codes").rglob("*.py"))

# Rooms and top-level modules from the bottom up. A module imports from its own room and from lower layers, never from
# a room of its own layer or above; lazy imports count.
LAYERS = (
    ("rows",),
    ("names", "defaults"),
    ("runtime",),
    ("sde",),
    ("prediction", "exact"),
    ("solvers",),
    ("networks",),
    ("config",),
    ("data", "metrics"),
    ("restoration",),
    ("evaluation",),
    ("training",),
    ("figures",),
    ("study",),
    ("reproduce", "app", "scheduler", "integrations"),
    ("commands",),
)
HEIGHT = {room: height for height, rooms in enumerate(LAYERS) for room in rooms}

# Imports that go up: none are allowed.
VIOLATIONS: set[tuple[str, str]] = set()


def imported(path: Path) -> set[str]:
    """The modules that a file imports anywhere, relative ones resolved."""
    package = path.relative_to(ROOT).parent.parts
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            # `from .. import session` names a module, `from ..sde import Point` a part of one.
            parts = [alias.name for alias in node.names if alias.name != "__version__"]
            names |= {f"{module}.{part}" for part in parts} if module == "codes" else {module}
    return names


def room(module: str) -> str:
    return module.split(".")[1]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_package_imports_itself_relatively_and_edits_no_path(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and not node.level:
            assert node.module.split(".")[0] not in ("codes", "scripts", "tests")
        if isinstance(node, ast.Import):
            assert not any(alias.name.split(".")[0] in ("codes", "scripts", "tests") for alias in node.names)
    assert "sys.path" not in path.read_text()


def test_every_room_has_its_layer():
    found = {path.relative_to(ROOT / "codes").parts[0].removesuffix(".py") for path in SOURCES} - {"__init__"}
    assert found == set(HEIGHT)


def test_architecture_lists_the_layers_in_their_order():
    text = (ROOT / "docs" / "architecture.md").read_text().split("```")[1]
    shown = re.findall(r"^(?:  )?(\w+(?:, ?\w+)*),?  ", text, re.MULTILINE)
    names = [name for line in shown for name in line.split(", ")]
    assert set(names) == set(HEIGHT)
    heights = [HEIGHT[name] for name in names]
    assert heights == sorted(heights, reverse=True)


def test_imports_go_down():
    upward = set()
    for path in SOURCES:
        if path == ROOT / "codes" / "__init__.py":
            continue  # the public names, imported on first use
        own = path.relative_to(ROOT / "codes").parts[0].removesuffix(".py")
        for module in imported(path):
            if module.startswith("codes.") and room(module) != own and HEIGHT[room(module)] >= HEIGHT[own]:
                upward.add((own, room(module)))
    assert upward == VIOLATIONS


def test_solvers_know_nothing_of_images_networks_or_options_files():
    for path in (ROOT / "codes" / "solvers").glob("*.py"):
        for name in imported(path):
            assert name.split(".")[0] not in ("yaml", "cv2", "torchvision", "lpips", "open_clip"), (path, name)


def test_torchvision_and_what_needs_it_import():
    code = (
        "from codes.runtime.torchvision_compat import ensure_torchvision; ensure_torchvision();"
        "import torchvision, lpips, open_clip; print(torchvision.transforms.Resize(4))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("Resize(size=4")


def test_no_test_file_imports_from_another():
    """What several share is in conftest.py or in a module of helpers."""
    for path in (ROOT / "tests").glob("*.py"):
        for name in imported(path):
            assert not name.startswith("tests.test_"), (path.name, name)


def long_records(path: Path) -> list[str]:
    """The dataclasses of a file with more than four fields that can be built by position."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            decorators = [ast.unparse(each) for each in node.decorator_list]
            fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
            given = [each for each in fields if each.value is None or "init=False" not in ast.unparse(each.value)]
            record = next((text for text in decorators if text.startswith("dataclass")), None)
            by_name = any(ast.unparse(each.annotation) == "KW_ONLY" for each in fields) or "kw_only" in str(record)
            if record is not None and len(given) > 4 and not by_name:
                found.append(node.name)
    return found


def test_records_of_many_fields_are_built_by_name():
    files = [*SOURCES, *sorted((ROOT / "scripts").rglob("*.py"))]
    assert {str(path): names for path in files if (names := long_records(path))} == {}
