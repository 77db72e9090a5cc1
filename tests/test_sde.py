"""The schedule: facts 1 and 2 of docs/numerics.md, conventions, units, forward process."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from codes.sde import MeanRevertingSDE

GOLDEN = json.loads((Path(__file__).parent / "golden" / "coefficients.json").read_text())["schedule"]
ALL = [
    MeanRevertingSDE(max_sigma=max_sigma, T=T, schedule=schedule, convention=convention)
    for max_sigma, T in ((50, 100), (10, 100), (70, 1000))
    for schedule in ("cosine", "linear", "constant")
    for convention in ("daclip", "irsde")
]
IDS = [f"{s.schedule}-{s.max_sigma}-{s.T}-{s.convention}" for s in ALL]


@pytest.mark.parametrize("sde", ALL, ids=IDS)
def test_closed_form_of_theta_equals_the_cumulative_sum(sde):
    """Fact 1 of docs/numerics.md."""
    tables = np.cumsum(sde.theta_table) - (sde.theta_table[0] if sde.convention == "irsde" else 0)
    assert np.max(np.abs(sde.Theta(np.arange(sde.T + 1)) - tables)) < 1e-12


def test_ends_of_the_published_schedule():
    """Fact 1 of docs/numerics.md."""
    sde = MeanRevertingSDE()
    assert float(sde.lambda_(100)) == pytest.approx(-3.66906432666, abs=1e-9)
    assert float(sde.lambda_(0)) == pytest.approx(6.11143517033, abs=1e-9)
    assert sde.dt == pytest.approx(GOLDEN["dt"], rel=1e-14)
    assert float(sde.alpha(100)) == pytest.approx(0.005, rel=1e-14)


def test_schedule_equals_the_golden_points():
    sde = MeanRevertingSDE()
    for t, values in GOLDEN["at"].items():
        point = sde.point(float(t))
        assert float(sde.Theta(float(t))) == pytest.approx(values["cumsum"], rel=1e-12)
        assert point.alpha == pytest.approx(values["alpha"], rel=1e-12)
        assert point.sigma == pytest.approx(values["sigma"], rel=1e-12)
        assert point.lambda_ == pytest.approx(values["lam"], rel=1e-12)
    for lambda_, t in GOLDEN["t_of_lambda"].items():
        assert sde.t_from_lambda(float(lambda_)) == pytest.approx(t, abs=1e-9)


@pytest.mark.parametrize("sde", ALL, ids=IDS)
def test_alpha_sigma_and_lambda_of_one_theta_are_consistent(sde):
    """Fact 2 of docs/numerics.md."""
    t = np.random.default_rng(0).uniform(0.001, sde.T, 1000)
    alpha, sigma, lambda_ = sde.alpha(t), sde.sigma(t), sde.lambda_(t)
    assert np.max(np.abs(alpha**2 + (sigma / sde.sigma_inf) ** 2 - 1)) < 1e-14
    assert np.max(np.abs(lambda_ - np.log(alpha / sigma))) < 1e-14
    assert np.all(np.diff(sde.lambda_(np.sort(t))) < 0)
    for value in t[:50]:
        assert abs(sde.t_from_lambda(float(sde.lambda_(value))) - value) < 1e-9
    assert np.allclose(sde.alpha_from_lambda(lambda_), alpha, rtol=1e-12, atol=0)
    assert np.allclose(sde.sigma_from_lambda(lambda_), sigma, rtol=1e-12, atol=0)


def test_spline_of_a_theta_table_follows_the_closed_form():
    """Fact 2 of docs/numerics.md."""
    exact = MeanRevertingSDE()
    table = MeanRevertingSDE(schedule="custom", thetas=tuple(exact.theta_table))
    t = np.linspace(0, 100, 5001)
    assert np.max(np.abs(table.lambda_(t) - exact.lambda_(t))) < 1e-5


def test_rough_custom_table_stays_monotone():
    rng = np.random.default_rng(1)
    sde = MeanRevertingSDE(schedule="custom", thetas=tuple(10.0 ** rng.uniform(-4, 1, 101)))
    assert np.all(np.diff(sde.Theta(np.linspace(0, 100, 20001))) > 0)
    assert np.allclose(sde.Theta(np.arange(101)), np.cumsum(sde.theta_table), rtol=1e-12)


def test_conventions_differ_by_theta_0():
    daclip, irsde = MeanRevertingSDE(), MeanRevertingSDE(convention="irsde")
    assert float(daclip.sigma(0)) == pytest.approx(0.0022172244610083785, rel=1e-12)
    assert float(irsde.sigma(0)) == 0 and float(irsde.lambda_(0)) == np.inf and float(irsde.alpha(0)) == 1
    assert np.isfinite(irsde.lambda_end) and irsde.lambda_end == pytest.approx(daclip.lambda_end, abs=1e-4)
    assert daclip.lambda_end == float(daclip.lambda_(0))


def test_max_sigma_units():
    assert MeanRevertingSDE(max_sigma=50).sigma_inf == 50 / 255
    assert MeanRevertingSDE(max_sigma=1).sigma_inf == 1 / 255
    assert MeanRevertingSDE(max_sigma=0.3).sigma_inf == 0.3


def test_official_tables_contradict_themselves_between_integers():
    official = MeanRevertingSDE(interpolation="official")
    t = np.linspace(0, 2, 201)
    gap = np.abs(official.lambda_(t) - np.log(official.alpha(t) / official.sigma(t)))
    assert gap.max() == pytest.approx(5.4e-2, rel=0.02)
    whole = np.arange(101)
    assert np.allclose(official.lambda_(whole), MeanRevertingSDE().lambda_(whole), rtol=1e-12)


@pytest.mark.parametrize("convention", ["daclip", "irsde"])
def test_forward_simulation_has_the_marginal_law(convention):
    """Any spacing of the simulated times gives alpha_t, sigma_t exactly: checked through the noise weights."""
    sde = MeanRevertingSDE(convention=convention)
    times = [3.0, 17.5, 60.0, 99.0]
    # Column 0 carries x0, column 1 mu, the others one noise draw each: the path is linear in all of them.
    unit = torch.eye(2 + len(times), dtype=torch.float64)
    path = sde.forward(unit[0], unit[1], times, [unit[2 + k] for k in range(len(times))])
    for t, state in zip(times, path):
        assert float(state[0]) == pytest.approx(float(sde.alpha(t)), rel=1e-12)
        assert float(state[1]) == pytest.approx(1 - float(sde.alpha(t)), rel=1e-12)
        assert float(state[2:].norm()) == pytest.approx(float(sde.sigma(t)), rel=1e-12)
    direct = sde.marginal(unit[0], unit[1], 17.5, unit[2])
    assert torch.allclose(direct[:2], path[1][:2], rtol=1e-12)


def test_marginal_with_a_time_per_image_equals_one_by_one():
    sde = MeanRevertingSDE()
    x0, mu, z = torch.rand(3, 4, 3, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    t = torch.tensor([1, 20, 55, 100])
    together = sde.marginal(x0, mu, t, z)
    for i in range(4):
        assert torch.allclose(together[i], sde.marginal(x0[i], mu[i], float(t[i]), z[i]), rtol=1e-14)
    with pytest.raises(ValueError, match=r"shape \(4,\)"):
        sde.marginal(x0, mu, t[:2], z)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": "cosin"}, "unknown schedule 'cosin', did you mean 'cosine'"),
        ({"convention": "da-clip"}, "unknown convention 'da-clip', did you mean 'daclip'"),
        ({"interpolation": "linear"}, "unknown interpolation 'linear'"),
        ({"max_sigma": -1}, "max_sigma: expected a number above 0 and at most 10,000, got -1"),
        ({"max_sigma": math.inf}, "max_sigma: expected .*, got inf"),
        ({"max_sigma": 1e308}, "max_sigma: expected .*, got 1e"),
        ({"max_sigma": "50"}, "max_sigma: expected .*, got '50'"),
        ({"T": 0}, "T: expected a whole number from 1 to 100,000, got 0"),
        ({"T": 10**9}, "T: expected .*, got 1000000000"),
        ({"T": 1.5}, "T: expected .*, got 1.5"),
        ({"T": True}, "T: expected .*, got True"),
        ({"T": "x"}, "T: expected .*, got 'x'"),
        ({"eps": 1.5}, "eps: expected a number above 0 and below 1, got 1.5"),
        ({"eps": 1}, "eps: expected .*, got 1"),
        ({"schedule": "custom"}, "'custom' and thetas go together"),
        ({"schedule": "custom", "thetas": (1.0, 2.0)}, "T \\+ 1 = 101 entries"),
        ({"schedule": "custom", "thetas": (-1.0,) * 101}, "positive and finite"),
        ({"schedule": "custom", "thetas": ("x",) * 101}, "positive and finite, got 'x'"),
        ({"schedule": "custom", "thetas": 5}, "thetas: expected T \\+ 1 numbers, got 5"),
    ],
)
def test_misuse_names_value_and_choices(options, message):
    with pytest.raises(ValueError, match=message):
        MeanRevertingSDE(**options)


def test_numbers_of_numpy_become_plain_ones():
    """So that a checkpoint can record them."""
    sde = MeanRevertingSDE(T=np.int64(100), max_sigma=np.float32(50))
    assert sde == MeanRevertingSDE() and (type(sde.T), type(sde.max_sigma)) == (int, float)
