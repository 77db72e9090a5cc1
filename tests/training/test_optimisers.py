"""Optimisers, learning rates and the moving average of weights."""

import math

import numpy as np
import pytest
import torch

from codes.commands.train import main as train
from codes.config import load_options
from codes.training import checkpoints
from codes.training.optimisers import Muon, ema_decay, learning_rate, lion, orthogonal, update_ema

from .helpers import assert_equal, write_options


def test_lion_by_hand():
    p = torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64))
    optimiser = lion([p], lr=0.1, betas=(0.9, 0.99), weight_decay=0.5)
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


def test_muon_resumes_exactly(copy):
    muon = {"train__optimizer": "Muon"}
    assert train(["-opt", str(write_options(copy, "whole", **muon))]) == 0
    state = copy / "results" / "whole" / "training_state" / "8.state"
    assert train(["-opt", str(write_options(copy, "rest", path={"resume_state": str(state)}, **muon))]) == 0
    ours, theirs = (
        checkpoints.read(copy / "results" / name / "training_state" / "12.state") for name in ("rest", "whole")
    )
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


def test_constant_linear_learning_rate(copy):
    """Constant, then a straight line to eta_min in the last decay_iter steps, a fifth of all by default."""

    def options(**changes):
        given = {"train__lr_scheme": "ConstantLinearLR", "train__lr_G": 1.0, "train__niter": 100, **changes}
        return load_options(write_options(copy, "rates", **given), kind="train").train

    given = options(train__eta_min=0.2, train__decay_iter=40)
    assert [learning_rate(given, step) for step in (0, 30, 59, 60)] == [1, 1, 1, 1]
    for step in (61, 80, 99, 100):
        assert learning_rate(given, step) == pytest.approx(0.2 + 0.8 * (100 - step) / 40, rel=1e-12)
    fifth = options(train__eta_min=0.0)
    assert [learning_rate(fifth, step) for step in (79, 80, 90, 100)] == pytest.approx([1, 1, 0.5, 0])
    # Before the fall a longer run has the same rates, so that it can be made longer.
    longer = options(train__niter=200, train__decay_iter=40)
    assert all(learning_rate(longer, step) == learning_rate(given, step) for step in range(60))
    warm = options(train__warmup_iter=4, train__decay_iter=40)
    assert [learning_rate(warm, step) for step in (0, 1, 3, 4)] == [0.25, 0.5, 1, 1]


def test_lion_continues_states_without_the_options_of_timm():
    """States of a Lion that knows only learning rate, betas and weight decay."""
    p = torch.nn.Parameter(torch.zeros(3))
    optimiser = lion([p], lr=0.1, betas=(0.9, 0.99), weight_decay=0.0)
    group = {"lr": 0.5, "betas": (0.9, 0.99), "weight_decay": 0.0, "params": [0]}
    optimiser.load_state_dict({"state": {0: {"exp_avg": torch.tensor([1.0, -1.0, 0.0])}}, "param_groups": [group]})
    p.grad = torch.tensor([0.0, 0.0, 2.0])
    optimiser.step()
    assert torch.equal(p.detach(), torch.tensor([-0.5, 0.5, -0.5]))
