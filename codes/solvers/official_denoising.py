"""`compat: official` for the denoising process: what the published code of denoising-sde computes.

It takes every integer step from the time that fits the image's noise down to t = 1, with the coefficients of t at the
beginning of each. Its stochastic sampler adds more noise, and removes more, than the reverse of the forward process.
"""

import math

from ..names import OptionValueError
from ..sde import DenoisingSDE, MeanRevertingSDE
from .options import Solver
from .plan import Plan, Row, Step


def _plan(sde: MeanRevertingSDE, solver: Solver, stochastic: bool) -> Plan:
    assert isinstance(sde, DenoisingSDE)
    start = sde.published_start
    if solver.num_sample_steps != start:
        text = (
            f"the published denoising takes {start} evaluations for noise of {sde.noise_level:g}, "
            f"got {solver.num_sample_steps}; drop compat 'official' for another number"
        )
        raise OptionValueError("num_sample_steps", text)
    steps = []
    for t in range(start, 0, -1):
        point, g = sde.point(t), float(sde.g(t))
        share = math.exp(-2 * float(sde.Theta_table[t]) * sde.dt)
        c = -0.5 * g**2 * ((1 + share) if stochastic else share) * sde.dt / point.sigma
        steps.append(Step(point, Row(a=1.0, b=0.0, c=(c,), d=-g * math.sqrt(sde.dt) if stochastic else 0.0)))
    return Plan(sde=sde, steps=tuple(steps), end=sde.point(0), parameterization="noise", start_sigma=0.0)


def euler_ode(sde: MeanRevertingSDE, solver: Solver) -> Plan:
    """Euler on the probability-flow ODE: the published way to denoise."""
    return _plan(sde, solver, stochastic=False)


def euler_sde(sde: MeanRevertingSDE, solver: Solver) -> Plan:
    """Euler-Maruyama on a reverse SDE."""
    return _plan(sde, solver, stochastic=True)
