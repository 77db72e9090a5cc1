"""The recipes of docs/CONTRIBUTING.md, followed to the letter: what they say goes where they say, and then works."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .documents import ROOT
from .evaluation import write_images, write_options

RECIPES = ("A solver", "A grid", "A network", "A metric", "A degradation", "A figure")
# Where a row goes into each table: after the line that the rows begin with.
TABLES = {
    "SOLVERS": ("codes/solvers/registry.py", "SOLVERS: dict[str, Algorithm] = {\n"),
    "GRIDS": ("codes/solvers/registry.py", "GRIDS: dict[str, Grid] = {\n"),
    "ROWS": ("codes/networks/rows.py", "ROWS = (\n"),
    "METRICS": ("codes/rows.py", "METRICS = {\n    row.name: row\n    for row in (\n"),
    "DEGRADATIONS": ("codes/rows.py", "DEGRADATIONS = {\n    row.name: row\n    for row in (\n"),
    "FIGURES": ("codes/figures/__init__.py", "FIGURES = {\n    row.name: row\n    for row in (\n"),
}


def section(title: str) -> str:
    text = (ROOT / "docs" / "CONTRIBUTING.md").read_text()
    (found,) = re.findall(rf"^### {title}\n(.*?)(?=^##)", text, re.MULTILINE | re.DOTALL)
    return found


def follow(title: str, folder: Path) -> None:
    """Write the new file and the row of a recipe."""
    text = section(title)
    file, row = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    new, *said = re.findall(r"`(codes/[\w/]+\.py)`", text)
    assert not (folder / new).exists()
    (folder / new).write_text(file)
    (table,) = re.findall(r"row (?:to|in) `([A-Z]+)`", text)
    place, start = TABLES[table]
    assert said[:1] == [place] or "of the same registry" in text
    path = folder / place
    before = path.read_text()
    assert before.count(f"\n{start}") == 1
    path.write_text(before.replace(f"\n{start}", f"\n{start}{row.rstrip().removesuffix(',')},\n"))
    if "which imports `bars`" in text:
        path.write_text(path.read_text().replace("from . import comparison", "from . import bars, comparison"))


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the project in which every recipe was followed."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "codes", folder / "codes", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "test.py", folder)
    for title in RECIPES:
        follow(title, folder)
    return folder


def python(folder: Path, *arguments: object) -> str:
    variables = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    line = [sys.executable, *map(str, arguments)]
    done = subprocess.run(line, cwd=folder, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_are_no_other_recipes():
    text = (ROOT / "docs" / "CONTRIBUTING.md").read_text().partition("## Recipes")[2]
    assert tuple(re.findall(r"^### (.*)", text, re.MULTILINE)) == RECIPES


def test_one_evaluation_uses_all_that_was_added(project):
    network = (
        "import torch\n"
        "from codes.networks import architecture, build\n"
        "from codes.networks.checkpoints import Metadata, SDESettings, save_checkpoint\n"
        "torch.manual_seed(0)\n"
        "choice = architecture('Dummy', {'width': 4})\n"
        "save_checkpoint('dummy.safetensors', build(choice).state_dict(), Metadata(choice, 'data', SDESettings(50)))\n"
    )
    python(project, "-c", network)
    write_images(project / "data", ("rainy",), images=2)
    clean = {"mode": "GT", "dataroot_GT": str(project / "data" / "rainy" / "GT"), "degradation": "striped"}
    write_options(
        project,
        network_G={"which_model_G": "Dummy", "setting": {"width": 4}},
        path={"pretrain_model_G": "dummy.safetensors"},
        datasets={"val": clean},
        sde={"algorithm": ["jump", "posterior"]},
        sampler={"num_sample_steps": 3, "time_schedule": "squares"},
        metrics={"names": ["psnr", "largest"]},
    )
    python(project, "test.py", "-opt", "run.yml")
    table = (project / "results" / "run" / "summary.md").read_text()
    assert "| Largest ↓ |" in table and "| jump-nfe3 | 3 | 2 |" in table
    degraded, *restored = json.loads((project / "results" / "run" / "summary.json").read_text())["rows"]
    # Grey lines, level 0.5, are at most 128 of 255 levels away from black and white.
    assert degraded["metrics"]["largest"] == 128
    assert [row["solver"] for row in restored] == ["jump-nfe3", "posterior-nfe3"]


def test_the_reference_and_the_page_offer_them(project):
    reference = python(project, "-m", "codes.config")
    for name in ("jump", "squares", "Dummy", "largest", "striped"):
        assert f"`{name}`" in reference
    page = (
        "from types import SimpleNamespace\n"
        "from codes import load_restorer\n"
        "from codes.app.page import build_page\n"
        "from codes.app.uploads import Limits\n"
        "restorer = load_restorer('dummy.safetensors', device='cpu')\n"
        "page = build_page(SimpleNamespace(restorer=restorer, limits=Limits(), examples=()), 'a model')\n"
        "menus = [choice for block in page.blocks.values() for choice in getattr(block, 'choices', None) or ()]\n"
        "print(sorted({value for _, value in menus} & {'jump', 'squares'}))\n"
    )
    assert python(project, "-c", page) == "['jump', 'squares']\n"
