"""Convergence orders on problems with exact solutions: facts 12 to 16 of docs/numerics.md."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from codes.exact import Mixture
from codes.names import scalar_time
from codes.solvers import Plan, Solver, make_plan, sample
from codes.solvers.official import published_row
from codes.solvers.plan import Step

from .problems import SDE, gmm8, rms, slope, study_problems

COARSE = [10, 20, 40, 80, 160]
FINE = [80, 160, 320, 640]


def ode(order: int, parameterization: str = "data", corrector: int = 0, schedule: str = "linear-lambda"):
    def make(nfe: int) -> Plan:
        solver = Solver(
            "mrsampler",
            nfe,
            solver_type="ode",
            order=order,
            parameterization=parameterization,
            corrector=corrector,
            time_schedule=schedule,
        )
        return make_plan(SDE, solver)

    return make


def third_order_as_published(nfe: int) -> Plan:
    """The published third-order step, but with exact coefficients and a sound order sequence."""
    plan = ode(3)(nfe)
    solver = Solver("mrsampler", nfe, solver_type="ode", order=3)
    points = [step.point for step in plan.steps] + [plan.end]
    steps = [Step(points[i - 1], published_row(points, i, min(i, 3), solver)) for i in range(1, nfe + 1)]
    return replace(plan, steps=tuple(steps))


def flow_error(problem: Mixture, plans, nfes: list[int]) -> list[float]:
    """RMSE against the exact flow, from the same start states."""
    n = 16
    start = SDE.sigma_inf * torch.randn(n, problem.dim, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    exact = problem.exact_flow(start)
    mu = torch.zeros_like(start)
    network = problem.noise_network()
    return [rms(sample(network, SDE, mu, plans(nfe), fit_target="noise", x_init=start).sample - exact) for nfe in nfes]


@pytest.mark.parametrize(
    ("plans", "low", "high"),
    [
        (ode(1, "noise"), 0.85, 1.15),
        (ode(1, "data"), 0.85, 1.15),
        (ode(2, "noise"), 1.7, 2.2),
        (ode(2, "data"), 1.8, 2.3),
    ],
    ids=["ODE-n-1", "ODE-d-1", "ODE-n-2", "ODE-d-2"],
)
def test_ode_orders_on_a_gaussian(plans, low, high):
    """Fact 12 of docs/numerics.md."""
    assert low <= slope(COARSE, flow_error(study_problems()[0], plans, COARSE)) <= high


@pytest.mark.parametrize(
    ("plans", "low", "high"),
    [
        (ode(1), 0.9, 1.1),
        (ode(2, "noise"), 1.85, 2.15),
        (ode(2, "data"), 1.85, 2.15),
        (ode(3, "noise"), 2.75, 3.25),
        (ode(3, "data"), 2.75, 3.25),
        (ode(2, corrector=2), 2.7, 3.2),
        (ode(3, corrector=3), 3.6, 4.3),
    ],
    ids=["order 1", "ODE-n-2", "ODE-d-2", "ODE-n-3", "ODE-d-3", "P2+C2", "P3+C3"],
)
def test_ode_orders_on_a_mixture_with_uniform_lambda(plans, low, high):
    """Fact 13 of docs/numerics.md."""
    assert low <= slope(FINE, flow_error(gmm8(), plans, FINE)) <= high


@pytest.mark.parametrize(
    ("plans", "low", "high"),
    [
        (ode(1, schedule="linspace"), 0.9, 1.1),
        (ode(2, schedule="linspace"), 1.8, 2.3),
        (ode(3, schedule="linspace"), 2.8, 3.4),
    ],
    ids=["order 1", "order 2", "ODE-d-3"],
)
def test_ode_orders_on_a_mixture_with_uniform_t(plans, low, high):
    """Fact 14 of docs/numerics.md."""
    assert low <= slope(FINE, flow_error(gmm8(), plans, FINE)) <= high


def test_published_third_order_step_is_of_second_order():
    """Fact 15 of docs/numerics.md."""
    assert slope(FINE, flow_error(gmm8(), third_order_as_published, FINE)) == pytest.approx(2.2, abs=0.25)


def gaussian_moments(nfe: int, order: int, parameterization: str) -> tuple[float, float]:
    """Errors of mean and variance at t = 0 for Gaussian data, without Monte Carlo.

    The scheme is linear here, so the state is carried as its weights of 1, the start's noise and each later noise:
    rows of the batch. Starts from the exact law at t = T.
    """
    std = torch.from_numpy(np.exp(np.linspace(np.log(0.01), np.log(0.3), 8)))
    mean = torch.full_like(std, 0.1)
    plan = make_plan(SDE, Solver("mrsampler", nfe, order=order, parameterization=parameterization, solver_type="sde"))
    state = torch.zeros(2 + nfe, 8, dtype=torch.float64)
    first = plan.steps[0].point
    state[0] = first.alpha * mean
    state[1] = (first.alpha**2 * std**2 + first.sigma**2).sqrt()
    noise = []
    for k in range(nfe):
        z = torch.zeros_like(state)
        z[2 + k] = 1
        noise.append(z)

    @scalar_time
    def network(x, mu, t):
        point = SDE.point(t)
        gain = point.sigma / (point.alpha**2 * std**2 + point.sigma**2)
        eps = gain * x
        eps[0] -= gain * point.alpha * mean
        return eps

    out = sample(
        network, SDE, torch.zeros_like(state), plan, fit_target="noise", x_init=state, noise=torch.stack(noise)
    ).sample
    variance = (out[1:] ** 2).sum(0)
    exact = plan.end.alpha**2 * std**2 + plan.end.sigma**2
    return float((out[0] - plan.end.alpha * mean).abs().max()), rms(variance / exact - 1)


@pytest.mark.parametrize(
    ("order", "parameterization", "low", "high"),
    [(1, "data", 0.9, 1.05), (2, "data", 1.9, 2.15), (2, "noise", 1.85, 2.1)],
    ids=["SDE-d-1", "SDE-d-2", "SDE-n-2"],
)
def test_weak_order_of_the_variance(order, parameterization, low, high):
    """Fact 16 of docs/numerics.md."""
    errors = [gaussian_moments(nfe, order, parameterization)[1] for nfe in FINE]
    assert low <= slope(FINE, errors) <= high


@pytest.mark.parametrize("order", [1, 2, 3])
def test_sde_with_data_prediction_has_the_exact_mean(order):
    """Fact 16: E[x0 | x_t] is a martingale of the reverse SDE, so its extrapolation is exact on average."""
    for nfe in (3, 5, 10, 50, 200):
        assert gaussian_moments(nfe, order, "data")[0] < 1e-13


def test_euler_and_heun_have_orders_one_and_two():
    """The baselines converge at their orders too, on a grid without the stiff end."""
    problem = gmm8()
    times = {nfe: tuple(np.linspace(100, 20, nfe + 1)) for nfe in FINE}
    start = 0.2 * torch.randn(16, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    mu = torch.zeros_like(start)
    fine = Solver("mrsampler", 2000, order=3, solver_type="ode", time_schedule=tuple(np.linspace(100, 20, 2001)))
    exact = sample(problem.noise_network(), SDE, mu, fine, fit_target="noise", x_init=start).sample
    for algorithm, order in (("ode", 1), ("heun", 2)):
        errors = []
        for nfe in FINE:
            solver = Solver(algorithm, nfe, time_schedule=times[nfe])
            out = sample(problem.noise_network(), SDE, mu, solver, fit_target="noise", x_init=start)
            errors.append(rms(out.sample - exact))
        assert slope(FINE, errors) == pytest.approx(order, abs=0.15), algorithm


def test_weak_order_of_the_euler_maruyama_baseline():
    """Mean and variance of Gaussian data converge with first order."""
    mean, std, n = 0.1, 0.1, 4
    errors = []
    for nfe in FINE:
        plan = make_plan(SDE, Solver("sde", nfe, time_schedule=tuple(np.linspace(100, 20, nfe + 1))))
        weight, variance = plan.steps[0].point.alpha * mean, 0.0
        first = plan.steps[0].point
        variance = first.alpha**2 * std**2 + first.sigma**2
        for step in plan.steps:
            point, row = step.point, step.advance
            gain = point.sigma / (point.alpha**2 * std**2 + point.sigma**2)
            weight = row.a * weight + row.c[0] * gain * (weight - point.alpha * mean)
            variance = (row.a + row.c[0] * gain) ** 2 * variance + row.d**2
        exact = plan.end.alpha**2 * std**2 + plan.end.sigma**2
        errors.append(math.hypot(weight - plan.end.alpha * mean, (variance - exact) * n))
    assert slope(FINE, errors) == pytest.approx(1, abs=0.1)
