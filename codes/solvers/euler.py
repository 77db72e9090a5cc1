"""Euler-Maruyama for the reverse SDE and Euler for the probability-flow ODE, with correct strides."""

import math
from itertools import pairwise

from ..sde import MeanRevertingSDE, Point
from .grids import make_grid
from .options import Solver
from .plan import Plan, Row, Step, start_sigma


def euler_row(sde: MeanRevertingSDE, s: Point, t: Point, tau: float) -> Row:
    """x_t = x_s - [(mu - x_s) + (1 + tau^2) sigma_inf^2 eps / sigma_s] D + tau sigma_inf sqrt(2 D) z.

    D = log(alpha_t / alpha_s) is the integral of theta over the stride, so that one step of the full grid equals the
    published Euler step.
    """
    D = math.log(t.alpha) - math.log(s.alpha)
    c = -(1 + tau**2) * sde.sigma_inf**2 * D / s.sigma
    return Row(1 + D, -D, (c,), tau * sde.sigma_inf * math.sqrt(2 * D))


def _euler(sde: MeanRevertingSDE, solver: Solver, tau: float) -> Plan:
    points = make_grid(sde, solver, tau=tau)
    steps = tuple(Step(s, euler_row(sde, s, t, tau)) for s, t in pairwise(points))
    return Plan(sde, steps, points[-1], "noise", start_sigma(sde, points[0]))


def euler_sde(sde: MeanRevertingSDE, solver: Solver) -> Plan:
    """Euler-Maruyama on the reverse SDE, Eq. (8): the first sampler of IR-SDE."""
    return _euler(sde, solver, 1.0)


def euler_ode(sde: MeanRevertingSDE, solver: Solver) -> Plan:
    """Euler on the probability-flow ODE, Eq. (16)."""
    return _euler(sde, solver, 0.0)
