"""The denoising process: identities of its schedule, and every solver on a problem with an exact solution."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from codes import DenoisingSDE, Solver, make_plan, sample
from codes.names import OptionValueError, scalar_time
from codes.solvers.registry import SOLVERS

from .problems import rms, slope

SDE = DenoisingSDE(max_sigma=75, T=100, noise_level=25)
MEAN, STD = 0.4, 0.1  # of the clean images, which are Gaussian


@scalar_time
def network(x, mu, t):
    """The exact noise prediction for clean images ~ N(MEAN, STD^2); it sees no mu."""
    sigma = float(SDE.sigma(t))
    return sigma * (x - MEAN) / (STD**2 + sigma**2)


def images(n: int = 4) -> torch.Tensor:
    rng = torch.Generator().manual_seed(0)
    clean = MEAN + STD * torch.randn(n, 3, 4, 4, generator=rng, dtype=torch.float64)
    return clean + SDE.noise_level / 255 * torch.randn(clean.shape, generator=rng, dtype=torch.float64)


def run(solver, mu, **more):
    return sample(network, SDE, mu, solver, fit_target="noise", mu_range=None, **more)


def exact(x: torch.Tensor, end: float = 0.0) -> torch.Tensor:
    """The flow of the ODE from the start: deviations from the mean shrink with the marginal standard deviation."""
    before, after = (math.hypot(STD, float(SDE.sigma(t))) for t in (SDE.start.t, end))
    return MEAN + (x - MEAN) * after / before


def test_the_schedule_is_that_of_the_manifest():
    assert SDE.alpha(37.5) == 1 and SDE.sigma(0.0) == 0
    assert SDE.start.sigma == pytest.approx(25 / 255, rel=1e-12)
    assert abs(SDE.start.t - SDE.published_start) < 0.5
    for t in (0.3, 5.0, 21.5, 99.0):
        point = SDE.point(t)
        assert point.lambda_ == pytest.approx(-math.log(point.sigma), rel=1e-12)
        assert SDE.point_from_lambda(point.lambda_).t == pytest.approx(t, abs=1e-9)
        assert float(SDE.sigma_from_lambda(point.lambda_)) == pytest.approx(point.sigma, rel=1e-12)
    path = SDE.forward(torch.zeros(1), torch.ones(1), [20.0, 60.0], [torch.ones(1), torch.zeros(1)])
    assert float(path[1]) == pytest.approx(float(SDE.sigma(20)))


@pytest.mark.parametrize("level", [0, -1, 76, math.nan, "x", True])
def test_noise_that_the_network_never_saw_is_refused(level):
    with pytest.raises(OptionValueError, match="at most max_sigma, 75, to be removed, got"):
        DenoisingSDE(max_sigma=75, noise_level=level)


ODES = {
    "order 1": (Solver("mrsampler", order=1, solver_type="ode"), 1),
    "order 2": (Solver("mrsampler", order=2, solver_type="ode"), 2),
    "order 3": (Solver("mrsampler", order=3, solver_type="ode"), 3),
    "noise 1": (Solver("mrsampler", order=1, solver_type="ode", parameterization="noise"), 1),
    "noise 2": (Solver("mrsampler", order=2, solver_type="ode", parameterization="noise"), 2),
    "corrected": (Solver("mrsampler-pc", tau=0, gate=0, last_order=0, clamp=False), 3),
    "euler": (Solver("ode"), 1),
    "heun": (Solver("heun"), 2),
}


@pytest.mark.parametrize("name", ODES)
def test_orders_on_a_gaussian(name):
    """To t = 5, since the last step to sigma = 0 is the data prediction for every scheme.

    The first strides are short: a multistep scheme begins with first order, whose error would hide a third order.
    """
    solver, order = ODES[name]
    x, nfes, errors = images(), [32, 64, 128, 256], []
    for nfe in nfes:
        span = float(SDE.lambda_(5.0)) - SDE.start.lambda_
        lambdas = SDE.start.lambda_ + span * (np.arange(1, nfe) / nfe) ** 3
        times = (SDE.start.t, *(SDE.t_from_lambda(value) for value in lambdas), 5.0)
        chosen = replace(solver, num_sample_steps=nfe, time_schedule=times)
        errors.append(rms(run(chosen, x).sample - exact(x, 5.0)))
    assert slope(nfes, errors) == pytest.approx(order, abs=0.25)


@pytest.mark.parametrize("algorithm", SOLVERS)
def test_every_solver_removes_the_noise_without_mu(algorithm):
    """The clean image is known to the network here: all but Euler's last step must find it, whatever mu is."""
    clean = torch.full((2, 3, 8, 8), 0.3, dtype=torch.float64)
    rng = torch.Generator().manual_seed(1)
    x = clean + SDE.noise_level / 255 * torch.randn(clean.shape, generator=rng, dtype=torch.float64)
    results = []
    for mu in (x, torch.zeros_like(x)):
        generator = torch.Generator().manual_seed(2)
        plan = make_plan(SDE, Solver(algorithm, 20))
        known = sample(lambda x, mu, t: clean, SDE, mu, plan, fit_target="data", generator=generator, x_init=x)
        results.append(known.sample)
        for step in plan.steps:
            for row in filter(None, (step.advance, step.correct)):
                assert row.b == pytest.approx(0, abs=1e-12)
    assert rms(results[0] - results[1]) < 1e-12
    # The Euler schemes end with a step of their own, not with the data prediction.
    assert rms(results[0] - clean) < (0.02 if algorithm in ("ode", "sde", "heun") else 1e-12)


def test_posterior_sampling_is_first_order_mr_sampler():
    one, other = (
        make_plan(SDE, solver)
        for solver in (
            Solver("posterior", 7, time_schedule="linear-lambda"),
            Solver("mrsampler", 7, order=1, time_schedule="linear-lambda"),
        )
    )
    for a, b in zip(one.steps, other.steps, strict=True):
        assert a.advance.a == pytest.approx(b.advance.a, abs=1e-12)
        assert a.advance.c == pytest.approx(b.advance.c, abs=1e-12)
        assert a.advance.d == pytest.approx(b.advance.d, abs=1e-12)


def test_five_evaluations_replace_the_published_ones():
    """Both are within half a level of 8 bits, where the noise is 25."""
    x = images(16)
    published = run(Solver("ode", SDE.published_start, compat="official"), x)
    ours = run(Solver("mrsampler-pc", 5, tau=0), x)
    assert (published.nfe, ours.nfe) == (21, 5)
    assert rms(published.sample - exact(x)) < 0.5 / 255
    assert rms(ours.sample - exact(x)) < 0.5 / 255


def test_the_start_is_the_noisy_image_and_draws_nothing():
    x = images()
    output = run(Solver("mrsampler", 4, solver_type="ode"), x, return_trajectory=True)
    assert torch.equal(output.states[0], x)
    assert output.times[0] == SDE.start.t


@pytest.mark.parametrize(
    ("solver", "text"),
    [
        (Solver("ode", 5, compat="official"), "takes 21 evaluations for noise of 25, got 5; drop compat 'official'"),
        (Solver("posterior", 21, compat="official"), "unknown algorithm with compat 'official' for denoising"),
        (Solver("mrsampler", 5, lambda_min=4.0), "starts at t = 5.17234, after the noise of the image, t = 20.786"),
        (Solver("mrsampler", 4, time_schedule="leading"), "after the noise of the image, t = 20.786"),
    ],
    ids=["steps", "algorithm", "late", "leading"],
)
def test_what_denoising_cannot_do_is_refused(solver, text):
    with pytest.raises(OptionValueError, match=text):
        make_plan(SDE, solver)


def test_velocity_is_refused():
    with pytest.raises(ValueError, match="'velocity' needs a process with mean reversion"):
        sample(network, SDE, images(), Solver("mrsampler", 3), fit_target="velocity")
