"""The problems of docs/numerics.md, and how a sampler does on them."""

import math

import numpy as np
import torch
from torch import Tensor

from codes.exact import Mixture
from codes.sde import MeanRevertingSDE
from codes.solvers import Plan, Solver, sample

SDE = MeanRevertingSDE()
MU = 0.5  # mid grey, so that the image range [0, 1] is y in [-0.5, 0.5]


def mixture(name: str, weights: np.ndarray, means: np.ndarray, std: np.ndarray | float) -> Mixture:
    return Mixture(
        name=name,
        weights=weights,
        means=means,
        variances=np.broadcast_to(np.asarray(std) ** 2, means.shape).copy(),
        sde=SDE,
    )


def study_problems() -> list[Mixture]:
    """gauss16, gmm2, gmm64, stiff16: the problems that the default solver was selected on."""
    rng = np.random.default_rng(11)
    std = np.exp(np.linspace(np.log(0.002), np.log(0.3), 16))
    gauss16 = mixture("gauss16", np.ones(1), 0.12 * rng.standard_normal((1, 16)), std)
    means = np.array([[0.15, 0.1], [-0.12, 0.15], [0.05, -0.2], [-0.2, -0.1]])
    gmm2 = mixture("gmm2", np.array([0.4, 0.3, 0.2, 0.1]), means, 0.02)
    rng.standard_normal((64, 64))  # unused, but the draws that follow depend on it
    means = np.zeros((16, 64))
    means[:, :8] = 0.25 * rng.standard_normal((16, 8))
    gmm64 = mixture("gmm64", np.ones(16) / 16, means, np.repeat([0.06, 0.03, 0.01], [8, 16, 40]))
    means = np.zeros((200, 16))
    means[:, :4] = 0.08 * rng.standard_normal((200, 4)) + np.array([0.1, -0.05, 0.05, 0.0])
    stiff16 = mixture("stiff16", np.ones(200) / 200, means, 0.006)
    return [gauss16, gmm2, gmm64, stiff16]


def gmm8() -> Mixture:
    """Six modes of std 0.06 in 8 dimensions: smooth enough to show high orders, and not Gaussian."""
    means = 0.15 * np.random.default_rng(3).standard_normal((6, 8))
    return mixture("gmm8", np.ones(6) / 6, means, 0.06)


def restore(
    problem: Mixture, solver: Solver | Plan, n: int, *, delta: float = 0.0, seed: int = 0, start: Tensor | None = None
) -> Tensor:
    """n samples of y at t = 0 from the usual start (or from `start`)."""
    mu = torch.full((n, problem.dim), MU, dtype=torch.float64)
    output = sample(
        problem.noise_network(delta),
        problem.sde,
        mu,
        solver,
        fit_target="noise",
        generator=torch.Generator().manual_seed(seed),
        x_init=None if start is None else mu + start,
    )
    return output.sample - MU


def psnr(y: Tensor, y0: Tensor) -> float:
    return -10 * math.log10(float(((y - y0) ** 2).mean()))


def rms(y: Tensor) -> float:
    return float((y**2).mean().sqrt())


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def slope(nfes: list[int], errors: list[float]) -> float:
    """Observed order: minus the least-squares slope of log error against log NFE."""
    return -float(np.polyfit(np.log(nfes), np.log(errors), 1)[0])
