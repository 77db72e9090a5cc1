"""Euler-Maruyama for the reverse SDE and Euler for the probability-flow ODE, with correct strides."""

import math
from itertools import pairwise

from ..sde import MeanRevertingSDE, Point
from .grids import make_grid
from .options import Solver
from .plan import Plan, Row, Step


def euler_row(sde: MeanRevertingSDE, s: Point, t: Point, tau: float) -> Row:
    """x_t = x_s - [(mu - x_s) D + (1 + tau^2) V eps / sigma_s] + tau sqrt(2 V) z.

    D and 2 V are the integrals of theta and of g^2 over the stride. With mean reversion V = sigma_inf^2 D, and one step
    of the full grid equals the published Euler step; without it D = 0.
    """
    D, V = sde.euler_terms(s, t)
    return Row(a=1 + D, b=-D, c=(-(1 + tau**2) * V / s.sigma,), d=tau * math.sqrt(2 * V))


def _euler(sde: MeanRevertingSDE, solver: Solver, tau: float) -> Plan:
    points = make_grid(sde, solver, tau=tau)
    steps = tuple(Step(s, euler_row(sde, s, t, tau)) for s, t in pairwise(points))
    return Plan(sde=sde, steps=steps, end=points[-1], parameterization="noise", start_sigma=sde.start_sigma(points[0]))


def euler_sde(sde: MeanRevertingSDE, solver: Solver) -> Plan:
    """Euler-Maruyama on the reverse SDE, Eq. (8): the first sampler of IR-SDE."""
    return _euler(sde, solver, 1.0)


def euler_ode(sde: MeanRevertingSDE, solver: Solver) -> Plan:
    """Euler on the probability-flow ODE, Eq. (16)."""
    return _euler(sde, solver, 0.0)
