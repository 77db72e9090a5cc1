"""A metric, a degradation and a figure are each one function and one row: added to a copy of the package, they are
available in Python, in option files, in test.py, in the training and in the figures command."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from codes.data.images import read_image, to_uint8

from .evaluation import write_images, write_options, write_weights

ROOT = Path(__file__).parent.parent

METRIC = """
import numpy as np


def largest(restored, clean):
    return float(np.abs(restored.astype(int) - clean).max())
"""
METRIC_ROW = """
        Metric(name="largest", label="Largest", function="metrics.largest:largest", lower_is_better=True, digits=1),
"""
DEGRADATION = """
import numpy as np


def striped(image, rng, *, level=None):
    result = image.copy()
    result[rng.integers(4) :: 4] = 0.5 if level is None else level
    return result
"""
DEGRADATION_ROW = """
        Degradation(name="striped", title="grey stripes", function="data.degradations.striped:striped"),
"""
FIGURE = """
from dataclasses import dataclass

from .style import canvas, save


@dataclass(frozen=True)
class Bar:
    task: str
    value: float


def collect(cases):
    return ([Bar(task, float(case.lq.mean())) for task, case in cases.items()],)


def draw(bars, stem):
    with canvas(3, 2) as figure:
        axis = figure.subplots()
        axis.bar([bar.task for bar in bars], [bar.value for bar in bars])
        return save(figure, stem)
"""
FIGURE_ROW = """
        Figure(
            name="bars",
            title="Mean values",
            caption="The mean of each degraded image.",
            draw=bars.draw,
            stored=(("bars", bars.Bar),),
            collect="figures.bars:collect",
            tasks=("rainy",),
        ),
"""


def add_row(path: Path, table: str, row: str) -> None:
    """Put a row at the end of a table."""
    before, start, rest = path.read_text().partition(f"{table} = {{\n    row.name: row\n    for row in (\n")
    rows, end, after = rest.partition("\n    )\n}\n")
    assert start and end
    path.write_text(before + start + rows + row.rstrip() + end + after)


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """The package with a new metric, degradation and figure, and a small evaluation."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "codes", folder / "codes", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "options", folder / "options")
    shutil.copy(ROOT / "test.py", folder)
    codes = folder / "codes"
    (codes / "metrics" / "largest.py").write_text(METRIC)
    (codes / "data" / "degradations" / "striped.py").write_text(DEGRADATION)
    (codes / "figures" / "bars.py").write_text(FIGURE)
    add_row(codes / "rows.py", "METRICS", METRIC_ROW)
    add_row(codes / "rows.py", "DEGRADATIONS", DEGRADATION_ROW)
    figures = codes / "figures" / "__init__.py"
    figures.write_text(figures.read_text().replace("from . import comparison", "from . import bars, comparison"))
    add_row(figures, "FIGURES", FIGURE_ROW)
    write_weights(folder / "tiny.safetensors")
    write_images(folder / "data", ("rainy",), images=2)
    return folder


def python(copy: Path, *arguments: str) -> str:
    """What a Python process prints that uses the copy."""
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    command = [sys.executable, *arguments]
    result = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def options_of(copy: Path, name: str, **changes: object) -> Path:
    """Clean images, degraded by the new degradation and scored by the new metric."""
    clean = {"mode": "GT", "dataroot_GT": str(copy / "data" / "rainy" / "GT"), "degradation": ["striped", "noisy"]}
    sampler = {"sde": {"algorithm": "mrsampler-pc"}, "sampler": {"num_sample_steps": 2}}
    given = {"datasets": {"val": clean}, "metrics": {"names": ["psnr", "largest"]}, **sampler, **changes}
    return write_options(copy, name, **given)


def test_python_knows_the_new_rows(copy):
    code = """
import json, numpy as np
from codes.data.degradations import degrade
from codes.data.varied import KINDS, generator_of, varied_pair
from codes.metrics import Scorer
from codes.names import TASKS
image = np.full((32, 32, 3), 0.25, np.float32)
striped = degrade("striped", image, 0, level=0.75)
shares = varied_pair("striped", image, np.random.default_rng(0))[2]
pixels = [(255 * x).astype(np.uint8) for x in (image, striped)]
print(json.dumps([
    float((striped == 0.75).mean()), Scorer(("largest",))(*pixels), "striped" in TASKS, len(KINDS), float(shares.sum()),
]))
"""
    assert json.loads(python(copy, "-c", code)) == [0.25, {"largest": 128.0}, False, 11, 0.0]


def test_option_files_and_their_reference_know_them(copy):
    path = options_of(copy, "options")
    code = f"""
from codes.config import OptionsError, load_options
from pathlib import Path
options = load_options(Path({str(path)!r}))
print(options.metrics.names, options.degradations_of("val"))
try:
    load_options(Path({str(path)!r}), ["metrics.names=[largst]"])
except OptionsError as error:
    print(error)
"""
    printed = python(copy, "-c", code)
    assert "('psnr', 'largest') ('striped', 'noisy')" in printed
    assert "did you mean 'largest'?" in printed
    reference = python(copy, "-m", "codes.config")
    assert "`largest`" in reference and "`striped`" in reference


def test_program_evaluates_them(copy):
    path = options_of(copy, "run")
    printed = python(copy, "test.py", "-opt", str(path))
    assert "Largest" in printed and "striped" in printed
    rows = json.loads((copy / "results" / "run" / "summary.json").read_text())["rows"]
    scores = {(row["task"], row["solver"]): row["metrics"] for row in rows}
    name = next(solver for task, solver in scores if task == "striped" and solver != "(input)")
    errors = []
    for clean in sorted((copy / "data" / "rainy" / "GT").iterdir()):
        restored = read_image(copy / "results" / "run" / "striped" / name / clean.name)
        errors.append(np.abs(to_uint8(restored).astype(int) - to_uint8(read_image(clean))).max())
    assert scores["striped", name]["largest"] == pytest.approx(np.mean(errors))


def test_training_draws_the_new_degradation(copy):
    clean = {"mode": "GT", "dataroot_GT": str(copy / "data" / "rainy" / "GT"), "patch_size": 32, "batch_size": 4}
    train = {**clean, "degradation": ["striped", "noisy"], "n_workers": 0}
    paths = [
        options_of(copy, f"train-{varied}", datasets={"train": {**train, "varied": varied}, "val": clean | {
            "degradation": "striped"}}, train={"task_weights": {"striped": 3}})
        for varied in (False, True)
    ]  # fmt: skip
    code = f"""
from pathlib import Path
from codes.config import load_options
from codes.training.data import TrainingSet
from codes.training.sets import training_plan
for path in {[str(path) for path in paths]!r}:
    plan = training_plan(load_options(Path(path), kind="train"))
    samples = [TrainingSet(plan)[n] for n in range(8)]
    stripes = [s for s in samples if s.name.startswith("striped/")]
    rows = [int((s.lq == 0.5).all(dim=(0, 2)).sum()) for s in stripes]
    print([task.name for task in plan.tasks], plan.weights, len(stripes) > 0, set(rows) == {{8}})
"""
    expected = "['striped', 'noisy'] (3.0, 1.0) True True"
    assert python(copy, "-c", code).splitlines() == [expected, expected]


def test_figures_command_computes_and_draws_the_new_figure(copy):
    path = write_options(copy, "figure", sde={}, sampler={})
    out = copy / "figures-out"
    arguments = ["--table", "bars", "-opt", str(path), "--results", str(out), "--model", "daclip", "--fid", "none"]
    printed = python(copy, "-c", f"from codes.commands.reproduce import main; raise SystemExit(main({arguments!r}))")
    assert "report: " in printed
    assert (out / "figure-data" / "bars.npz").is_file() and (out / "figures" / "bars.svg").is_file()
    report = (out / "REPORT.md").read_text()
    assert "![bars](figures/bars.png)" in report and "Mean values. The mean of each degraded image." in report
