"""Posterior sampling: IR-SDE's optimal reverse step, with correct strides."""

import math
from itertools import pairwise

from ..sde import MeanRevertingSDE
from .grids import make_grid
from .options import Solver
from .plan import Plan, Row, Step


def posterior(sde: MeanRevertingSDE, solver: Solver) -> Plan:
    """Sample x_t from q(x_t | x_s, x0) with x0 replaced by the data prediction: Eq. (19).

    With the alphas of the points s and t themselves this IS MR Sampler's SDE-d-1, coefficient for coefficient; the
    paper's "MR Sampler-1" and "posterior" rows differ only because the published posterior sampler moves from one
    strided time to the next with the coefficients of a single step of the full grid. `compat: official` does that.

    Differs from Eq. (19) as printed: the variance is multiplied by sigma_inf^2, without which it is not the posterior.
    """
    points = make_grid(sde, solver, tau=1.0)
    steps = []
    for s, t in pairwise(points):
        # The state at s is that at t, scaled by r around mu, plus noise of this variance.
        between, r = sde.transition_variance(s, t), s.alpha / t.alpha
        a = (t.sigma / s.sigma) ** 2 * r
        c = between / s.sigma**2 * t.alpha
        steps.append(Step(s, Row(a=a, b=1 - a - c, c=(c,), d=t.sigma / s.sigma * math.sqrt(between))))
    return Plan(
        sde=sde,
        steps=tuple(steps),
        end=points[-1],
        parameterization="data",
        start_sigma=sde.start_sigma(points[0]),
        clamp=solver.clamp_range,
        threshold=solver.threshold,
    )
