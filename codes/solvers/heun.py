"""Heun's method, two evaluations per step, with the right score and correct strides."""

from ..sde import MeanRevertingSDE, Point
from .euler import euler_row
from .grids import make_grid
from .options import Solver
from .plan import Plan, Row, Step


def corrected_row(sde: MeanRevertingSDE, s: Point, t: Point, tau: float) -> Row:
    """The trapezoidal rule from s to t once the prediction at the Euler point is known.

    x_t = x_s - [f(x_s, eps_s) + f(x_e, eps_e)] D/2 + noise, with x_e, the Euler point, written out in x_s, mu, eps_s
    and the noise. The noise is the same in both stages: it is additive, so averaging two draws would lose variance.
    """
    first = euler_row(sde, s, t, tau)
    half = -first.b / 2  # D/2
    return Row(
        a=1 + half + half * first.a,
        b=-2 * half + half * first.b,
        c=(first.c[0] / 2 * s.sigma / t.sigma, first.c[0] / 2 + half * first.c[0]),
        d_prev=first.d + half * first.d,
    )


def heun(sde: MeanRevertingSDE, solver: Solver) -> Plan:
    """Heun on the probability-flow ODE (default) or, with solver_type 'sde', the stochastic Heun method.

    N evaluations make N // 2 steps over every other point of an N-step grid; an odd N ends with an Euler step. So does
    a schedule with sigma_0 = 0, with two of them, because the score does not exist there. The drift is stiff near
    t = 0: a baseline, not a recommendation.
    """
    tau = solver.tau if solver.tau is not None else solver.tau_of_solver_type or 0.0
    points = make_grid(sde, solver, tau=tau)
    last = len(points) - 1
    steps = []
    i = 0
    while i < last:
        s = points[i]
        if i + 2 <= last and points[i + 2].sigma > 0:
            t = points[i + 2]
            steps += [
                Step(s, euler_row(sde, s, t, tau)),
                Step(t, None, corrected_row(sde, s, t, tau), order=2),
            ]
            i += 2
        else:
            steps.append(Step(s, euler_row(sde, s, points[i + 1], tau)))
            i += 1
    return Plan(
        sde=sde, steps=tuple(steps), end=points[-1], parameterization="noise", start_sigma=sde.start_sigma(points[0])
    )
