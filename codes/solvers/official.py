"""`compat: official`: what the published code computes, mistakes included.

The paper's tables were made with that code, so reproducing them takes its mistakes. Each function says what is wrong
in it; the functions of the same name in the other modules of this folder do it right. All of them read alpha, sigma
and lambda from separately interpolated tables (see `MeanRevertingSDE.interpolation`) and start from
mu + sigma_inf z whatever the first time is.
"""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np

from ..names import OptionValueError, check_choice
from ..sde import Array, MeanRevertingSDE, Point
from .mr_sampler import data_prediction_row
from .options import Solver
from .plan import Plan, Row, Step
from .registry import GRIDS

TIME_SCHEDULES = tuple(name for name, grid in GRIDS.items() if grid.published)


def published_times(sde: MeanRevertingSDE, solver: Solver) -> Array:
    """The published time grids, descending.

    `leading` starts far below T although the state is that of t = T, and is all zeros for nfe >= T; `trailing` and
    `karras-t` stop above t = 0, so the result keeps noise; with a binding lambda_min `trailing` has too few steps.
    """
    schedule = solver.time_schedule or "linspace"
    check_choice("time_schedule", schedule, TIME_SCHEDULES, where=" (compat: official)")
    T, N, rho = sde.T, solver.num_sample_steps, solver.rho
    index = np.arange(T + 1)
    lambdas = sde.lambda_(index)
    max_t = T - int(np.searchsorted(lambdas[::-1], solver.start_lambda))
    ramp = np.linspace(0, 1, N + 1)
    if schedule == "linspace":
        return np.linspace(0, max_t, N + 1)[::-1]
    if schedule == "leading":
        return np.asarray((np.arange(N + 1) * (max_t // (N + 1)))[::-1] + solver.timestep_offset, np.float64)
    if schedule == "trailing":
        return np.arange(max_t, 0, -T / (N + 1), dtype=np.float64)
    if schedule == "karras-t":
        return np.asarray((T ** (1 / rho) + ramp * (1 - T ** (1 / rho))) ** rho)
    if schedule == "karras-n":
        noise = sde.sigma(index) / sde.alpha(index)
        high, low = noise.max() ** (1 / rho), noise.min() ** (1 / rho)
        return np.asarray(np.interp((high + ramp * (low - high)) ** rho, noise, index))
    values = np.linspace(max(lambdas.min(), solver.start_lambda), lambdas.max(), N + 1)
    return np.asarray(np.interp(values, lambdas[::-1], index[::-1]))


def published_orders(steps: int, order: int) -> list[int]:
    """Order of each step. Below 10 steps the last but one is lowered where the last was meant: 1, 2, 2, 1, 2."""
    orders = []
    for i in range(1, steps + 1):
        if i < order:
            orders.append(i)
        elif i < steps and steps < 10:
            orders.append(min(order, steps - i))
        else:
            orders.append(order)
    return orders


def published_row(points: list[Point], i: int, order: int, solver: Solver) -> Row:
    """Step i (from points[i-1] to points[i]) as the published code writes it.

    With interpolated tables the weights of x, mu and the predictions no longer add up to 1. The third order lacks a
    factor 2 in its second difference and converges with order 2.
    """
    s, t = points[i - 1], points[i]
    h = t.lambda_ - s.lambda_
    # D1 = w . (m_0, m_1, m_2) estimates h m', D2 = v . (m_0, m_1, m_2) was meant to estimate h^2 m''.
    w: tuple[float, ...] = (0.0, 0.0, 0.0)
    v = w
    if order >= 2:
        r = (s.lambda_ - points[i - 2].lambda_) / h
        w = (1 / r, -1 / r, 0.0)
    if order == 3:
        r1 = (points[i - 2].lambda_ - points[i - 3].lambda_) / h
        v = tuple((first - second) / (r + r1) for first, second in zip((1 / r, -1 / r, 0.0), (0.0, 1 / r1, -1 / r1)))
        w = tuple(first + second * r for first, second in zip(w, v))

    def weights(p1: float, p2: float, p3: float) -> tuple[float, ...]:
        c = [p2 * w[j] + p3 * v[j] for j in range(3)]
        c[0] += p1
        return tuple(c[:order])

    sde = (solver.solver_type or "ode") == "sde"
    if sde and order == 3:
        raise OptionValueError("order", "compat 'official': order 3 exists for solver_type 'ode' only")
    if solver.parameterization == "data":
        ratio = t.sigma / s.sigma
        if sde:
            p1 = -math.expm1(-2 * h)
            c = weights(t.alpha * p1, t.alpha * (1 - p1 / (2 * h)), 0.0)
            b = 1 - t.alpha / s.alpha * math.exp(-2 * h) - t.alpha * p1
            return Row(a=ratio * math.exp(-h), b=b, c=c, d=t.sigma * math.sqrt(p1))
        p1 = math.expm1(-h)
        p2 = p1 / h + 1
        c = weights(-t.alpha * p1, t.alpha * p2, -t.alpha * (p2 / h - 0.5))
        return Row(a=ratio, b=1 - ratio + ratio * s.alpha - t.alpha, c=c)
    ratio = t.alpha / s.alpha
    p1 = math.expm1(h)
    p2 = p1 / h - 1
    if sde:
        c = weights(-2 * t.sigma * p1, -2 * t.sigma * p2, 0.0)
        return Row(a=ratio, b=1 - ratio, c=c, d=t.sigma * math.sqrt(math.expm1(2 * h)))
    c = weights(-t.sigma * p1, -t.sigma * p2, -t.sigma * (p2 / h - 0.5))
    return Row(a=ratio, b=1 - ratio, c=c)


def mrsampler(sde: MeanRevertingSDE, solver: Solver) -> Plan:
    """The published MRSampler: its grid, tables, order sequence and steps.

    `denoise_last` returns the noise prediction as the image when parameterization is 'noise'. Dynamic thresholding
    assumes images in [-1, 1] but gets [0, 1].
    """
    order = solver.order or solver.predictor or 2
    if solver.num_sample_steps < order:
        text = f"order {order} needs num_sample_steps of at least {order}, got {solver.num_sample_steps}"
        raise OptionValueError("order", text)
    if math.isinf(float(sde.lambda_(0))):
        text = "compat 'official': the published MRSampler does not run on convention 'irsde', drop compat"
        raise OptionValueError("compat", text)
    points = [sde.point(t) for t in published_times(sde, solver)]
    for s, t in pairwise(points):
        if not t.t < s.t:
            raise OptionValueError(
                "time_schedule",
                f"the published time_schedule {solver.time_schedule!r} with {solver.num_sample_steps} steps is not "
                f"monotone: t = {s.t:g} is followed by t = {t.t:g}",
            )
    last = len(points) - 1
    steps = [
        Step(points[i - 1], published_row(points, i, order_i, solver), order=order_i)
        for i, order_i in enumerate(published_orders(last, order), start=1)
    ]
    if solver.denoise_last:
        steps[-1] = replace(steps[-1], advance=data_prediction_row(points[-2], "data"))
    return Plan(
        sde=sde,
        steps=tuple(steps),
        end=points[-1],
        parameterization=solver.parameterization,
        start_sigma=sde.sigma_inf,
        threshold=solver.threshold,
    )


def _check_steps(sde: MeanRevertingSDE, solver: Solver) -> None:
    if solver.num_sample_steps > sde.T:
        text = f"num_sample_steps is at most T = {sde.T} with compat 'official', got {solver.num_sample_steps}"
        raise OptionValueError("num_sample_steps", text)


def _strided_times(sde: MeanRevertingSDE, solver: Solver) -> list[int]:
    _check_steps(sde, solver)
    return [int(t) for t in np.linspace(1, sde.T, solver.num_sample_steps)][::-1]


def posterior(sde: MeanRevertingSDE, solver: Solver) -> Plan:
    """Strided times, but every step has the coefficients of a single step t -> t-1.

    Below T evaluations the noise is therefore never removed: with 50 of 100 half the way is missing. This, not
    posterior sampling, is what collapses in the paper's tables.
    """
    steps = []
    for t in _strided_times(sde, solver):
        A, B, C = (
            math.exp(-total * sde.dt) for total in (sde.theta_table[t], sde.Theta_table[t], sde.Theta_table[t - 1])
        )
        a = A * (1 - C**2) / (1 - B**2)
        c = C * (1 - A**2) / (1 - B**2)
        std = sde.sigma_inf * math.sqrt((1 - A**2) * (1 - C**2) / (1 - B**2))
        steps.append(Step(sde.point(t), Row(a=a, b=1 - a - c, c=(c,), d=std)))
    return Plan(sde=sde, steps=tuple(steps), end=sde.point(0), parameterization="data", start_sigma=sde.sigma_inf)


def _euler_row(sde: MeanRevertingSDE, t: int, tau: float) -> Row:
    drift = float(sde.theta_table[t]) * sde.dt
    g = float(sde.g(t))
    c = -(1 + tau**2) / 2 * g**2 / float(sde.sigma(t)) * sde.dt
    return Row(a=1 + drift, b=-drift, c=(c,), d=-tau * g * math.sqrt(sde.dt))


def euler_sde(sde: MeanRevertingSDE, solver: Solver) -> Plan:
    """Euler-Maruyama with the same mistake as `posterior`: strided times, single-step coefficients."""
    steps = tuple(Step(sde.point(t), _euler_row(sde, t, 1.0)) for t in _strided_times(sde, solver))
    return Plan(sde=sde, steps=steps, end=sde.point(0), parameterization="noise", start_sigma=sde.sigma_inf)


def euler_ode(sde: MeanRevertingSDE, solver: Solver) -> Plan:
    """Not strided at all: N evaluations start at t = N with the state of t = T."""
    _check_steps(sde, solver)
    times = range(solver.num_sample_steps, 0, -1)
    steps = tuple(Step(sde.point(t), _euler_row(sde, t, 0.0)) for t in times)
    return Plan(sde=sde, steps=steps, end=sde.point(0), parameterization="noise", start_sigma=sde.sigma_inf)


def heun(sde: MeanRevertingSDE, solver: Solver) -> Plan:
    """Heun with the diffusion coefficient g where the marginal std belongs (a wrong score even at N = T), a step length
    that counts list entries instead of time (right only for N = T), and a second, independent noise in the corrector.
    """
    N, dt = solver.num_sample_steps, sde.dt
    tau = 1.0 if solver.solver_type == "sde" else 0.0
    times = np.linspace(sde.T, 0, N + 1)
    theta = np.interp(times, np.arange(sde.T + 1), sde.theta_table)
    g = np.interp(times, np.arange(sde.T + 1), sde.g(np.arange(sde.T + 1)))
    k = (1 + tau**2) / 2

    def euler(j: int, step: float) -> Row:
        noise = tau * float(g[j]) * math.sqrt(step)
        drift = step * float(theta[j])
        return Row(a=1 + drift, b=-drift, c=(-step * k * float(g[j]),), d=noise)

    steps: list[Step] = []
    for j in range(0, N - 1, 2):
        first = euler(j, 2 * dt)
        half, half_next = dt * float(theta[j]), dt * float(theta[j + 2])
        # The Euler point, which the second drift depends on, written out in terms of the state before it.
        second = Row(
            a=1 + half + half_next * first.a,
            b=-half - half_next + half_next * first.b,
            c=(-dt * k * float(g[j + 2]), first.c[0] / 2 + half_next * first.c[0]),
            d=tau * float(g[j] + g[j + 2]) / 2 * math.sqrt(2 * dt),
            d_prev=half_next * first.d,
        )
        steps += [Step(sde.point(times[j]), first), Step(sde.point(times[j + 2]), None, second, order=2)]
    if N % 2:
        steps.append(Step(sde.point(times[N - 1]), euler(N - 1, dt)))
    return Plan(sde=sde, steps=tuple(steps), end=sde.point(0), parameterization="noise", start_sigma=sde.sigma_inf)
