"""A solver and a time grid are each one file and one row: added to a copy of the project, they are available in Python,
in option files, in test.py, in the diffusers scheduler and on the web page."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from codes.solvers import GRIDS, SOLVERS
from codes.solvers.options import OPTIONS
from codes.solvers.registry import resolve

from .evaluation import write_images, write_options, write_weights

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Tree:
    """A copy of the project to extend."""

    folder: Path

    def write(self, path: str, text: str) -> None:
        """Add a file."""
        assert not (self.folder / path).exists()
        (self.folder / path).write_text(text)

    def add_row(self, path: str, table: str, row: str) -> None:
        """Add one line at the beginning of a table that begins with the line `table`."""
        text = (self.folder / path).read_text()
        assert text.count(f"\n{table}\n") == 1, table
        (self.folder / path).write_text(text.replace(f"\n{table}\n", f"\n{table}\n    {row}\n"))

    def python(self, *arguments: str) -> str:
        """What a Python program that runs in the copy prints."""
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "OMP_NUM_THREADS": "1"}
        result = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, cwd=self.folder, env=environment
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout


@pytest.fixture
def tree(tmp_path):
    folder = tmp_path / "project"
    shutil.copytree(ROOT / "codes", folder / "codes", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "test.py", folder)
    return Tree(folder)


SOLVER_FILE = '''
"""Each step puts the data prediction in place of the state, as if there were no noise."""

from itertools import pairwise

from ..sde import MeanRevertingSDE
from .grids import make_grid
from .options import Solver
from .plan import Plan, Row, Step


def jump(sde: MeanRevertingSDE, solver: Solver) -> Plan:
    points = make_grid(sde, solver, tau=0.0)
    steps = tuple(Step(s, Row(a=0.0, b=1 - t.alpha, c=(t.alpha,))) for s, t in pairwise(points))
    start = sde.start_sigma(points[0])
    return Plan(sde=sde, steps=steps, end=points[-1], parameterization="data", start_sigma=start)
'''
SOLVER_ROW = (
    '"jump": Algorithm(title="jumps to the prediction", build="solvers.jump:jump", grid="squares", steps=3, '
    'refused=("tau",)),'
)
GRID_FILE = '''
"""Uniform in the square root of t."""


def squares(sde, start, nfe, solver, tau):
    return [start, *(sde.point(start.t * (1 - i / nfe) ** 2) for i in range(1, nfe))]
'''
GRID_ROW = '"squares": Grid(title="uniform in the square root of t", layout="solvers.squares:squares"),'

IN_PYTHON = """
import torch
from codes import MeanRevertingSDE, Solver, sample
from codes.names import OptionValueError

sde, mu = MeanRevertingSDE(), torch.full((2, 3, 8, 8), 0.5)

class Foreign(torch.nn.Module):  # a usual network: the time is a tensor with an entry for each image
    def forward(self, x, mu, t):
        assert t.shape == (2,) and t.dtype == x.dtype
        return mu + 0.25 + 0 * t.view(-1, 1, 1, 1)

out = sample(Foreign(), sde, mu, Solver("jump", 4), fit_target="data", generator=torch.Generator().manual_seed(0))
assert out.times == (100.0, 56.25, 25.0, 6.25), out.times
alpha = float(sde.alpha(0.0))
assert torch.allclose(out.sample, alpha * 0.75 + (1 - alpha) * mu)
try:
    Solver("jumps", tau=0.5)
except OptionValueError as error:
    assert error.option == "algorithm" and "did you mean 'jump'?" in str(error)
else:
    raise AssertionError("an unknown algorithm was accepted")
"""
IN_YAML = """
import sys
from pathlib import Path
from codes.config import OptionsError, build_sde, build_solvers, load_options, schema_markdown

options = load_options(Path(sys.argv[1]))
assert "torch" not in sys.modules
assert options.solvers() == [("jump-nfe3", {"algorithm": "jump", "num_sample_steps": 3})], options.solvers()
(planned,) = build_solvers(options, build_sde(options))
assert planned.plan.nfe == 3
text = schema_markdown()
assert "| `jump` | jumps to the prediction | 3 | `squares` | `tau` | no |" in text
assert "`squares` (`jump`)" in text and "| `squares` | uniform in the square root of t | no |" in text
changed = load_options(Path(sys.argv[1]), ["sampler.tau=0.5", "sampler.time_schedule=squares"])
assert changed.ignored == ["sampler.tau: ignored, jump does not use it"], changed.ignored
(planned,) = build_solvers(changed, build_sde(changed))
assert planned.solver.tau is None
try:
    changed = load_options(Path(sys.argv[1]), ["sampler.variants={x: {tau: 0.5, time_schedule: squares}}"])
    build_solvers(changed, build_sde(changed))
except OptionsError as error:
    assert str(error).endswith("sampler.variants.x.tau: option tau has no meaning for algorithm 'jump' (x-nfe3)"), error
else:
    raise AssertionError("a refused option was accepted")
"""
IN_SCHEDULER = """
import torch
from codes import MeanRevertingSDE, Solver, sample
from codes.scheduler import MRSamplerScheduler

mu = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))
network = lambda x, mu, t: torch.tanh(x - mu)
scheduler = MRSamplerScheduler.from_config(MRSamplerScheduler(algorithm="jump", time_schedule="squares").config)
scheduler.set_timesteps(4)
x = scheduler.start(mu, torch.Generator().manual_seed(0))
for t in scheduler.timesteps:
    x = scheduler.step(network(x, mu, t), t, x, mu).prev_sample
run = {"fit_target": "noise", "generator": torch.Generator().manual_seed(0)}
assert torch.equal(x, sample(network, MeanRevertingSDE(), mu, Solver("jump", 4), **run).sample)
"""
ON_THE_PAGE = """
from types import SimpleNamespace
from codes.app.page import build_page
from codes.app.uploads import Limits
from codes.solvers import Solver

restorer = SimpleNamespace(solver=lambda name="jump", nfe=4: Solver(name, nfe))
page = build_page(SimpleNamespace(restorer=restorer, limits=Limits(), examples=()), "a model")
(menu,) = [block for block in page.blocks.values() if getattr(block, "elem_id", "") == "solver"]
assert ("jump: jumps to the prediction", "jump") in menu.choices and menu.value == "jump", menu.choices
"""


def test_a_solver_and_a_grid_are_one_file_and_one_row_each(tree, tmp_path):
    tree.write("codes/solvers/jump.py", SOLVER_FILE)
    tree.add_row("codes/solvers/registry.py", "SOLVERS: dict[str, Algorithm] = {", SOLVER_ROW)
    tree.write("codes/solvers/squares.py", GRID_FILE)
    tree.add_row("codes/solvers/registry.py", "GRIDS: dict[str, Grid] = {", GRID_ROW)
    write_weights(tmp_path / "tiny.safetensors")
    write_images(tmp_path / "data", ("rainy",), images=1)
    file = write_options(tmp_path, sde={"algorithm": "jump"}, sampler={}, metrics={"names": ["psnr"]})
    assert "jump-nfe3" in tree.python("test.py", "-opt", str(file))
    assert len(list((tmp_path / "results" / "run" / "rainy" / "jump-nfe3").glob("*.png"))) == 1
    # In one process, which imports torch once.
    optional = {"diffusers": IN_SCHEDULER, "gradio": ON_THE_PAGE}
    parts = [IN_YAML, IN_PYTHON, *(code for package, code in optional.items() if find_spec(package) is not None)]
    tree.python("-c", "".join(parts), str(file))


@pytest.mark.parametrize("name", SOLVERS)
def test_rows_of_solvers_name_what_exists(name):
    row = SOLVERS[name]
    assert row.title and row.grid in GRIDS
    assert callable(resolve(row.build)) and (row.published is None or callable(resolve(row.published)))
    assert {*row.refused, *row.unused} <= set(OPTIONS) - {"algorithm", "num_sample_steps"}
    assert not set(row.refused) & set(row.unused)


@pytest.mark.parametrize("name", GRIDS)
def test_rows_of_grids_name_what_exists(name):
    assert GRIDS[name].title and callable(resolve(GRIDS[name].layout))


def test_a_row_may_hold_the_function_itself(monkeypatch):
    from codes import MeanRevertingSDE, Solver, make_plan
    from codes.solvers.euler import euler_ode
    from codes.solvers.grids import linspace
    from codes.solvers.registry import Algorithm, Grid

    monkeypatch.setitem(SOLVERS, "mine", Algorithm(title="mine", build=euler_ode, grid="even"))
    monkeypatch.setitem(GRIDS, "even", Grid(title="even", layout=linspace))
    ours, plain = (make_plan(MeanRevertingSDE(), Solver(name, 5)) for name in ("mine", "ode"))
    assert ours == plain
