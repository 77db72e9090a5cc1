"""Solvers for mean-reverting diffusion: a solver makes a plan, `sample` runs it."""

from .options import Solver
from .plan import Plan
from .registry import OFFICIAL, SOLVERS, make_plan
from .sample import NonFiniteError, SampleOutput, StepInfo, sample

__all__ = [
    "OFFICIAL",
    "SOLVERS",
    "NonFiniteError",
    "Plan",
    "SampleOutput",
    "Solver",
    "StepInfo",
    "make_plan",
    "sample",
]
