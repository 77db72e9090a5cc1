"""One step of the scheme: facts 3 to 11, 17, 18, 23 and 27 of docs/numerics.md."""

import json
import math
from itertools import product
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch

from codes.sde import MeanRevertingSDE
from codes.solvers import Solver, make_plan
from codes.solvers.mr_sampler import amplification, data_integrals, noise_integrals, row
from codes.solvers.plan import Row

SDE = MeanRevertingSDE()
GOLDEN = json.loads((Path(__file__).parent / "golden" / "coefficients.json").read_text())["steps"]
H = [1e-6, 1e-4, 1e-3, 0.01, 0.1, 0.5, 0.98, 1.96, 5.0]
# (number of older predictions, whether the new one is used): P1, P2, P3, C1, C2, C3
SCHEMES = {"P1": (1, False), "P2": (2, False), "P3": (3, False), "C1": (1, True), "C2": (2, True), "C3": (3, True)}


def make_row(scheme, s, h, spacing, parameterization, tau) -> tuple[Row, list[float]]:
    """The row of a scheme from lambda s over h, with older predictions `spacing` apart."""
    older, new = SCHEMES[scheme]
    nodes = [s - j * spacing for j in range(older)]
    if new:
        nodes = [s + h, *nodes]
    points = SDE.point_from_lambda(s), SDE.point_from_lambda(s + h)
    return row(*points, nodes, parameterization=parameterization, tau=tau), nodes


def test_coefficients_equal_the_golden_values():
    """Fact 3 of docs/numerics.md."""
    assert len(GOLDEN) == 384
    for golden in GOLDEN:
        nodes = golden["hist"][: int(golden["kind"][1])]
        if golden["kind"][0] == "C":
            nodes = [golden["lam_t"], *nodes]
        s, t = (SDE.point_from_lambda(golden[name]) for name in ("lam_s", "lam_t"))
        got = row(s, t, nodes, parameterization=golden["param"], tau=golden["tau"])
        assert got.a == pytest.approx(golden["a"], rel=1e-12)
        assert got.d == pytest.approx(golden["d"], rel=1e-12)
        assert got.c == pytest.approx(golden["c"], rel=1e-12)
        # b is a difference of numbers near 1: relative to those.
        assert got.b == pytest.approx(golden["b"], rel=1e-12, abs=1e-15)


@pytest.mark.parametrize(("scheme", "h", "tau"), list(product(SCHEMES, H, [0.0, 0.3, 1.0])))
def test_weights_add_up_to_one_and_integrate_polynomials_exactly(scheme, h, tau):
    """Facts 4 and 5: weights add up to 1, and polynomials of the scheme's degree are integrated exactly."""
    for parameterization in ("data", "noise"):
        got, nodes = make_row(scheme, 0.4, h, 0.7 * h, parameterization, tau)
        total = got.a + got.b + (sum(got.c) if parameterization == "data" else 0.0)
        assert total == pytest.approx(1, abs=1e-12)
        t = SDE.point_from_lambda(0.4 + h)
        # The step as taken: lambda has been rounded on the way.
        taken = t.lambda_ - 0.4
        if parameterization == "data":
            moments = [t.alpha * K for K in data_integrals(taken, 1 + tau**2, len(nodes) - 1)]
        else:
            moments = [-(1 + tau**2) * t.sigma * K for K in noise_integrals(taken, len(nodes) - 1)]
        for power, moment in enumerate(moments):
            terms = [c * (node - 0.4) ** power for c, node in zip(got.c, nodes)]
            assert sum(terms) == pytest.approx(moment, abs=1e-12 * sum(map(abs, terms)))


@pytest.mark.parametrize(("scheme", "h", "tau"), list(product(SCHEMES, [0.1, 1.0, 4.0], [0.0, 0.5, 1.0])))
def test_adding_a_constant_to_all_images_adds_it_to_the_result(scheme, h, tau):
    """Fact 6: adding a constant to x, mu and the data predictions adds it to the result."""
    got, nodes = make_row(scheme, -1.0, h, 0.5 * h, "data", tau)
    generator = torch.Generator().manual_seed(0)
    x, mu, *m = torch.rand(2 + len(nodes), 5, dtype=torch.float64, generator=generator)
    before = got(x, mu, tuple(m), None, None)
    after = got(x + 7, mu + 7, tuple(each + 7 for each in m), None, None)
    assert torch.allclose(after - before, torch.full((5,), 7.0, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("nfe", [1, 2, 5, 10, 37, 100])
@pytest.mark.parametrize("schedule", ["linspace", "linear-lambda", "sinh"])
def test_posterior_sampling_is_the_first_order_sde_step(nfe, schedule):
    """Fact 7: Eq. (19) with the alphas of both points, and sigma_inf^2 in the variance, is the first SDE step."""
    posterior = make_plan(SDE, Solver("posterior", nfe, time_schedule=schedule))
    mr = make_plan(SDE, Solver("mrsampler", nfe, order=1, time_schedule=schedule))
    for ours, theirs in zip(posterior.steps, mr.steps, strict=True):
        for name in ("a", "b", "d"):
            assert getattr(ours.advance, name) == pytest.approx(getattr(theirs.advance, name), abs=1e-12)
        assert ours.advance.c == pytest.approx(theirs.advance.c, abs=1e-12)
        assert ours.point == theirs.point


def test_posterior_sampling_is_the_first_order_sde_step_where_sigma_0_is_zero():
    """Fact 7 of docs/numerics.md."""
    sde = MeanRevertingSDE(convention="irsde")
    last_posterior = make_plan(sde, Solver("posterior", 10)).steps[-1].advance
    last_mr = make_plan(sde, Solver("mrsampler", 10, order=1, time_schedule="linspace")).steps[-1].advance
    assert last_mr == Row(a=0.0, b=0.0, c=(1.0,))  # the data prediction itself
    assert last_posterior.c[0] == pytest.approx(1, abs=1e-15)
    assert (last_posterior.a, last_posterior.d) == (0, 0) and last_posterior.b == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize("h", [0.01, 0.3, 2.0, 5.0])
@pytest.mark.parametrize("lambda_s", [-3.669, -1.0, 2.0])
def test_both_first_order_ode_steps_are_ddim(h, lambda_s):
    """Fact 8 of docs/numerics.md."""
    s, t = SDE.point_from_lambda(lambda_s), SDE.point_from_lambda(lambda_s + h)
    generator = torch.Generator().manual_seed(0)
    x, mu, eps = torch.rand(3, 50, dtype=torch.float64, generator=generator)
    x0 = (x - (1 - s.alpha) * mu - s.sigma * eps) / s.alpha
    ddim = t.alpha * x0 + (1 - t.alpha) * mu + t.sigma * eps
    noise = row(s, t, [s.lambda_], parameterization="noise", tau=0.0)(x, mu, (eps,), None, None)
    data = row(s, t, [s.lambda_], parameterization="data", tau=0.0)(x, mu, (x0,), None, None)
    assert float((noise - ddim).abs().max()) < 1e-12 * max(1.0, float(x0.abs().max()))
    assert float((data - ddim).abs().max()) < 1e-12 * max(1.0, float(x0.abs().max()))


@pytest.mark.parametrize(("h", "tau"), list(product([0.05, 0.9, 4.0], [0.0, 0.3, 1.0])))
def test_constant_data_prediction_is_integrated_exactly(h, tau):
    """Fact 9: with a constant x0 every data scheme gives the exact transition mean."""
    s, t = SDE.point_from_lambda(0.2), SDE.point_from_lambda(0.2 + h)
    x, mu, x0 = 0.7, 0.4, 0.9
    a = t.sigma / s.sigma * math.exp(-(tau**2) * h)
    exact = mu + t.alpha * (x0 - mu) + a * (x - mu - s.alpha * (x0 - mu))
    for scheme in SCHEMES:
        got, _ = make_row(scheme, 0.2, h, 0.4, "data", tau)
        assert got.a * x + got.b * mu + sum(got.c) * x0 == pytest.approx(exact, abs=1e-12)


def test_integrals_agree_with_50_digits():
    """Fact 10 of docs/numerics.md."""
    mpmath.mp.dps = 50
    for h, n in product([1e-6, 1e-3, 0.1, 0.49, 0.51, 1.0, 2.5, 5.0], range(4)):
        H = mpmath.mpf(h)
        exact = mpmath.quad(lambda v, H=H, n=n: mpmath.exp(H - v) * v**n, [0, H])
        assert abs(noise_integrals(h, 3)[n] / exact - 1) < 1e-14
        for k in (1.0, 1.09, 2.0):
            exact = k * mpmath.quad(lambda v, H=H, n=n, k=k: mpmath.exp(-k * (H - v)) * v**n, [0, H])
            assert abs(data_integrals(h, k, 3)[n] / exact - 1) < 1e-14


@pytest.mark.parametrize(("h", "tau"), list(product([0.05, 0.9, 4.0], [0.0, 0.3, 1.0])))
def test_corrector_without_new_information_repeats_the_predictor(h, tau):
    """Fact 11 of docs/numerics.md."""
    for parameterization in ("data", "noise"):
        p1, _ = make_row("P1", 0.2, h, 0.4, parameterization, tau)
        c1, _ = make_row("C1", 0.2, h, 0.4, parameterization, tau)
        assert sum(c1.c) == pytest.approx(p1.c[0], abs=1e-12)
        p2, _ = make_row("P2", 0.2, h, 0.4, parameterization, tau)
        c2, _ = make_row("C2", 0.2, h, 0.4, parameterization, tau)
        m0, m1 = 0.3, 0.8
        linear = m0 + (m0 - m1) / 0.4 * h
        repeated = c2.c[0] * linear + c2.c[1] * m0 + c2.c[2] * m1
        assert repeated == pytest.approx(p2.c[0] * m0 + p2.c[1] * m1, abs=1e-12 * max(1, abs(linear)))


def spectral_radius(order: int, h: float, parameterization: str, tau: float) -> float:
    """Of the recursion that a constant step h makes on the model problem of the parameterization.

    Noise: data without variance, eps = y / sigma =: u. Data: broad data, x0 = y / alpha =: u.
    """
    got, _ = make_row(f"P{order}", 0.0, h, h, parameterization, tau)
    s, t = SDE.point_from_lambda(0.0), SDE.point_from_lambda(h)
    scale_s, scale_t = (s.sigma, t.sigma) if parameterization == "noise" else (s.alpha, t.alpha)
    first = [c / scale_t for c in got.c]
    first[0] += got.a * scale_s / scale_t
    companion = np.zeros((order, order))
    companion[0] = first
    companion[range(1, order), range(order - 1)] = 1
    return float(np.max(np.abs(np.linalg.eigvals(companion))))


def test_noise_prediction_is_unstable_for_large_steps():
    """Fact 17 of docs/numerics.md."""
    assert spectral_radius(2, 0.55, "noise", 1.0) > 1 > spectral_radius(2, 0.52, "noise", 1.0)
    assert spectral_radius(2, 1.27, "noise", 0.0) > 1 + 1e-9 and spectral_radius(2, 1.24, "noise", 0.0) <= 1 + 1e-9
    edge = math.log(3)
    assert spectral_radius(1, edge * 1.001, "noise", 1.0) > 1 > spectral_radius(1, edge * 0.999, "noise", 1.0)


@pytest.mark.parametrize(("order", "tau"), list(product([1, 2, 3], [0.0, 0.3, 1.0])))
def test_data_prediction_is_stable_for_every_step(order, tau):
    """Fact 17 of docs/numerics.md."""
    for h in np.linspace(0.01, 12, 200):
        assert spectral_radius(order, float(h), "data", tau) <= 1 + 1e-9, h


@pytest.mark.parametrize("h", [0.1, 0.49, 0.98, 1.96])
def test_variance_of_one_step_on_data_without_variance(h):
    """Fact 18 of docs/numerics.md."""
    s, t = SDE.point_from_lambda(1.0), SDE.point_from_lambda(1.0 + h)
    noise = row(s, t, [s.lambda_], parameterization="noise", tau=1.0)
    inflated = t.sigma**2 * (1 + 2 * math.expm1(h) ** 2)
    assert (noise.a * s.sigma + noise.c[0]) ** 2 + noise.d**2 == pytest.approx(inflated, rel=1e-12)
    data = row(s, t, [s.lambda_], parameterization="data", tau=1.0)
    assert (data.a * s.sigma) ** 2 + data.d**2 == pytest.approx(t.sigma**2, rel=1e-12)


def test_gate_values_on_uniform_and_optimised_grids():
    """Fact 23 of docs/numerics.md."""
    nfes = [2, 3, 4, 5, 6, 8, 10]
    expected = {0.0: [59.2, 11.0, 4.69, 2.79, 1.97, 1.27, 0.98], 1.0: [62.9, 12.0, 5.14, 3.06, 2.16, 1.38, 1.05]}
    for tau, values in expected.items():
        for nfe, value in zip(nfes, values):
            h = (SDE.lambda_end - float(SDE.lambda_(100))) / nfe
            got, nodes = make_row("P2", 0.0, h, h, "data", tau)
            assert amplification(got.c, nodes, 1) == pytest.approx(value, rel=1e-2)
    lambdas = [float(SDE.lambda_(100)), -0.48, 1.33, 3.25, SDE.lambda_end]
    points = [SDE.point_from_lambda(value) for value in lambdas]
    for i, value in ((1, 6.57), (2, 2.52)):
        nodes = [lambdas[i], lambdas[i - 1]]
        got = row(points[i], points[i + 1], nodes, parameterization="data", tau=0.3)
        assert amplification(got.c, nodes, 1) == pytest.approx(value, rel=1e-2)
    orders = [step.order for step in make_plan(SDE, Solver("mrsampler-pc", 4)).steps]
    assert orders == [1, 1, 2, 1]  # step 2 refused, step 3 accepted, last step of order 1


def test_coefficients_are_python_floats():
    """Fact 27 of docs/numerics.md."""
    for algorithm in ("mrsampler", "mrsampler-pc", "posterior", "sde", "ode", "heun"):
        for compat in (None, "official"):
            if algorithm == "mrsampler-pc" and compat:
                continue
            for step in make_plan(SDE, Solver(algorithm, 8, compat=compat)).steps:
                for each in (step.advance, step.correct):
                    if each is not None:
                        numbers = [each.a, each.b, *each.c, each.d, each.d_prev]
                        assert all(type(number) is float for number in numbers)
                assert type(step.point.t) is float
