"""Solvers for mean-reverting diffusion: a solver makes a plan, `sample` runs it.

`Solver` and the rows of SOLVERS and GRIDS need no torch; the other names are imported on first use.
"""

from typing import TYPE_CHECKING, Any

from .options import Solver
from .registry import GRIDS, SOLVERS, make_plan

if TYPE_CHECKING:
    from .plan import Plan, PlannedSolver
    from .sampling import NonFiniteError, SampleOutput, StepInfo, sample

__all__ = [
    "GRIDS",
    "SOLVERS",
    "NonFiniteError",
    "Plan",
    "PlannedSolver",
    "SampleOutput",
    "Solver",
    "StepInfo",
    "make_plan",
    "sample",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".plan" if name in ("Plan", "PlannedSolver") else ".sampling", __name__), name)
