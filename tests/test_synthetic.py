"""Synthetic networks are exact: against `codes.exact`, against Bayes' rule, and along the exact flow."""

import math

import numpy as np
import pytest
import torch
from scipy import fft

from codes.exact import Mixture
from codes.sde import MeanRevertingSDE
from codes.solvers import Solver, sample
from codes.study.synthetic import SIZE, SYNTHETIC, Error, Fields, Patches, SyntheticNetwork

SDE = MeanRevertingSDE()
PROBLEMS = {"fields": Fields(), "patches": Patches()}


def mixtures(posterior):
    """Every part of a posterior as a mixture of `codes.exact`."""
    variances = np.broadcast_to(posterior.variances, posterior.means.shape).copy()
    for log_weights, means, each in zip(posterior.log_weights, posterior.means, variances, strict=True):
        weights = np.exp(log_weights - log_weights.max())
        yield Mixture(
            name="part", weights=np.maximum(weights / weights.sum(), 1e-300), means=means, variances=each, sde=SDE
        )


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_coordinates_are_orthonormal(problem):
    image, other = problem.draw(0)
    assert np.allclose(problem.image(problem.coordinates(image)), image, atol=1e-12)
    gap = problem.coordinates(image) - problem.coordinates(other)
    assert np.sum(gap**2) == pytest.approx(np.sum((image - other) ** 2))


@pytest.mark.parametrize("t", [100.0, 60.0, 15.0, 0.0])
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_the_data_prediction_is_that_of_the_exact_mixture(problem, t):
    clean, mu = problem.draw(1)
    posterior = problem.posterior(mu)
    alpha, sigma = float(SDE.alpha(t)), float(SDE.sigma(t))
    origin = problem.coordinates(mu)
    rng = np.random.default_rng(0)
    y = alpha * (problem.coordinates(clean) - origin) + sigma * rng.standard_normal(origin.shape)
    ours = posterior.data(y, alpha, sigma)
    for part, mixture in zip(range(0, len(y), 7), list(mixtures(posterior))[::7], strict=True):
        exact = mixture.data(torch.from_numpy(y[part : part + 1]), alpha, sigma)[0]
        assert np.abs(ours[part] - exact.numpy()).max() < 1e-9


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_the_posterior_is_as_sure_as_it_is_right(problem):
    """By Bayes' rule the squared error of the posterior mean is its variance, on average over draws."""
    errors, variances = [], []
    for number in range(20):
        clean, mu = problem.draw(number)
        posterior = problem.posterior(mu)
        y = problem.coordinates(clean) - problem.coordinates(mu)
        share = np.exp(posterior.log_weights - posterior.log_weights.max(1, keepdims=True))
        share /= share.sum(1, keepdims=True)
        mean = np.einsum("nk,nkd->nd", share, posterior.means)
        around = posterior.means**2 + posterior.variances
        errors.append(np.sum((y - mean) ** 2))
        variances.append(np.sum(np.einsum("nk,nkd->nd", share, around) - mean**2))
    gaps = np.array(errors) - np.array(variances)
    assert abs(gaps.mean()) < 3 * gaps.std(ddof=1) / math.sqrt(len(gaps))
    assert np.mean(errors) == pytest.approx(np.mean(variances), rel=0.1)


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_draws_have_the_mean_of_the_posterior(problem):
    posterior = problem.posterior(problem.draw(2)[1])
    rng = np.random.default_rng(0)
    draws = np.stack([posterior.draw(rng) for _ in range(200)])
    mean = posterior.data(np.zeros(draws.shape[1:]), 0.0, 1.0)  # nothing seen of the state
    error = draws.std(0) / math.sqrt(len(draws)) + 1e-12
    assert np.mean(((draws.mean(0) - mean) / error) ** 2) == pytest.approx(1, abs=0.15)


def test_many_steps_of_the_ode_follow_the_exact_flow():
    """A block of an image, restored with the image, arrives where `Mixture.exact_flow` leads."""
    problem = PROBLEMS["patches"]
    mu = torch.from_numpy(problem.draw(3)[1]).clamp(0, 1)[None]
    start = mu + SDE.sigma_inf * torch.randn(mu.shape, generator=torch.Generator().manual_seed(0), dtype=mu.dtype)
    network = SyntheticNetwork(problem, SDE)
    solver = Solver("mrsampler-pc", 100, tau=0.0)
    result = sample(network, SDE, mu, solver, fit_target="data", x_init=start).sample
    origin, arrived, begun = (problem.coordinates(image[0].numpy()) for image in (mu, result, start))
    for part, mixture in list(enumerate(mixtures(problem.posterior(mu[0].numpy()))))[::24]:
        exact = mixture.exact_flow(torch.from_numpy(begun[part : part + 1] - origin[part])).numpy()[0]
        assert np.abs(arrived[part] - origin[part] - exact).max() < 1 / 255


def test_errors_have_the_size_and_the_spectrum_they_are_given():
    rng = np.random.default_rng(0)
    y = SDE.sigma_inf * rng.standard_normal((3, SIZE, SIZE))

    def field(error, t):
        point = t / SDE.T, float(SDE.alpha(t)), float(SDE.sigma(t)), float(SDE.lambda_(t))
        return error.field(y, point, SDE.sigma_inf)

    def rms(values):
        return math.sqrt(np.mean(values**2))

    # An error of the noise prediction counts sigma / alpha times in the data prediction: 39 times at t = T.
    assert rms(field(Error(0.02), 100.0)) == pytest.approx(0.02 * 39.2, rel=0.02)
    assert rms(field(Error(0.02), 10.0)) == pytest.approx(0.02 * math.exp(-float(SDE.lambda_(10.0))), rel=0.02)
    assert rms(field(Error(0.03, of="data"), 100.0)) == 0
    assert rms(field(Error(0.03, of="data"), 50.0)) == pytest.approx(0.015, rel=0.02)
    dim = np.stack([field(Error(0.02, highest=2), t) for t in range(0, 100, 4)])
    spectrum = fft.dctn(dim, axes=(2, 3), norm="ortho")
    assert np.abs(spectrum[:, :, 2:]).max() < 1e-12 and np.abs(spectrum[:, :, :, 2:]).max() < 1e-12
    sizes = [0.02 * math.exp(-float(SDE.lambda_(t))) for t in range(0, 100, 4)]
    assert rms(dim / np.array(sizes)[:, None, None, None]) == pytest.approx(1, rel=0.25)


@pytest.mark.parametrize("name", SYNTHETIC)
def test_the_same_number_gives_the_same_images(name):
    first, second = (SYNTHETIC[name].problem() for _ in range(2))
    for a, b in zip(first.draw(4), second.draw(4), strict=True):
        assert np.array_equal(a, b)
    assert not np.array_equal(first.draw(4)[0], first.draw(5)[0])


def test_an_error_of_the_network_is_added_to_the_exact_prediction():
    problem, error = PROBLEMS["fields"], Error(0.02)
    clean, mu = (torch.from_numpy(image)[None] for image in problem.draw(0))
    t = torch.tensor([30.0])
    x = mu + SDE.sigma_inf * torch.randn(mu.shape, generator=torch.Generator().manual_seed(0), dtype=mu.dtype)
    exact, off = (SyntheticNetwork(problem, SDE, each)(x, mu, t) for each in (None, error))
    point = 0.3, float(SDE.alpha(30)), float(SDE.sigma(30)), float(SDE.lambda_(30))
    assert np.allclose((off - exact)[0].numpy(), error.field((x - mu)[0].numpy(), point, SDE.sigma_inf), atol=1e-12)
    assert clean.shape == exact.shape
