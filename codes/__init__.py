"""MR Sampler: fast samplers for mean-reverting diffusion."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .sde import MeanRevertingSDE
    from .solvers import SOLVERS, NonFiniteError, Plan, SampleOutput, Solver, StepInfo, make_plan, sample

__all__ = [
    "SOLVERS",
    "MeanRevertingSDE",
    "NonFiniteError",
    "Plan",
    "SampleOutput",
    "Solver",
    "StepInfo",
    "make_plan",
    "sample",
]


def __getattr__(name: str) -> Any:
    """Import on first use: torch takes seconds, and a mistake in an option file should be told at once."""
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(".sde" if name == "MeanRevertingSDE" else ".solvers", __name__), name)
