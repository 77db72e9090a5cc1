"""States, targets and losses, against the published code and by their definitions."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from codes.prediction import convert
from codes.sde import MeanRevertingSDE, Point
from codes.training import loop
from codes.training.objective import Objective
from codes.training.published import matching_loss, optimal_step_mean, reverse_step_mean

from .helpers import ALONE, first_batch, make_run

GOLDEN = Path(__file__).parents[1] / "golden" / "training.npz"


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN) as arrays:
        return {key: torch.from_numpy(arrays[key]) for key in arrays.files}


@pytest.mark.parametrize("loss", ["l1", "l2"])
def test_published_loss_is_that_of_the_published_code(golden, loss):
    x0, mu, noise, predicted = (golden[f"in/{key}"].double() for key in ("x0", "mu", "noise", "predicted_noise"))
    t = golden["in/timesteps"].flatten()
    objective = Objective(sde=MeanRevertingSDE(), target="published", loss=loss, weight=2.0)
    seen = []

    def network(x, mu, t, rows):
        seen.append(x)
        return predicted

    value, prediction = objective(network, x0, mu, t=t, noise=noise, from_prior=torch.zeros(len(t), dtype=torch.bool))
    assert float(value) == pytest.approx(2 * float(golden[f"f64/loss_{loss}"]), rel=1e-10)
    assert torch.allclose(seen[0], golden["f64/noisy_states"], rtol=0, atol=1e-12)
    assert prediction is predicted


@pytest.mark.parametrize("loss", ["l1", "l2"])
def test_a_step_has_the_loss_of_its_batch_and_learns_from_it(copy, loss):
    run = make_run(
        copy,
        train__target="published",
        train__prior_share=0.0,
        train__own_share=0.0,
        train__loss_type=loss,
        train__clip_grad=None,
    )
    learner, batch = loop.make_learner(run, ALONE), first_batch(run)
    sde, t = run.models.sde, batch.t
    x = sde.marginal(batch.gt, batch.lq, t, batch.noise)
    eps = run.models.network(x, batch.lq, t)
    expected = matching_loss(
        reverse_step_mean(sde, x, batch.lq, t, eps), optimal_step_mean(sde, x, batch.gt, batch.lq, t), loss
    )
    expected.backward()
    gradients = [parameter.grad.clone() for parameter in run.models.network.parameters()]
    assert loop.step(run, learner, batch, ALONE) == pytest.approx(float(expected.detach()), rel=1e-6)
    assert learner.done == 1
    for parameter, gradient in zip(run.models.network.parameters(), gradients, strict=True):
        assert torch.allclose(parameter.grad, gradient, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("target", ["noise", "data", "velocity"])
def test_samplers_recover_the_clean_image_from_targets(target):
    sde = MeanRevertingSDE()
    x0, mu, noise = torch.rand(3, 5, 3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    t = torch.tensor([1, 20, 60, 99, 100])
    prior = torch.tensor([False, False, False, False, target != "noise"])
    objective = Objective(sde=sde, target=target)
    x = objective.states(x0, mu, t, noise, prior)
    y = objective.targets(x, x0, mu, t, prior)
    for i in range(5):
        point = Point(100, 0.0, sde.sigma_inf, -math.inf) if prior[i] else sde.point(float(t[i]))
        found = convert(y[i], x[i], mu[i], point, source=target, target="data", sigma_inf=sde.sigma_inf)
        assert torch.allclose(found, x0[i], atol=1e-9)
    value, _ = objective(lambda *_: y + 0.5, x0, mu, t=t, noise=noise, from_prior=prior)
    assert float(value) == pytest.approx(0.5)


def test_prior_states_have_no_trace_of_the_clean_image():
    sde = MeanRevertingSDE()
    x0, mu, noise = torch.rand(3, 4, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    t, prior = torch.full((4,), sde.T), torch.tensor([True, False, True, False])
    objective = Objective(sde=sde, target="velocity")
    x = objective.states(x0, mu, t, noise, prior)
    assert torch.equal(x[prior], sde.prior(mu, noise)[prior])
    assert torch.allclose(x[prior], (mu + sde.sigma_inf * noise)[prior], rtol=0, atol=1e-6)
    assert torch.equal(x[prior], objective.states(1 - x0, mu, t, noise, prior)[prior])
    assert not torch.equal(x[~prior], objective.states(1 - x0, mu, t, noise, prior)[~prior])
    assert torch.equal(objective.targets(x, x0, mu, t, prior)[prior], (mu - x0)[prior])


def test_samplers_recover_the_clean_image_from_noise_targets_at_the_prior():
    """Errors of the noise count as errors of the data, which are 39 times larger at t = T, but at most tenfold."""
    sde = MeanRevertingSDE()
    x0, mu, noise = torch.rand(3, 2, 3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    t, prior = torch.full((2,), sde.T), torch.tensor([True, True])
    objective = Objective(sde=sde, target="noise", weighting="data")
    x = objective.states(x0, mu, t, noise, prior)
    y = objective.targets(x, x0, mu, t, prior)
    point = sde.point(float(sde.T))
    found = convert(y, x, mu, point, source="noise", target="data", sigma_inf=sde.sigma_inf)
    assert torch.allclose(found, x0, rtol=0, atol=1e-9)
    value, _ = objective(lambda *_: y + 0.01, x0, mu, t=t, noise=noise, from_prior=prior)
    assert point.sigma / point.alpha == pytest.approx(39.2, abs=0.1) and float(value) == pytest.approx(0.01 * 10)
    t = torch.full((2,), 60)
    point = sde.point(60.0)
    y = objective.targets(objective.states(x0, mu, t, noise, ~prior), x0, mu, t, ~prior)
    value, _ = objective(lambda *_: y + 0.01, x0, mu, t=t, noise=noise, from_prior=~prior)
    assert float(value) == pytest.approx(0.01 * point.sigma / point.alpha)


@pytest.mark.parametrize("target", ["noise", "data", "velocity"])
def test_self_generated_states_hold_the_degraded_image_or_an_estimate(target):
    """Targets are still the clean image, and the noise is amplified."""
    sde = MeanRevertingSDE()
    x0, mu, guess, noise = torch.rand(4, 4, 3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    guess[:, :, 0] = 7.0  # far outside: a sampler would not go there
    t, query_time = torch.tensor([30, 60, 90, 50]), torch.tensor([0, 80, 0, 50])
    none = torch.zeros(4, dtype=torch.bool)
    objective = Objective(sde=sde, target=target)
    calls = []

    def network(x, mu, t, rows):
        calls.append((x, t, rows))
        return objective.targets(x, guess[rows] if len(calls) == 1 else x0, mu, t, none[: len(t)])

    value, _ = objective(network, x0, mu, t=t, noise=noise, from_prior=none, query_time=query_time)
    assert float(value) == pytest.approx(0, abs=1e-12)
    (first, first_t, rows), (x, _, _) = calls
    assert rows.tolist() == [1] and first_t.tolist() == [80]
    point = sde.point(80)
    assert torch.allclose(first, mu[1:2] + point.sigma * noise[1:2].flip(-1), rtol=0, atol=1e-12)
    held = torch.stack([x0[0], guess[1].clamp(x0[1].min(), x0[1].max()), x0[2], mu[3]])
    # More noise than belongs to the time, except where the state holds the clean image.
    pure = (x - sde.marginal(held, mu, t, 0 * noise)) / (
        sde.marginal(held, mu, t, noise) - sde.marginal(held, mu, t, 0 * noise)
    )
    excess = pure.flatten(1)[:, 0]
    assert torch.allclose(pure, excess.view(-1, 1, 1, 1).expand_as(pure), rtol=0, atol=1e-9)
    assert excess[[0, 2]].tolist() == pytest.approx([1, 1]) and 1 < excess[1] < 1.1 and 1 < excess[3] < 1.1


@pytest.mark.parametrize("loss", ["l1", "l2"])
def test_mean_error_of_a_patch_has_its_weight(loss):
    """The mean square error is that of the mean plus that of the rest; weight 0 leaves the mean out."""
    sde = MeanRevertingSDE()
    x0, mu, noise = torch.rand(3, 2, 3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    t, prior = torch.tensor([30, 60]), torch.zeros(2, dtype=torch.bool)
    plain = Objective(sde=sde, target="velocity")
    wanted = plain.targets(plain.states(x0, mu, t, noise, prior), x0, mu, t, prior)

    def value(error: torch.Tensor, mean_weight: float) -> float:
        objective = Objective(sde=sde, target="velocity", loss=loss, mean_weight=mean_weight)
        return float(objective(lambda *_: wanted + error, x0, mu, t=t, noise=noise, from_prior=prior)[0])

    constant = torch.full_like(x0, 0.5)
    detail = 0.1 * torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(2).expand_as(x0)
    power = 1 if loss == "l1" else 2
    assert value(constant, 0.2) == pytest.approx(0.2 * 0.5**power)
    assert value(constant + detail, 0.0) == pytest.approx(0.1**power)
    assert value(constant + detail, 0.2) == pytest.approx(0.1**power + 0.2 * 0.5**power)
    if loss == "l2":
        assert value(constant + detail, 1.0) == pytest.approx(0.1**2 + 0.5**2)


@pytest.mark.parametrize("loss", ["l1", "l2"])
def test_time_weighting_counts_errors_of_one_prediction_as_errors_of_another(loss):
    sde = MeanRevertingSDE()
    x0, mu, noise = torch.rand(3, 3, 3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    t, prior = torch.tensor([30, 60, 90]), torch.zeros(3, dtype=torch.bool)
    plain = Objective(sde=sde, target="velocity", loss=loss)
    weighted = replace(plain, weighting="data")
    x = plain.states(x0, mu, t, noise, prior)
    y = plain.targets(x, x0, mu, t, prior) + 0.1 * torch.randn(
        3, 3, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    )
    data = torch.stack(
        [
            convert(
                y[i], x[i], mu[i], sde.point(float(t[i])), source="velocity", target="data", sigma_inf=sde.sigma_inf
            )
            for i in range(3)
        ]
    )
    value, _ = weighted(lambda *_: y, x0, mu, t=t, noise=noise, from_prior=prior)
    assert float(value) == pytest.approx(float(matching_loss(data, x0, loss)), rel=1e-9)


def test_rms_loss_leads_to_the_mean_and_counts_images_alike():
    """Three of ten pixels are damaged by 1: median 0, mean 0.3; tenfold errors count tenfold."""
    damage = torch.zeros(1, 1, 2, 5, dtype=torch.float64)
    damage.flatten()[:3] = 1
    for kind, best in (("l1", 0.0), ("l2", 0.3), ("rms", 0.3)):
        guesses = torch.linspace(0, 1, 101, dtype=torch.float64)
        losses = [float(matching_loss(guess.expand_as(damage), damage, kind)) for guess in guesses]
        assert float(guesses[int(np.argmin(losses))]) == pytest.approx(best), kind
    errors = torch.tensor([0.1, 1.0], dtype=torch.float64).view(2, 1, 1, 1) * torch.tensor([[3.0, -4.0]]).view(
        1, 1, 1, 2
    )
    weights = torch.tensor([2.0, 1.0], dtype=torch.float64)
    root = math.sqrt(12.5)
    assert float(matching_loss(errors, 0 * errors, "rms")) == pytest.approx((0.1 + 1) / 2 * root, rel=1e-4)
    assert float(matching_loss(errors, 0 * errors, "rms", weights)) == pytest.approx((0.2 + 1) / 2 * root, rel=1e-4)


def test_perceptual_loss_is_that_of_the_recovered_image(lpips):
    """Added with its weight, in [0, 1] as the metric has it in 0..255; and the network learns from it."""
    sde = MeanRevertingSDE()
    x0, mu, noise = torch.rand(3, 2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    x0 = (255 * x0).round() / 255
    t, prior = torch.tensor([30, 100]), torch.tensor([False, True])
    plain = Objective(sde=sde, target="velocity", loss="rms")
    x = plain.states(x0, mu, t, noise, prior)
    # What the network says leads to this image exactly.
    found = (255 * torch.rand(x0.shape, generator=torch.Generator().manual_seed(1))).round() / 255
    alpha, sigma = (torch.tensor(f(t.numpy())).float().view(2, 1, 1, 1) for f in (sde.alpha, sde.sigma))
    y = ((mu - found + alpha * (x - mu)) * sde.sigma_inf / sigma).requires_grad_()
    objective = replace(plain, perceptual=lpips.distance, perceptual_weight=0.5)
    value, _ = objective(lambda *_: y, x0, mu, t=t, noise=noise, from_prior=prior)
    without, _ = plain(lambda *_: y, x0, mu, t=t, noise=noise, from_prior=prior)
    pixels = [(255 * image).round().byte().permute(0, 2, 3, 1).numpy() for image in (found, x0)]
    assert float((value - without).detach()) == pytest.approx(0.5 * float(lpips(*pixels).mean()), rel=1e-3)
    (slope,) = torch.autograd.grad(value - without, y)
    assert (slope.flatten(1).norm(dim=1) > 0).all()
