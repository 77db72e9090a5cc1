"""MR Sampler: fast samplers for mean-reverting diffusion."""

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
