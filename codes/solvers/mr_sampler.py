"""MR Sampler: the reverse SDE and its probability-flow ODE, solved semi-analytically.

The linear part of the reverse process is solved exactly; the network's prediction m is extrapolated as a polynomial
in lambda from its latest values and integrated exactly against the exponential that remains. With
h = lambda_t - lambda_s, stochasticity tau (0: ODE, 1: SDE) and k = 1 + tau^2, one step from s to t is

    x_t = a x_s + b mu + sum_j c_j m_j + d z,     sum_j c_j m_j = F * integral of the polynomial

                  data prediction (m = x0)                    noise prediction (m = eps)
    a             sigma_t/sigma_s exp(-tau^2 h)               alpha_t/alpha_s
    b             1 - a - sum_j c_j                           1 - a
    d             sigma_t sqrt(1 - exp(-2 tau^2 h))           tau sigma_t sqrt(exp(2h) - 1)
    F             alpha_t                                     -(1 + tau^2) sigma_t
    K_n           k int_0^h exp(-k(h-v)) v^n dv               int_0^h exp(h-v) v^n dv

Where each part of the paper (arXiv:2502.07856) is:

    Eq. (7), (8)              marginal, reverse SDE            codes/sde.py
    Eq. (30)-(33)             data, noise, velocity            codes/prediction.py: conversion_weights
    Eq. (11)-(14), Prop. 1    SDE, noise prediction            row(..., parameterization="noise", tau=1)
    Eq. (17)-(18), Prop. 2    ODE, noise prediction            row(..., parameterization="noise", tau=0)
    Eq. (23)-(25), Prop. 3    SDE, data prediction             row(..., parameterization="data", tau=1)
    Eq. (27)-(28), Prop. 4    ODE, data prediction             row(..., parameterization="data", tau=0)
    Eq. (19), App. A.2        posterior sampling               codes/solvers/posterior.py
    the integrals in them     phi functions                    data_integrals, noise_integrals
    App. C, SDE-n-1, SDE-n-2  Solver("mrsampler", parameterization="noise", solver_type="sde", order=1 | 2)
    App. C, ODE-n-1, ODE-n-2  Solver("mrsampler", parameterization="noise", solver_type="ode", order=1 | 2)
    App. C, SDE-d-1, SDE-d-2  Solver("mrsampler", parameterization="data", solver_type="sde", order=1 | 2)
    App. C, ODE-d-1, ODE-d-2  Solver("mrsampler", parameterization="data", solver_type="ode", order=1 | 2)

Beyond the paper: a true third order (the published third-order step lacks a factor 2 and is of second order), any tau
between 0 and 1, a corrector at no extra network call, and a gate against the amplification of the network's error.
'mrsampler-pc' is these with the defaults of `_pc_defaults`.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import replace

from ..names import OptionValueError
from ..sde import MeanRevertingSDE, Point
from .grids import make_grid
from .options import Solver
from .plan import Plan, Row, Step

log = logging.getLogger(__name__)

# Below this many evaluations the last step is of first order and little noise is added; both are neutral or harmful
# above it.
FEW_STEPS = 15


def data_integrals(h: float, k: float, n: int) -> list[float]:
    """K_0..K_n of data prediction: k int_0^h exp(-k(h-v)) v^j dv.

    Summed as h^j q e^-q sum_p q^p / (p! (j+p+1)) with q = kh: all terms are positive, so nothing cancels for any h.
    """
    q = k * h
    integrals = [-math.expm1(-q)]
    for j in range(1, n + 1):
        power, total, p = 1.0, 0.0, 0
        while power > 1e-17 * total:
            total += power / (j + p + 1)
            p += 1
            power *= q / p
        integrals.append(h**j * q * math.exp(-q) * total)
    return integrals


def noise_integrals(h: float, n: int) -> list[float]:
    """K_0..K_n of noise prediction: int_0^h exp(h-v) v^j dv = h^j sum_{p>=1} h^p j! / (j+p)!."""
    integrals = [math.expm1(h)]
    for j in range(1, n + 1):
        term, total, p = h / (j + 1), 0.0, 1
        while term > 1e-17 * total:
            total += term
            p += 1
            term *= h / (j + p)
        integrals.append(h**j * total)
    return integrals


def interpolation_weights(nodes: Sequence[float], moments: Sequence[float]) -> tuple[float, ...]:
    """Weights w_j with sum_j w_j p(v_j) = sum_n p_n K_n for every polynomial p of degree < len(nodes).

    The Lagrange polynomials of the nodes, multiplied out and paired with the moments K_n.
    """
    weights = []
    for j, node in enumerate(nodes):
        polynomial, scale = [1.0], 1.0
        for i, other in enumerate(nodes):
            if i != j:
                shifted = [0.0, *polynomial]
                polynomial = [up - other * low for up, low in zip(shifted, [*polynomial, 0.0])]
                scale *= node - other
        weights.append(sum(p * moment for p, moment in zip(polynomial, moments)) / scale)
    return tuple(weights)


def row(s: Point, t: Point, nodes: Sequence[float], *, parameterization: str, tau: float) -> Row:
    """The step from s to t with predictions at the lambdas `nodes` (in the order of the history, newest first).

    nodes = (lambda_s,) is first order, (lambda_s, lambda_before) second, and so on; with lambda_t in front it is a
    corrector. A step to sigma = 0 has no finite h: it returns the data prediction.
    """
    if math.isinf(t.lambda_):
        return data_prediction_row(s, parameterization)
    h = t.lambda_ - s.lambda_
    offsets = [node - s.lambda_ for node in nodes]
    if parameterization == "data":
        a = t.sigma / s.sigma * math.exp(-(tau**2) * h)
        d = t.sigma * math.sqrt(-math.expm1(-2 * tau**2 * h))
        moments = [t.alpha * K for K in data_integrals(h, 1 + tau**2, len(nodes) - 1)]
        c = interpolation_weights(offsets, moments)
        return Row(a=a, b=1 - a - sum(c), c=c, d=d)
    a = t.alpha / s.alpha
    d = tau * t.sigma * math.sqrt(math.expm1(2 * h))
    moments = [-(1 + tau**2) * t.sigma * K for K in noise_integrals(h, len(nodes) - 1)]
    return Row(a=a, b=1 - a, c=interpolation_weights(offsets, moments), d=d)


def data_prediction_row(s: Point, parameterization: str) -> Row:
    """Replace the state at s by the data prediction there: Eq. (30)."""
    if parameterization == "data":
        return Row(a=0.0, b=0.0, c=(1.0,))
    return Row(a=1 / s.alpha, b=-(1 - s.alpha) / s.alpha, c=(-s.sigma / s.alpha,))


def amplification(c: Sequence[float], nodes: Sequence[float], fresh: int) -> float:
    """How much the older predictions add to the network's error, relative to the `fresh` newest ones.

    An error of the noise prediction at lambda is one of exp(-lambda) in the data prediction: 39 times at t = T of the
    published schedule. A second-order step after a long first one carries most of that into the image.
    """
    error = [abs(weight) * math.exp(-node) for weight, node in zip(c, nodes)]
    return sum(error[fresh:]) / sum(error[:fresh])


def gated_row(
    s: Point, t: Point, nodes: Sequence[float], fresh: int, *, parameterization: str, tau: float, gate: float
) -> Row:
    """`row`, dropping the oldest predictions while they amplify the error by more than `gate` (0: never).

    It depends on the grid alone, so the orders are known before sampling. `fresh` predictions always stay.
    """
    kept = list(nodes)
    while True:
        result = row(s, t, kept, parameterization=parameterization, tau=tau)
        # Noise predictions are not divided by alpha: their errors are not amplified, and nothing is to be gated.
        if not gate or parameterization == "noise" or len(kept) <= fresh:
            return result
        if math.isinf(t.lambda_) or amplification(result.c, kept, fresh) <= gate:
            return result
        kept.pop()


def multistep_steps(
    points: Sequence[Point],
    *,
    parameterization: str,
    tau: float,
    predictor: int,
    corrector: int = 0,
    gate: float = 0.0,
    last_order: int = 0,
) -> tuple[Step, ...]:
    """The steps through `points`: predict, evaluate, correct (PEC); one evaluation per step.

    Step i extrapolates from min(predictor, i) predictions. The corrector repeats the step that led to a point, with
    the same noise, once the prediction there is known; there is none after the last step, whose prediction nobody
    computes.
    """
    steps = []
    last = len(points) - 1
    for i in range(1, last + 1):
        s, t = points[i - 1], points[i]
        oldest = max(0, i - 1 - max(predictor, corrector))
        past = [point.lambda_ for point in reversed(points[oldest:i])]  # lambda_s first, then older ones
        correct = None
        if corrector and i > 1:
            again = gated_row(
                points[i - 2],
                s,
                past[: corrector + 1],
                2,
                parameterization=parameterization,
                tau=tau,
                gate=gate,
            )
            correct = replace(again, d=0.0, d_prev=again.d)
        order = min(predictor, i)
        if i == last and last_order:
            order = min(order, last_order)
        advance = gated_row(s, t, past[:order], 1, parameterization=parameterization, tau=tau, gate=gate)
        steps.append(Step(s, advance, correct, len(advance.c)))
    return tuple(steps)


def _build(sde: MeanRevertingSDE, solver: Solver, *, tau: float, grid: str | None = None) -> Plan:
    points = make_grid(sde, solver, tau=tau, default=grid)
    steps = multistep_steps(
        points,
        parameterization=solver.parameterization,
        tau=tau,
        predictor=solver.predictor or 2,
        corrector=solver.corrector or 0,
        gate=solver.gate or 0.0,
        last_order=solver.last_order or 0,
    )
    if solver.denoise_last:
        final = data_prediction_row(points[-2], solver.parameterization)
        steps = (*steps[:-1], replace(steps[-1], advance=final, order=1))
    return Plan(
        sde=sde,
        steps=steps,
        end=points[-1],
        parameterization=solver.parameterization,
        start_sigma=sde.start_sigma(points[0]),
        clamp=solver.clamp_range,
        threshold=solver.threshold,
    )


def mrsampler(sde: MeanRevertingSDE, solver: Solver) -> Plan:
    """The paper's Algorithms: orders 1, 2, 2, ..., 2 on a uniform lambda grid, SDE and data prediction by default.

    Every option of 'mrsampler-pc' may be switched on as well. Order 3 is a true third order.
    """
    order = solver.predictor or solver.order or 2
    if solver.num_sample_steps < order:
        text = f"order {order} needs num_sample_steps of at least {order}, got {solver.num_sample_steps}"
        raise OptionValueError("order", text)
    tau = solver.tau if solver.tau is not None else solver.tau_of_solver_type
    return _build(sde, replace(solver, predictor=order), tau=1.0 if tau is None else tau)


def _pc_defaults(solver: Solver) -> Solver:
    """`solver` with every option of 'mrsampler-pc' filled in."""
    few = solver.num_sample_steps < FEW_STEPS
    mmse = solver.mode == "mmse"

    def first(*values: float | None) -> float:
        return next(value for value in values if value is not None)

    return replace(
        solver,
        predictor=int(first(solver.predictor, solver.order, 1 if mmse else 2)),
        corrector=int(first(solver.corrector, 0 if mmse else 2)),
        gate=first(solver.gate, 3.0),
        tau=first(solver.tau, solver.tau_of_solver_type, 0.3 if few and not mmse else 1.0),
        last_order=int(first(solver.last_order, 1 if few else 0)),
        clamp=solver.parameterization == "data" if solver.clamp is None else solver.clamp,
    )


def mrsampler_pc(sde: MeanRevertingSDE, solver: Solver) -> Plan:
    """Predictor 2, corrector 2, gated: the most accurate scheme known here at any number of evaluations.

    Defaults: gate 3, last step of order 1 and tau 0.3 below 15 evaluations (tau 1 from there on), data prediction
    clamped to [0, 1], the 'optimised' grid for 2 to 4 evaluations and 'sinh' from 5 on. Convergence is of order 3 for
    the ODE. `mode: mmse` is order 1 with tau 1 on the Karras grid: few such steps stay near the posterior mean.
    """
    full = _pc_defaults(solver)
    if full.num_sample_steps < 2:
        worst = math.exp(-float(sde.lambda_(sde.T)))
        log.warning(
            "1 evaluation is the data prediction at t = T, with the network's error amplified %.0f times; "
            "use 4 or more",
            worst,
        )
    assert full.tau is not None
    return _build(sde, full, tau=full.tau, grid="karras-n" if full.mode == "mmse" else None)
