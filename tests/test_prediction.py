"""Conversions between predictions."""

from itertools import permutations

import pytest
import torch

from codes.prediction import PREDICTIONS, conversion_weights, convert
from codes.sde import MeanRevertingSDE

SDE = MeanRevertingSDE()


@pytest.mark.parametrize("t", [0.0, 0.7, 1.0, 33.3, 99.0, 100.0])
@pytest.mark.parametrize(("source", "target"), list(permutations(PREDICTIONS, 2)))
def test_conversions_are_mutual_inverses(source, target, t):
    generator = torch.Generator().manual_seed(0)
    y, x, mu = torch.randn(3, 100, dtype=torch.float64, generator=generator)
    point = SDE.point(t)
    there = convert(y, x, mu, point, source=source, target=target, sigma_inf=SDE.sigma_inf)
    back = convert(there, x, mu, point, source=target, target=source, sigma_inf=SDE.sigma_inf)
    # Relative to the largest term that the round trip adds up: 1e-12 is lost where alpha or sigma is small.
    w_x, w_mu, w_y = conversion_weights(target, source, point, SDE.sigma_inf)
    scale = max(1.0, abs(w_x), abs(w_mu), abs(w_y) * float(there.abs().max()))
    assert float((back - y).abs().max()) < 1e-12 * scale


@pytest.mark.parametrize("t", [0.0, 5.5, 50.0, 100.0])
def test_true_predictions_of_a_known_state(t):
    """x built from x0 and eps: every conversion finds the others as defined in Eqs. (7) and (31)."""
    generator = torch.Generator().manual_seed(1)
    x0, mu, eps = torch.rand(3, 100, dtype=torch.float64, generator=generator)
    point = SDE.point(t)
    x = point.alpha * x0 + (1 - point.alpha) * mu + point.sigma * eps
    sin = point.sigma / SDE.sigma_inf
    truth = {
        "data": x0,
        "noise": eps,
        "velocity": (mu - x0) * sin + SDE.sigma_inf * point.alpha * eps,
        "score": -eps / point.sigma,
    }
    for source in PREDICTIONS:
        for target in PREDICTIONS:
            got = convert(truth[source], x, mu, point, source=source, target=target, sigma_inf=SDE.sigma_inf)
            assert torch.allclose(got, truth[target], rtol=1e-9, atol=1e-9), (source, target)


def test_unknown_prediction():
    with pytest.raises(ValueError, match="unknown prediction 'nois', did you mean 'noise'"):
        conversion_weights("nois", "data", SDE.point(5), SDE.sigma_inf)
