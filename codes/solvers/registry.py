"""The solvers and time grids by name: one row holds everything the rest of the program asks of one.

To add a solver: a file with a function `(sde, solver) -> plan`, and a row in SOLVERS. To add a grid: a function
`(sde, start, nfe, solver, tau) -> points` in grids.py, and a row in GRIDS. Option files, their reference, `Solver`, the
diffusers scheduler and the web page read these rows.

Importing this module imports no torch: a row names its functions as 'module:function' below the package, which are
imported on first use, so that option files are checked at once. A row may also hold the function itself.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..defaults import NFE
from ..names import OptionValueError, unknown
from ..rows import load

if TYPE_CHECKING:
    from ..sde import MeanRevertingSDE, Point
    from .options import Solver
    from .plan import Plan

    Build = Callable[[MeanRevertingSDE, Solver], Plan]
    Layout = Callable[[MeanRevertingSDE, Point, int, Solver, float], list[Point]]


@dataclass(frozen=True, kw_only=True)
class Algorithm:
    """A solver.

    title       for people: on the web page and in the reference of options
    build       (sde, solver) -> plan
    published   the same as the published code computes it (`compat: official`), where that has the algorithm
    published_denoising   the same for the denoising process
    flaw        what distinguishes that version from ours in titles
    grid        time_schedule where none is given
    steps       evaluations where none are given; None stands for T
    refused     options without meaning here: setting one is an error
    unused      options without effect here, which the published files set for every algorithm: they are dropped
    """

    title: str
    build: "str | Build"
    published: "str | Build | None" = None
    published_denoising: "str | Build | None" = None
    flaw: str = "published code"
    grid: str = "linspace"
    steps: int | None = NFE
    refused: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A time grid.

    title       for people: in the reference of options
    layout      (sde, start, nfe, solver, tau) -> the first `nfe` points, beginning with `start`; t = 0 follows them
    published   whether the published code has a grid of this name (`compat: official`)
    sizes       the only numbers of evaluations that the grid exists for; () stands for any
    """

    title: str
    layout: "str | Layout"
    published: bool = False
    sizes: tuple[int, ...] = ()


_MULTISTEP = ("predictor", "corrector", "gate", "last_order", "denoise_last")
_NOISE_ONLY = ("clamp", "thresholding")  # act on the data prediction, which these schemes do not form

SOLVERS: dict[str, Algorithm] = {
    "mrsampler": Algorithm(
        title="MR Sampler",
        build="solvers.mr_sampler:mrsampler",
        published="solvers.official:mrsampler",
        grid="linear-lambda",
        refused=("mode",),
    ),
    "mrsampler-pc": Algorithm(
        title="predictor-corrector",
        build="solvers.mr_sampler:mrsampler_pc",
        grid="auto",
    ),
    "posterior": Algorithm(
        title="posterior sampling",
        build="solvers.posterior:posterior",
        published="solvers.official:posterior",
        flaw="published stride",
        steps=None,
        refused=(*_MULTISTEP, "tau", "mode"),
        unused=("order", "solver_type", "parameterization"),
    ),
    "sde": Algorithm(
        title="Euler, reverse SDE",
        build="solvers.euler:euler_sde",
        published="solvers.official:euler_sde",
        published_denoising="solvers.official_denoising:euler_sde",
        flaw="published stride",
        steps=None,
        refused=(*_MULTISTEP, "tau", "mode", *_NOISE_ONLY),
        unused=("order", "solver_type", "parameterization"),
    ),
    "ode": Algorithm(
        title="Euler, probability flow",
        build="solvers.euler:euler_ode",
        published="solvers.official:euler_ode",
        published_denoising="solvers.official_denoising:euler_ode",
        steps=None,
        refused=(*_MULTISTEP, "tau", "mode", *_NOISE_ONLY),
        unused=("order", "solver_type", "parameterization"),
    ),
    "heun": Algorithm(
        title="Heun, two evaluations a step",
        build="solvers.heun:heun",
        published="solvers.official:heun",
        steps=None,
        refused=(*_MULTISTEP, "mode", *_NOISE_ONLY),
        unused=("order", "parameterization"),
    ),
}

GRIDS: dict[str, Grid] = {
    "auto": Grid(title="`optimised` for 2 to 4 evaluations, `sinh` from 5", layout="solvers.grids:auto"),
    "linear-lambda": Grid(
        title="uniform in lambda, the paper's choice", layout="solvers.grids:linear_lambda", published=True
    ),
    "linspace": Grid(title="uniform in t", layout="solvers.grids:linspace", published=True),
    "late": Grid(title="uniform in the last fifth of the time, then to t = 0", layout="solvers.grids:late"),
    "leading": Grid(
        title="whole strides counted from the end, the last evaluation at `timestep_offset`",
        layout="solvers.grids:leading",
        published=True,
    ),
    "trailing": Grid(title="whole strides counted from the start", layout="solvers.grids:trailing", published=True),
    "karras-n": Grid(
        title="uniform in (sigma / alpha)^(1 / `rho`), after Karras et al.",
        layout="solvers.grids:karras_n",
        published=True,
    ),
    "karras-t": Grid(title="uniform in t^(1 / `rho`)", layout="solvers.grids:karras_t", published=True),
    "sinh": Grid(
        title="dense in the middle of the lambda range, no evaluation below t = 1",
        layout="solvers.grids:sinh",
    ),
    "optimised": Grid(
        title="found by minimising the error of a model problem; for 2 to 4 evaluations",
        layout="solvers.grids:optimised",
        sizes=(2, 3, 4),
    ),
}


def resolve(function: Any) -> Any:
    """The function of a row: itself, or what 'module:function' names."""
    return load(function) if isinstance(function, str) else function


def make_plan(sde: "MeanRevertingSDE", solver: "Solver") -> "Plan":
    """The plan of a solver on a schedule; raises OptionValueError for options that do not go together."""
    from .options import OPTIONS

    row = SOLVERS[solver.algorithm]
    for name in row.refused:
        value = getattr(solver, name)
        if value and value != OPTIONS[name].default:
            raise OptionValueError(name, f"option {name} has no meaning for algorithm {solver.algorithm!r}")
    if solver.compat is None:
        return _planned(row.build, sde, solver)
    kind = "published" if sde.reverts else "published_denoising"
    published: str | Build | None = getattr(row, kind)
    if published is None:
        names = [name for name, other in SOLVERS.items() if getattr(other, kind) is not None]
        where = " with compat 'official'" + ("" if sde.reverts else " for denoising")
        raise unknown("algorithm", solver.algorithm, names, where=where)
    for name, option in OPTIONS.items():
        if option.ours and getattr(solver, name) != option.default:
            raise OptionValueError(
                name, f"option {name} is not part of the published code: drop it or compat 'official'"
            )
    return _planned(published, replace(sde, interpolation="official"), solver)


def _planned(build: "str | Build", sde: "MeanRevertingSDE", solver: "Solver") -> "Plan":
    plan: Plan = resolve(build)(sde, solver)
    return plan
