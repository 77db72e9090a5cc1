"""A training that is what was published, that can be stopped at any step, and divided."""

import json
import math
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
import yaml

from codes.commands.cli import test as evaluate
from codes.commands.cli import train
from codes.config import load_options
from codes.data.images import save_image
from codes.data.pairs import Item
from codes.metrics import LPIPS
from codes.networks import architecture, build
from codes.networks.checkpoints import Metadata, load_network, save_checkpoint
from codes.prediction import convert
from codes.restoration.loading import restorer_of
from codes.runtime.distributed import Process
from codes.sde import MeanRevertingSDE, Point
from codes.training import run as training
from codes.training import sets, states
from codes.training.data import Batch, Plan, Task, Times, TrainingSet, batches
from codes.training.objective import Objective, time_weights
from codes.training.optimisers import Lion, Muon, ema_decay, learning_rate, orthogonal, update_ema
from codes.training.published import matching_loss, optimal_step_mean, reverse_step_mean

from .test_metrics import load_or_skip

ROOT = Path(__file__).parent.parent
PUBLISHED = Path(__file__).parent / "data" / "published"
GOLDEN = Path(__file__).parent / "golden" / "training.npz"
SETTING = {"img_channel": 3, "width": 8, "enc_blk_nums": [1, 1], "middle_blk_num": 1, "dec_blk_nums": [1, 1]}
ALONE = Process()


def photo(rng: np.random.Generator, height: int = 80, width: int = 72) -> np.ndarray:
    """Something smooth with edges."""
    small = rng.integers(0, 255, (5, 5, 3)).astype(np.uint8)
    return cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR)


def write_photos(folder: Path, count: int = 6) -> None:
    rng = np.random.default_rng(0)
    for i in range(count):
        save_image(photo(rng), folder / f"{i:02}.png")


def write_options(folder: Path, name: str = "run", **changes: Any) -> Path:
    """An option file for photos in `folder`; JSON is YAML. `a.b` in changes is written a__b."""
    options: dict[str, Any] = {
        "name": name,
        "results": str(folder / "results"),
        "device": "cpu",
        "datasets": {
            "train": {
                "mode": "GT", "dataroot_GT": str(folder / "photos"), "degradation": ["noisy", "hazy", "rainy"],
                "batch_size": 4, "patch_size": 32, "n_workers": 0,
            },
            "val": {"mode": "GT", "dataroot_GT": str(folder / "photos"), "degradation": ["noisy"], "max_images": 1},
        },
        "network_G": {"which_model_G": "ConditionalNAFNet", "setting": dict(SETTING)},
        "sde": {"convention": "daclip"},
        "sampler": {"num_sample_steps": 2},
        "train": {
            "niter": 12, "target": "velocity", "prior_share": 0.4, "own_share": 0.3, "lr_G": 1e-3, "clip_grad": 1.0,
            "val_freq": 6,
        },
        "logger": {"print_freq": 2, "save_checkpoint_freq": 4},
    }  # fmt: skip
    for key, value in changes.items():
        *sections, last = key.split("__")
        target = options
        for section in sections:
            target = target.setdefault(section, {})
        target[last] = value
    path = folder / f"{name}.yml"
    path.write_text(json.dumps(options))
    return path


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Photos, and a training that ran without interruption."""
    folder = tmp_path_factory.mktemp("training")
    write_photos(folder / "photos")
    assert train(["-opt", str(write_options(folder, "reference"))]) == 0
    return folder


@pytest.fixture
def copy(world, tmp_path):
    """The same photos, no results."""
    shutil.copytree(world, tmp_path / "copy", ignore=shutil.ignore_patterns("results"))
    return tmp_path / "copy"


def weights(folder: Path, step: int = 12) -> dict[str, torch.Tensor]:
    return torch.load(folder / "models" / f"{step}_G.pth", weights_only=True)


def same_as_reference(folder: Path, world: Path) -> None:
    """Weights, averages and optimiser, bit by bit."""
    ours, theirs = (states.read(f / "training_state" / "12.state") for f in (folder, world / "results" / "reference"))
    assert_equal(ours, theirs)


def assert_equal(a: Any, b: Any) -> None:
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_equal(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_equal(x, y)
    elif isinstance(a, torch.Tensor):
        assert torch.equal(a, b)
    else:
        assert a == b


# ---- the objective


@pytest.fixture(scope="module")
def lpips():
    return load_or_skip(LPIPS)


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN) as arrays:
        return {key: torch.from_numpy(arrays[key]) for key in arrays.files}


@pytest.mark.parametrize("loss", ["l1", "l2"])
def test_published_loss_is_that_of_the_published_code(golden, loss):
    x0, mu, noise, predicted = (golden[f"in/{key}"].double() for key in ("x0", "mu", "noise", "predicted_noise"))
    t = golden["in/timesteps"].flatten()
    objective = Objective(MeanRevertingSDE(), "published", loss, weight=2.0)
    seen = []

    def network(x, mu, t, rows):
        seen.append(x)
        return predicted

    value, prediction = objective(network, x0, mu, t, noise, torch.zeros(len(t), dtype=torch.bool))
    assert float(value) == pytest.approx(2 * float(golden[f"f64/loss_{loss}"]), rel=1e-10)
    assert torch.allclose(seen[0], golden["f64/noisy_states"], rtol=0, atol=1e-12)
    assert prediction is predicted


def make_run(folder: Path, **changes: Any) -> training.Run:
    options = load_options(write_options(folder, "step", **changes), kind="train")
    return training.make_run(options, folder / "step", torch.device("cpu"), ALONE)


def first_batch(run: training.Run) -> Batch:
    return next(batches(run.data, 0, 1))


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
    learner, batch = training.make_learner(run, ALONE), first_batch(run)
    sde, t = run.models.sde, batch.t
    x = sde.marginal(batch.gt, batch.lq, t, batch.noise)
    eps = run.models.network(x, batch.lq, t)
    expected = matching_loss(
        reverse_step_mean(sde, x, batch.lq, t, eps), optimal_step_mean(sde, x, batch.gt, batch.lq, t), loss
    )
    expected.backward()
    gradients = [parameter.grad.clone() for parameter in run.models.network.parameters()]
    assert training.step(run, learner, batch, ALONE) == pytest.approx(float(expected.detach()), rel=1e-6)
    assert learner.done == 1
    for parameter, gradient in zip(run.models.network.parameters(), gradients, strict=True):
        assert torch.allclose(parameter.grad, gradient, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("target", ["noise", "data", "velocity"])
def test_targets_are_what_turns_into_the_clean_image(target):
    sde = MeanRevertingSDE()
    x0, mu, noise = torch.rand(3, 5, 3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    t = torch.tensor([1, 20, 60, 99, 100])
    prior = torch.tensor([False, False, False, False, target != "noise"])
    objective = Objective(sde, target)
    x = objective.states(x0, mu, t, noise, prior)
    y = objective.targets(x, x0, mu, t, prior)
    for i in range(5):
        point = Point(100, 0.0, sde.sigma_inf, -math.inf) if prior[i] else sde.point(float(t[i]))
        found = convert(y[i], x[i], mu[i], point, source=target, target="data", sigma_inf=sde.sigma_inf)
        assert torch.allclose(found, x0[i], atol=1e-9)
    value, _ = objective(lambda *_: y + 0.5, x0, mu, t, noise, prior)
    assert float(value) == pytest.approx(0.5)


def test_prior_states_have_no_trace_of_the_clean_image():
    sde = MeanRevertingSDE()
    x0, mu, noise = torch.rand(3, 4, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    t, prior = torch.full((4,), sde.T), torch.tensor([True, False, True, False])
    objective = Objective(sde, "velocity")
    x = objective.states(x0, mu, t, noise, prior)
    assert torch.equal(x[prior], sde.prior(mu, noise)[prior])
    assert torch.allclose(x[prior], (mu + sde.sigma_inf * noise)[prior], rtol=0, atol=1e-6)
    assert torch.equal(x[prior], objective.states(1 - x0, mu, t, noise, prior)[prior])
    assert not torch.equal(x[~prior], objective.states(1 - x0, mu, t, noise, prior)[~prior])
    assert torch.equal(objective.targets(x, x0, mu, t, prior)[prior], (mu - x0)[prior])


def test_noise_of_prior_states_is_that_from_which_a_sampler_finds_the_clean_image():
    """And its error counts as that of the data, which it is 39 times at t = T, but tenfold at the most."""
    sde = MeanRevertingSDE()
    x0, mu, noise = torch.rand(3, 2, 3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    t, prior = torch.full((2,), sde.T), torch.tensor([True, True])
    objective = Objective(sde, "noise", weighting="data")
    x = objective.states(x0, mu, t, noise, prior)
    y = objective.targets(x, x0, mu, t, prior)
    point = sde.point(float(sde.T))
    found = convert(y, x, mu, point, source="noise", target="data", sigma_inf=sde.sigma_inf)
    assert torch.allclose(found, x0, rtol=0, atol=1e-9)
    value, _ = objective(lambda *_: y + 0.01, x0, mu, t, noise, prior)
    assert point.sigma / point.alpha == pytest.approx(39.2, abs=0.1) and float(value) == pytest.approx(0.01 * 10)
    t = torch.full((2,), 60)
    point = sde.point(60.0)
    y = objective.targets(objective.states(x0, mu, t, noise, ~prior), x0, mu, t, ~prior)
    value, _ = objective(lambda *_: y + 0.01, x0, mu, t, noise, ~prior)
    assert float(value) == pytest.approx(0.01 * point.sigma / point.alpha)


@pytest.mark.parametrize("target", ["noise", "data", "velocity"])
def test_own_states_hold_what_a_samplers_would(target):
    """The degraded image, or what the network finds from it earlier. There too it is to find the clean image."""
    sde = MeanRevertingSDE()
    x0, mu, guess, noise = torch.rand(4, 4, 3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    guess[:, :, 0] = 7.0  # far outside: a sampler would not go there
    t, asked = torch.tensor([30, 60, 90, 50]), torch.tensor([0, 80, 0, 50])
    none = torch.zeros(4, dtype=torch.bool)
    objective = Objective(sde, target)
    calls = []

    def network(x, mu, t, rows):
        calls.append((x, t, rows))
        return objective.targets(x, guess[rows] if len(calls) == 1 else x0, mu, t, none[: len(t)])

    value, _ = objective(network, x0, mu, t, noise, none, asked)
    assert float(value) == pytest.approx(0, abs=1e-12)
    (first, first_t, rows), (x, _, _) = calls
    assert rows.tolist() == [1] and first_t.tolist() == [80]
    point = sde.point(80)
    assert torch.allclose(first, mu[1:2] + point.sigma * noise[1:2].flip(-1), rtol=0, atol=1e-12)
    held = torch.stack([x0[0], guess[1].clamp(x0[1].min(), x0[1].max()), x0[2], mu[3]])
    # With more noise than belongs to the time, but not where the state holds the clean image.
    pure = (x - sde.marginal(held, mu, t, 0 * noise)) / (
        sde.marginal(held, mu, t, noise) - sde.marginal(held, mu, t, 0 * noise)
    )
    excess = pure.flatten(1)[:, 0]
    assert torch.allclose(pure, excess.view(-1, 1, 1, 1).expand_as(pure), rtol=0, atol=1e-9)
    assert excess[[0, 2]].tolist() == pytest.approx([1, 1]) and 1 < excess[1] < 1.4 and 1 < excess[3] < 1.4


@pytest.mark.parametrize("loss", ["l1", "l2"])
def test_mean_error_of_a_patch_counts_as_told(loss):
    """The square of an error is that of its mean and that of the rest; 0 leaves the mean out."""
    sde = MeanRevertingSDE()
    x0, mu, noise = torch.rand(3, 2, 3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    t, prior = torch.tensor([30, 60]), torch.zeros(2, dtype=torch.bool)
    plain = Objective(sde, "velocity")
    wanted = plain.targets(plain.states(x0, mu, t, noise, prior), x0, mu, t, prior)

    def value(error: torch.Tensor, mean_weight: float) -> float:
        objective = Objective(sde, "velocity", loss, mean_weight=mean_weight)
        return float(objective(lambda *_: wanted + error, x0, mu, t, noise, prior)[0])

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
    plain, weighted = Objective(sde, "velocity", loss), Objective(sde, "velocity", loss, weighting="data")
    x = plain.states(x0, mu, t, noise, prior)
    y = plain.targets(x, x0, mu, t, prior) + 0.1 * torch.randn(3, 3, 4, 4, dtype=torch.float64)
    data = torch.stack(
        [
            convert(
                y[i], x[i], mu[i], sde.point(float(t[i])), source="velocity", target="data", sigma_inf=sde.sigma_inf
            )
            for i in range(3)
        ]
    )
    value, _ = weighted(lambda *_: y, x0, mu, t, noise, prior)
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


def test_perceptual_loss_is_of_the_image_that_a_sampler_finds(lpips):
    """Added with its weight, in [0, 1] as the metric has it in 0..255; and the network learns from it."""
    sde = MeanRevertingSDE()
    x0, mu, noise = torch.rand(3, 2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    x0 = (255 * x0).round() / 255
    t, prior = torch.tensor([30, 100]), torch.tensor([False, True])
    plain = Objective(sde, "velocity", "rms")
    x = plain.states(x0, mu, t, noise, prior)
    # What the network says leads to this image exactly.
    found = (255 * torch.rand(x0.shape, generator=torch.Generator().manual_seed(1))).round() / 255
    alpha, sigma = (torch.tensor(f(t.numpy())).float().view(2, 1, 1, 1) for f in (sde.alpha, sde.sigma))
    y = ((mu - found + alpha * (x - mu)) * sde.sigma_inf / sigma).requires_grad_()
    objective = Objective(sde, "velocity", "rms", perceptual=lpips.distance, perceptual_weight=0.5)
    value, _ = objective(lambda *_: y, x0, mu, t, noise, prior)
    without, _ = plain(lambda *_: y, x0, mu, t, noise, prior)
    pixels = [(255 * image).round().byte().permute(0, 2, 3, 1).numpy() for image in (found, x0)]
    assert float((value - without).detach()) == pytest.approx(0.5 * float(lpips(*pixels).mean()), rel=1e-3)
    (slope,) = torch.autograd.grad(value - without, y)
    assert (slope.flatten(1).norm(dim=1) > 0).all()


# ---- optimisers, rates, averages


def test_lion_by_hand():
    p = torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64))
    optimiser = Lion([p], lr=0.1, betas=(0.9, 0.99), weight_decay=0.5)
    weights, momentum = p.detach().numpy().copy(), np.zeros(3)
    for gradient in ([1.0, -1.0, 0.5], [-20.0, 0.1, 0.0], [0.3, 0.3, -9.0]):
        p.grad = torch.tensor(gradient, dtype=torch.float64)
        optimiser.step()
        weights = weights * (1 - 0.1 * 0.5) - 0.1 * np.sign(0.9 * momentum + 0.1 * np.array(gradient))
        momentum = 0.99 * momentum + 0.01 * np.array(gradient)
        assert np.allclose(p.detach().numpy(), weights, rtol=0, atol=1e-14)
    assert np.allclose(optimiser.state[p]["exp_avg"].numpy(), momentum, rtol=0, atol=1e-14)


@pytest.mark.parametrize("shape", [(48, 32), (32, 48), (32, 32)])
def test_orthogonal_keeps_directions_and_evens_out_their_lengths(shape):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    u, _, vh = torch.linalg.svd(matrix, full_matrices=False)
    scales = torch.logspace(0, -2, len(vh), dtype=torch.float64)
    lengths = u.T @ orthogonal(u @ torch.diag(scales) @ vh) @ vh.T
    assert torch.allclose(lengths, torch.diag(torch.diag(lengths)), rtol=0, atol=1e-9)
    assert 0.6 < float(torch.diag(lengths).min()) <= float(torch.diag(lengths).max()) < 1.3


def test_muon_moves_matrices_alike_and_others_as_adamw():
    generator = torch.Generator().manual_seed(0)
    matrix = torch.nn.Parameter(torch.zeros(32, 64, 1, 1, dtype=torch.float64))
    others = [torch.nn.Parameter(torch.ones(shape, dtype=torch.float64)) for shape in ((40,), (1, 40, 1, 1), (64, 9))]
    twins = [torch.nn.Parameter(p.detach().clone()) for p in others]
    muon = Muon([matrix, *others], lr=0.01, betas=(0.9, 0.99), weight_decay=0.1)
    adam = torch.optim.AdamW(twins, lr=0.01, betas=(0.9, 0.99), weight_decay=0.1)
    gradient = torch.randn(32, 64, generator=generator, dtype=torch.float64)
    for scale in (1.0, 100.0, 0.01):
        before = matrix.detach().clone()
        matrix.grad = scale * gradient.view_as(matrix)
        for p, twin in zip(others, twins, strict=True):
            p.grad = scale * torch.randn(p.shape, generator=generator, dtype=torch.float64)
            twin.grad = p.grad.clone()
        muon.step()
        adam.step()
        moved = matrix.detach() - (1 - 0.01 * 0.1) * before
        expected = -0.01 * 0.2 * 8 * orthogonal(gradient).view_as(matrix)  # of any scale; 8 is the root of 64
        assert torch.allclose(moved, expected, rtol=0, atol=1e-6)
    assert all(torch.allclose(p, twin, rtol=0, atol=1e-10) for p, twin in zip(others, twins, strict=True))


def test_muon_goes_on_exactly(copy):
    muon = {"train__optimizer": "Muon"}
    assert train(["-opt", str(write_options(copy, "whole", **muon))]) == 0
    state = copy / "results" / "whole" / "training_state" / "8.state"
    assert train(["-opt", str(write_options(copy, "rest", path={"resume_state": str(state)}, **muon))]) == 0
    ours, theirs = (states.read(copy / "results" / name / "training_state" / "12.state") for name in ("rest", "whole"))
    assert_equal(ours, theirs)


# n: how much is kept; 0 is a copy. 1 - (n - 99)^(-2/3) from 120 on, 0.995 at the most.
EMA = {0: 0.0, 1: None, 9: None, 10: 0.0, 100: 0.0, 105: None, 110: 0.0, 119: None, 120: 0.86862, 130: 0.89867,
       500: 0.98161, 1000: 0.98928, 2920: 0.99499, 2930: 0.995, 2935: None, 100000: 0.995}  # fmt: skip


def test_moving_average_follows_the_table():
    for n, decay in EMA.items():
        assert ema_decay(n) == (None if decay is None else pytest.approx(decay, abs=1e-5)), n


def test_moving_average_of_numbers():
    network, average = torch.nn.Linear(1, 1, bias=False), torch.nn.Linear(1, 1, bias=False)
    expected = None
    for n in range(200):
        with torch.no_grad():
            network.weight.fill_(float(n))
        update_ema(average, network, n)
        if n % 10 == 0:
            keep = 0.0 if n <= 110 else 1 - (1 + n - 100) ** (-2 / 3)
            expected = n if keep == 0 else keep * expected + (1 - keep) * n
        assert float(average.weight.detach()) == pytest.approx(expected, rel=1e-5)


def test_learning_rates(copy):
    def options(**changes):
        return load_options(write_options(copy, "rates", **changes), kind="train").train

    cosine = options(train__lr_G=2e-4, train__eta_min=1e-6, train__niter=1000)
    for step in (0, 250, 500, 999, 1000):
        expected = 1e-6 + (2e-4 - 1e-6) * (1 + math.cos(math.pi * step / 1000)) / 2
        assert learning_rate(cosine, step) == pytest.approx(expected, rel=1e-12)
    steps = options(train__lr_scheme="MultiStepLR", train__lr_steps=[5, 9], train__lr_gamma=0.1, train__lr_G=1.0)
    assert [learning_rate(steps, step) for step in (0, 4, 5, 8, 9, 100)] == [1, 1, 0.5, 0.5, 0.25, 0.25]
    warm = options(train__lr_scheme="MultiStepLR", train__lr_steps=[99], train__lr_G=1.0, train__warmup_iter=4)
    assert [learning_rate(warm, step) for step in (0, 1, 3, 4)] == [0.25, 0.5, 1, 1]


# ---- the data


def plan_of(folder: Path, tasks: tuple[str, ...] = ("a", "b"), **changes: Any) -> Plan:
    """Pairs whose degraded image is 255 minus the clean one, the upper left corner brighter by the task's number."""
    rng = np.random.default_rng(1)
    made = []
    for number, task in enumerate(tasks):
        items = []
        for i in range(3 + number):
            clean = photo(rng, 50, 60)
            save_image(clean, folder / task / f"{i}-gt.png")
            save_image(255 - clean, folder / task / f"{i}-lq.png")
            items.append(Item(str(i), folder / task / f"{i}-lq.png", folder / task / f"{i}-gt.png"))
        made.append(Task(task, tuple(items)))
    return Plan(tuple(made), Times((1.0,) * 100), patch=24, batch=4, **changes)


def assert_same(a: Batch, b: Batch) -> None:
    assert a.names == b.names
    for key in ("lq", "gt", "noise", "t", "prior"):
        assert torch.equal(getattr(a, key), getattr(b, key)), key


@pytest.mark.slow
def test_samples_do_not_depend_on_processes(copy):
    plan = make_run(copy).data
    whole = list(batches(plan, 0, 4))
    for a, b in zip(whole, batches(plan, 0, 4, workers=2), strict=True):
        assert_same(a, b)
    for a, first, second in zip(whole, batches(plan, 0, 4, 0, 2), batches(plan, 0, 4, 1, 2), strict=True):
        assert_same(a.part(slice(0, 2)), first)
        assert_same(a.part(slice(2, 4)), second)
    assert_same(whole[3], next(batches(plan, 3, 4)))
    assert len({name for batch in whole for name in batch.names}) > 4
    assert not torch.equal(whole[0].noise, whole[1].noise)


def test_pairs_stay_pairs_and_are_turned(tmp_path):
    plan = plan_of(tmp_path)
    turned = Counter()
    for batch in batches(plan, 0, 12):
        assert torch.allclose(batch.lq, 1 - batch.gt, atol=1e-6)
        assert batch.gt.shape == (4, 3, 24, 24)
        turned.update(round(float(image.sum()), 3) for image in batch.gt)
    assert len(turned) > 40
    still = plan_of(tmp_path, ("a",), flip=False, rotate=False, shuffle=False)
    first = next(batches(still, 0, 1))
    assert first.names == ("a/0", "a/1", "a/2", "a/0")


def test_images_are_shrunk_before_they_are_degraded(tmp_path):
    """A ramp that grows by one level per pixel: shrunk by a factor s, it grows by 1/s."""
    ramp = np.broadcast_to(np.arange(256, dtype=np.uint8)[None, :, None], (256, 256, 3))
    save_image(ramp, tmp_path / "ramp.png")
    items = (Item("ramp", None, tmp_path / "ramp.png"),)
    tasks = (Task("noisy", items, lambda: lambda image, rng: 1 - image),)

    def scales(min_scale: float) -> np.ndarray:
        plan = Plan(tasks, Times((1.0,)), 32, 8, min_scale=min_scale, shared_images=True)
        pairs = list(batches(plan, 0, 25))
        assert all(torch.allclose(batch.lq, 1 - batch.gt) for batch in pairs)
        return np.array([31 / 255 / float(image.max() - image.min()) for batch in pairs for image in batch.gt])

    assert scales(1.0) == pytest.approx(np.ones(200))
    drawn = np.log(scales(0.25)) / np.log(0.25)
    # Even in the logarithm, from one end to the other.
    assert drawn.min() == pytest.approx(0, abs=0.05) and drawn.max() == pytest.approx(1, abs=0.05)
    assert np.mean(drawn) == pytest.approx(0.5, abs=0.08) and np.std(drawn) == pytest.approx(12**-0.5, abs=0.04)


def test_patches_grow_at_their_steps(tmp_path):
    plan = plan_of(tmp_path, patches=((2, 32), (5, 40)))
    assert [batch.gt.shape[-1] for batch in batches(plan, 0, 7)] == [24, 24, 32, 32, 32, 40, 40]
    assert_same(list(batches(plan, 0, 5))[4], next(batches(plan, 4, 5)))
    options = load_options(write_options(tmp_path, datasets__train__patch_sizes=[[9, 64], [4, 48]]), kind="train")
    write_photos(tmp_path / "photos")
    assert sets.training_plan(options).patches == ((4, 48), (9, 64))


def test_published_multi_degradation_order(tmp_path):
    """One epoch: index mod K is the task, whatever the sizes of the folders; any image of it."""
    plan = plan_of(tmp_path, ("a", "b", "c"))
    assert plan.length == 3 + 4 + 5
    names = [name for batch in batches(plan, 0, 300) for name in batch.names]
    for start in range(0, len(names), 12):
        assert Counter(name[0] for name in names[start : start + 12]) == {"a": 4, "b": 4, "c": 4}
    assert names[:12] != names[12:24]
    counts = Counter(names)
    assert len(counts) == 12 and all(abs(counts[f"c/{i}"] - 80) < 35 for i in range(5))


def test_tasks_are_drawn_by_weight(tmp_path):
    plan = plan_of(tmp_path, ("a", "b"), weights=(3.0, 1.0))
    counts = Counter(name[0] for batch in batches(plan, 0, 200) for name in batch.names)
    assert counts["a"] / 800 == pytest.approx(0.75, abs=0.05)


def test_every_photo_once_in_an_epoch(copy):
    plan = make_run(copy).data
    assert plan.shared_images and plan.length == 6
    images = [name.split("/")[1] for batch in batches(plan, 0, 3) for name in batch.names]
    assert sorted(images[:6]) == sorted(images[6:]) == [f"{i:02}" for i in range(6)]


def test_times_and_shares():
    times = Times((1.0,) * 100, prior_share=0.5, own_share=0.3)
    rng = np.random.default_rng(0)
    drawn = [times.draw(rng) for _ in range(4000)]
    assert {t for t, prior, _ in drawn if prior} == {100}
    assert np.mean([prior for _, prior, _ in drawn]) == pytest.approx(0.5, abs=0.03)
    own = [(t, asked) for t, prior, asked in drawn if asked and not prior]
    assert len(own) / 4000 == pytest.approx(0.3, abs=0.03) and not any(prior and asked for _, prior, asked in drawn)
    assert all(t <= asked <= 100 for t, asked in own)
    assert np.mean([asked == t for t, asked in own if t < 100]) == pytest.approx(0.25, abs=0.05)
    plain = [t for t, prior, _ in drawn if not prior]
    assert min(plain) == 1 and max(plain) == 100 and np.mean(plain) == pytest.approx(50.5, abs=2.5)
    sde = MeanRevertingSDE()
    late = Times(time_weights(sde, "late"))
    assert np.mean([late.draw(rng)[0] for _ in range(4000)]) == pytest.approx(67, abs=2)
    assert all(weight > 0 for weight in time_weights(sde, "lambda"))


def test_super_resolution_pairs_are_enlarged(tmp_path):
    clean = photo(np.random.default_rng(0), 64, 48)
    save_image(clean, tmp_path / "gt.png")
    save_image(cv2.resize(clean, (24, 32), interpolation=cv2.INTER_AREA), tmp_path / "lq.png")
    task = Task("sr", (Item("x", tmp_path / "lq.png", tmp_path / "gt.png"),), enlarge=2)
    batch = next(batches(Plan((task,), Times((1.0,)), 24, 4), 0, 1))
    assert batch.lq.shape == batch.gt.shape == (4, 3, 24, 24)
    assert float((batch.lq - batch.gt).abs().mean()) < 0.02


def test_bad_images_are_named(tmp_path):
    save_image(photo(np.random.default_rng(0), 20, 60), tmp_path / "gt.png")
    save_image(photo(np.random.default_rng(0), 20, 30), tmp_path / "lq.png")
    (tmp_path / "text.png").write_text("not an image")

    def problem(lq: str, gt: str) -> str:
        task = Task("t", (Item("x", tmp_path / lq, tmp_path / gt),))
        return TrainingSet(Plan((task,), Times((1.0,)), 24, 4))[0].problem

    assert problem("gt.png", "gt.png") == f"{tmp_path}/gt.png: 60x20 is smaller than the patches of 24x24"
    assert problem("lq.png", "gt.png") == f"{tmp_path}/lq.png: 30x20 does not fit {tmp_path}/gt.png, 60x20"
    assert "text.png: not an image in a known format" in problem("text.png", "gt.png")


def test_bad_images_stop_the_training(copy, capsys):
    (copy / "photos" / "03.png").write_text("not an image")
    assert train(["-opt", str(write_options(copy))]) == 1
    assert "03.png: not an image in a known format" in capsys.readouterr().err


def test_what_was_learned_before_a_bad_image_is_kept(world, copy, capsys):
    """Photos that are too small for the patches of a later step."""
    growing = write_options(copy, "growing", datasets__train__patch_sizes=[[5, 96]])
    assert train(["-opt", str(growing)]) == 1
    assert "72x80 is smaller than the patches of 96x96" in capsys.readouterr().err
    assert (copy / "results" / "growing" / "training_state" / "5.state").is_file()


# ---- a run


def test_folder_has_everything(world):
    folder = world / "results" / "reference"
    assert {path.name for path in (folder / "models").iterdir()} == {
        *(f"{step}_G.pth" for step in (4, 8, 12)),
        *(f"{step}_EMA.safetensors" for step in (4, 8, 12)),
        "lastest_EMA.pth",
    }
    assert [path.name for path in states.states(folder)] == ["12.state", "8.state"]
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    assert [line["step"] for line in steps] == [2, 4, 6, 8, 10, 12]
    options = load_options(world / "reference.yml", kind="train").train
    assert [line["lr"] for line in steps] == [learning_rate(options, line["step"] - 1) for line in steps]
    assert all(line["images/s"] > 0 for line in steps)
    checks = [line for line in lines if "validation" in line]
    assert [line["step"] for line in checks] == [6, 12]
    assert {"val/input", "val/t=T", "val/mrsampler-nfe2", "all/t=T"} <= set(checks[0]["validation"])
    assert checks[0]["validation"]["val/input"] == checks[1]["validation"]["val/input"]
    assert cv2.imread(str(folder / "validation" / "12.png")).shape[1] > 4 * 200
    assert len(json.loads((folder / "environment.json").read_text())) == 1
    assert yaml.safe_load((folder / "options.yml").read_text())["train"]["target"] == "velocity"
    assert not list(folder.rglob("*.part*"))


def test_checkpoints_run_by_themselves(world, copy):
    folder = world / "results" / "reference"
    network, metadata = load_network(folder / "models" / "12_EMA.safetensors")
    assert (metadata.fit_target, metadata.weights, metadata.sde.convention) == ("velocity", "ema", "daclip")
    average = torch.load(folder / "models" / "lastest_EMA.pth", weights_only=True)
    assert_equal(dict(network.state_dict()), average)
    assert load_network(folder / "models")[1].source == str(folder / "models" / "12_EMA.safetensors")
    data = {"val": {"mode": "GT", "dataroot_GT": str(copy / "photos"), "degradation": ["noisy", "hazy"]}}
    file = copy / "test.yml"
    for name in ("12_EMA.safetensors", "12_G.pth"):
        path = {"pretrain_model_G": str(folder / "models" / name)}
        file.write_text(json.dumps({"datasets": data, "path": path, "device": "cpu"}))
        restorer = restorer_of(load_options(file), torch.device("cpu"))
        assert restorer.fit_target == ("velocity" if "EMA" in name else "noise")  # a .pth cannot tell
    changes = ["sampler.num_sample_steps=2", f"results={copy}/r", "metrics.names=[psnr]"]
    changes.append(f"path.pretrain_model_G={folder}/models/12_EMA.safetensors")
    assert evaluate(["-opt", str(file), "--set", *changes]) == 0
    assert len(list((copy / "r").glob("test/*/mrsampler-nfe2/*.png"))) == 12


def test_published_target_is_recorded_as_noise(copy):
    assert train(["-opt", str(write_options(copy, train__target="published", train__niter=1))]) == 0
    _, metadata = load_network(copy / "results" / "run" / "models" / "1_EMA.safetensors")
    assert metadata.fit_target == "noise"


def test_loss_falls_and_the_average_follows(copy):
    path = write_options(
        copy, train__niter=120, train__lr_G=2e-3, logger__print_freq=20, logger__save_checkpoint_freq=120,
        datasets__train__degradation="noisy", datasets__train__patch_size=24, train__val_freq=1000,
        train__prior_share=1.0,
        train__own_share=0.0,
    )  # fmt: skip
    assert train(["-opt", str(path)]) == 0
    lines = [json.loads(line) for line in (copy / "results" / "run" / "log.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[-1] < 0.6 * losses[0]
    scores = lines[-1]["validation"]
    assert scores["val/t=T"]["psnr"] > scores["val/input"]["psnr"] + 3
    ema, online = states.read(copy / "results/run/training_state/120.state")["ema"], weights(copy / "results/run", 120)
    assert any(not torch.equal(ema[key], online[key]) for key in ema)


def test_batches_in_parts_give_the_same_gradients(world, copy):
    assert train(["-opt", str(write_options(copy, train__accumulate=2))]) == 0
    ours, theirs = weights(copy / "results" / "run"), weights(world / "results" / "reference")
    assert all(torch.allclose(ours[key], theirs[key], rtol=0, atol=1e-5) for key in ours)


def test_going_on_from_weights_and_from_another_run(world, copy):
    models = world / "results" / "reference" / "models"
    path = {"pretrain_model_G": str(models / "12_G.pth")}
    run = make_run(copy, path=path)
    assert_equal(dict(run.models.network.state_dict()), weights(world / "results" / "reference"))
    state = world / "results" / "reference" / "training_state" / "8.state"
    assert train(["-opt", str(write_options(copy, path={"resume_state": str(state)}))]) == 0
    same_as_reference(copy / "results" / "run", world)


def test_contexts_of_daclip(copy):
    from codes.networks.daclip import DaCLIP

    from .network_examples import DACLIP_SETTING
    from .test_daclip import TINY

    torch.manual_seed(0)
    clip = DaCLIP(TINY)
    save_checkpoint(copy / "clip.safetensors", clip.state_dict(), Metadata(architecture("DaCLIP", TINY)))
    width = {**DACLIP_SETTING, "context_dim": TINY["embed_dim"]}
    run = make_run(
        copy, network_G={"which_model_G": "ConditionalUNet", "setting": width}, sde={}, train__target="published",
        path={"daclip": str(copy / "clip.safetensors")},
    )  # fmt: skip
    assert run.models.sde.convention == "daclip"
    learner, batch = training.make_learner(run, ALONE), first_batch(run)
    features = clip.eval().controlled(clip.preprocess(batch.lq))
    text, image = training.contexts(run.models, batch)
    assert torch.allclose(text, features.degradation, atol=1e-5) and torch.allclose(image, features.image, atol=1e-5)
    before = {key: value.clone() for key, value in run.models.daclip.state_dict().items()}
    assert math.isfinite(training.step(run, learner, batch, ALONE))
    assert_equal(before, dict(run.models.daclip.state_dict()))
    prompt = dict(run.models.network.named_parameters())["text_mlp.0.weight"]
    assert prompt.grad.abs().sum() > 0


def test_latents(copy):
    from .network_examples import LATENT_SETTING

    choice = architecture("UNet", LATENT_SETTING)
    save_checkpoint(copy / "latent.safetensors", build(choice).state_dict(), Metadata(choice))
    run = make_run(
        copy, model="latent_denoising", network_L={"which_model": "UNet", "setting": LATENT_SETTING}, sde={},
        network_G={"which_model_G": "ConditionalNAFNet", "setting": {**SETTING, "img_channel": 4}},
        path={"pretrain_model_L": str(copy / "latent.safetensors")}, train__target="published",
    )  # fmt: skip
    batch = first_batch(run)
    assert batch.noise.shape == run.models.latent.encode(batch.lq)[0].shape
    assert math.isfinite(training.step(run, training.make_learner(run, ALONE), batch, ALONE))


# ---- stopped


def test_a_loss_that_is_not_finite_names_step_and_images(copy, capsys, monkeypatch):
    original = training.batch_loss

    def broken(run, network, batch):
        loss, prediction = original(run, network, batch)
        if first not in batch.names:
            return loss, prediction
        prediction = prediction.clone()
        prediction[batch.names.index(first)] = math.nan
        return loss * math.nan, prediction

    run = make_run(copy)
    first = list(batches(run.data, 0, 3))[2].names[1]
    monkeypatch.setattr(training, "batch_loss", broken)
    assert train(["-opt", str(write_options(copy))]) == 1
    message = capsys.readouterr().err
    assert "the loss is not finite; images: " in message and first in message
    assert not list((copy / "results" / "run").rglob("12_G.pth"))


def test_weights_that_are_not_finite_are_not_saved(copy):
    run = make_run(copy)
    with torch.no_grad():
        next(run.models.network.parameters())[0] = math.inf
    with pytest.raises(states.StateError, match="nothing saved after step 3, the weights .* are not finite"):
        states.save(copy, 3, run.models.network, run.models.ema, {}, run.metadata)
    assert not (copy / "models").exists()


def test_started_again_it_does_nothing(world, copy):
    options = str(write_options(copy, "reference"))
    assert train(["-opt", options]) == 0
    before = {path: path.stat().st_mtime_ns for path in (copy / "results" / "reference" / "models").iterdir()}
    assert train(["-opt", options]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in (copy / "results" / "reference" / "models").iterdir()}


def test_a_damaged_state_is_passed_over(world, copy):
    options = str(write_options(copy, "reference"))
    assert train(["-opt", options]) == 0
    folder = copy / "results" / "reference"
    state = folder / "training_state" / "12.state"
    state.write_bytes(state.read_bytes()[:1000])
    assert train(["-opt", options]) == 0
    same_as_reference(folder, world)
    lines = [json.loads(line)["step"] for line in (folder / "log.jsonl").read_text().splitlines()]
    assert lines == [2, 4, 6, 6, 8, 10, 12, 12]


def test_other_options_in_the_same_folder_are_refused(world, copy, capsys):
    assert train(["-opt", str(write_options(copy, "reference"))]) == 0
    capsys.readouterr()
    assert train(["-opt", str(write_options(copy, "reference", train__lr_G=1e-4))]) == 2
    assert "  train.lr_G: 0.001 -> 0.0001" in capsys.readouterr().err
    # What does not change the weights may differ.
    free = {"train__val_freq": 100, "logger__print_freq": 1, "datasets__train__cache": 10}
    assert train(["-opt", str(write_options(copy, "reference", **free))]) == 0


def run_in_child(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    os._exit(train(arguments))


@pytest.fixture(scope="module")
def children():
    """Starts trainings in processes of their own, quickly: torch is imported once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["codes.training.run", "tests.test_training"])
    return context


def interrupted(children, options: Path, when: Callable[[], bool], number: int) -> int:
    """Start a training, send it a signal when it is time; returns its exit code."""
    child = children.Process(target=run_in_child, args=(["-opt", str(options)],))
    child.start()
    deadline = time.monotonic() + 60
    while child.is_alive() and not when() and time.monotonic() < deadline:
        time.sleep(0.003)
    os.kill(child.pid, number)
    child.join(60)
    return child.exitcode


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_killed_and_continued_it_has_the_same_weights(world, copy, children, workers):
    options = write_options(copy, "reference", datasets__train__n_workers=workers)
    folder = copy / "results" / "reference"
    log = folder / "log.jsonl"
    # After a checkpoint, and while one is being written.
    moments: list[Callable[[], bool]] = [
        lambda: (folder / "training_state" / "4.state").is_file(),
        lambda: (folder / "models" / "8_G.pth").is_file(),
    ]
    for moment in moments[workers:]:
        assert interrupted(children, options, moment, signal.SIGKILL) == -signal.SIGKILL
    assert train(["-opt", str(options)]) == 0
    same_as_reference(folder, world)
    steps = [line["step"] for line in map(json.loads, log.read_text().splitlines()) if "loss" in line]
    assert steps == [2, 4, 6, 8, 10, 12]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_saves_and_goes_on(world, copy, children, number):
    options = write_options(copy, "reference", logger__save_checkpoint_freq=100, logger__print_freq=1)
    folder = copy / "results" / "reference"
    log = folder / "log.jsonl"
    code = interrupted(children, options, lambda: log.is_file() and log.read_text().count("\n") >= 3, number)
    assert code == 130
    (state,) = states.states(folder)
    assert 3 <= int(state.stem) < 12
    assert train(["-opt", str(options)]) == 0
    same_as_reference(folder, world)


def torchrun(processes: int, options: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={processes}", "--standalone"]
    result = subprocess.run(
        [*command, str(ROOT / "train.py"), "-opt", str(options)], capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("optimiser", ["AdamW", "Muon"])
def test_two_processes_equal_one_with_the_whole_batch(world, copy, optimiser):
    if optimiser == "Muon":
        world = copy / "alone"
        shutil.copytree(copy / "photos", world / "photos")
        assert train(["-opt", str(write_options(world, "reference", train__optimizer=optimiser))]) == 0
    torchrun(2, write_options(copy, "reference", train__optimizer=optimiser))
    folder = copy / "results" / "reference"
    ours, theirs = weights(folder), weights(world / "results" / "reference")
    # 12 steps of Adam, which magnifies the rounding of gradients that are almost 0; weights are moved by up to 0.01.
    assert all(torch.allclose(ours[key], theirs[key], rtol=0, atol=2e-5) for key in ours)
    assert json.loads((folder / "environment.json").read_text())[0]["processes"] == 2
    losses = [
        [line["loss"] for line in map(json.loads, (f / "log.jsonl").read_text().splitlines()) if "loss" in line]
        for f in (folder, world / "results" / "reference")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


# ---- options


@pytest.mark.parametrize("file", sorted(PUBLISHED.glob("train-*.yml")), ids=lambda file: file.stem)
def test_published_files_say_what_is_missing(file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert train(["-opt", str(file), "--dry-run"]) == 2
    message = capsys.readouterr().err
    raw = yaml.safe_load(file.read_text())
    if raw["model"] == "latent":
        assert message.startswith(f"{file}: model: latent (training the network between images and latents) is not")
    else:
        dataset = raw["datasets"]["train"]
        root = dataset.get("dataroot") or dataset.get("dataroot_LQ") or dataset["dataroot_GT"]
        assert message == f"{file}: datasets.train: {root}: no such folder\n"


def test_published_files_resolve_with_their_data(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for split in ("trainH", "testH"):
        save_image(photo(rng), tmp_path / "datasets" / "rain" / split / "GT" / "1.png")
        save_image(photo(rng), tmp_path / "datasets" / "rain" / split / "LQ" / "1.png")
    small = ["network_G.setting.nf=8", "network_G.setting.depth=2"]
    assert train(["-opt", str(PUBLISHED / "train-deraining.yml"), "--dry-run", "--set", *small]) == 0
    printed = capsys.readouterr().out
    assert "train on Train_Dataset: 1 images" in printed and "ignored: train.lr_gamma: ignored" in printed
    more = ["train.niter=2", "datasets.train.GT_size=32", "datasets.train.n_workers=0", "sde.sample_T=2", "device=cpu"]
    assert train(["-opt", str(PUBLISHED / "train-deraining.yml"), "--set", *small, *more]) == 0
    assert (tmp_path / "results" / "ir-sde" / "models" / "2_G.pth").is_file()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"datasets__train__patch_sizes": [[4, 48, 1]]}, "datasets.train.patch_sizes[0]: expected [step, side]"),
        ({"datasets__train__batch_size": 3, "train__accumulate": 2}, "datasets.train.batch_size: 3 cannot be divided"),
        ({"train__task_weights": {"snowy": 2}}, "train.task_weights.snowy: the training set has no such task, only no"),
        ({"train__task_weights": {"snowi": 2}}, "train.task_weights.snowi: "),
        ({"sampler__fit_target": "data"}, "sampler.fit_target: data contradicts train.target velocity"),
        ({"path": {"pretrain_model_G": "no.pth"}}, "path.pretrain_model_G: no.pth: no such file"),
        ({"path": {"resume_state": "no.state"}}, "path.resume_state: no.state: no such file"),
        ({"network_G__setting__widht": 8}, "network_G.setting.widht"),
        (
            {"train__perceptual_weight": 0.1, "train__target": "noise"},
            "train.perceptual_weight: needs train.target data or velocity, got noise",
        ),
        (
            {"train__perceptual_weight": 0.1, "datasets__train__patch_size": 24},
            "train.perceptual_weight: needs patches of at least 31 pixels, got 24",
        ),
        ({"datasets__train__mode": "LQ", "datasets__train__dataroot_LQ": "d"}, "mode LQ has no clean images"),
    ],
)
def test_bad_options_are_told_in_one_line(copy, capsys, changes, expected):
    assert train(["-opt", str(write_options(copy, **changes))]) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert expected in message and message.startswith(str(copy / "run.yml"))


def test_states_of_other_programs_are_refused(copy, capsys):
    torch.save({"epoch": 1, "iter": 5, "schedulers": [], "optimizers": []}, copy / "5.state")
    assert train(["-opt", str(write_options(copy, path={"resume_state": str(copy / "5.state")}))]) == 2
    assert "5.state: not a training state of this program" in capsys.readouterr().err
