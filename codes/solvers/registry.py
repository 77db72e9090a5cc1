"""The solvers by name. To add one: a file with a function `(sde, solver) -> plan`, and a line in SOLVERS."""

from collections.abc import Callable
from dataclasses import replace

from ..names import unknown
from ..sde import MeanRevertingSDE
from . import official
from .euler import euler_ode, euler_sde
from .heun import heun
from .mr_sampler import mrsampler, mrsampler_pc
from .options import Solver
from .plan import Plan
from .posterior import posterior

SOLVERS: dict[str, Callable[[MeanRevertingSDE, Solver], Plan]] = {
    "mrsampler": mrsampler,
    "mrsampler-pc": mrsampler_pc,
    "posterior": posterior,
    "sde": euler_sde,
    "ode": euler_ode,
    "heun": heun,
}

OFFICIAL: dict[str, Callable[[MeanRevertingSDE, Solver], Plan]] = {
    "mrsampler": official.mrsampler,
    "posterior": official.posterior,
    "sde": official.euler_sde,
    "ode": official.euler_ode,
    "heun": official.heun,
}

# Options that only some algorithms know. The published files carry order, solver_type and parameterization for all
# of them, so those are not here.
_MULTISTEP = ("predictor", "corrector", "gate", "last_order", "denoise_last")
_NOT_FOR: dict[str, tuple[str, ...]] = {
    "mrsampler": ("mode",),
    "mrsampler-pc": (),
    "posterior": (*_MULTISTEP, "tau", "mode"),
    "sde": (*_MULTISTEP, "tau", "mode", "clamp", "thresholding"),
    "ode": (*_MULTISTEP, "tau", "mode", "clamp", "thresholding"),
    "heun": (*_MULTISTEP, "mode", "clamp", "thresholding"),
}


def make_plan(sde: MeanRevertingSDE, solver: Solver) -> Plan:
    """The plan of a solver on a schedule."""
    for name in _NOT_FOR[solver.algorithm]:
        if getattr(solver, name) not in (None, False, "sample"):
            raise ValueError(f"option {name} has no meaning for algorithm {solver.algorithm!r}")
    if solver.compat == "official":
        if solver.algorithm not in OFFICIAL:
            raise unknown("algorithm with compat 'official'", solver.algorithm, OFFICIAL)
        for name in ("predictor", "corrector", "gate", "tau", "clamp", "last_order"):
            if getattr(solver, name) is not None:
                raise ValueError(f"option {name} is not part of the published code: drop it or compat 'official'")
        return OFFICIAL[solver.algorithm](replace(sde, interpolation="official"), solver)
    return SOLVERS[solver.algorithm](sde, solver)
