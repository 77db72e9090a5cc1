"""Restoration problems with known exact solutions: Gaussian mixtures around mu.

x0 = mu + y with y from a mixture. The exact noise prediction, the exact flow of the ODE and exact posterior samples
are all computable, so a sampler's error can be measured: in the demonstration, the tests and the figures.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from .names import scalar_time
from .sde import Array, MeanRevertingSDE


@dataclass(frozen=True, eq=False, kw_only=True)
class Mixture:
    """y ~ sum_k weights_k N(means_k, diag(variances_k)), float64."""

    name: str
    weights: Array  # (K,)
    means: Array  # (K, D)
    variances: Array  # (K, D)
    sde: MeanRevertingSDE

    @property
    def dim(self) -> int:
        """Number of components of y."""
        return int(self.means.shape[1])

    @cached_property
    def _torch(self) -> tuple[Tensor, Tensor, Tensor]:
        return (
            torch.from_numpy(np.log(self.weights)),
            torch.from_numpy(self.means),
            torch.from_numpy(self.variances),
        )

    def data(self, y: Tensor, alpha: float, sigma: float) -> Tensor:
        """E[y0 | y_t = y]."""
        log_weights, means, variances = self._torch
        total = alpha**2 * variances + sigma**2
        inverse = 1 / total
        distance = (y * y) @ inverse.T - 2 * alpha * y @ (means * inverse).T + alpha**2 * (means**2 * inverse).sum(1)
        responsibility = torch.softmax(log_weights - 0.5 * distance - 0.5 * total.log().sum(1), dim=1)
        gain = alpha * variances * inverse
        return responsibility @ (means * (1 - alpha * gain)) + (responsibility @ gain) * y

    def noise_network(self, delta: float = 0.0, seed: int = 7) -> Callable[[Tensor, Tensor, float], Tensor]:
        """The exact noise prediction as a callable for `sample`.

        `delta` is the RMS of a bounded, smooth error added to it, to imitate an imperfect network.
        """
        rng = np.random.default_rng(seed)
        W = torch.from_numpy(rng.standard_normal((self.dim, self.dim)) / math.sqrt(self.dim) / 0.2)
        phase = torch.from_numpy(rng.uniform(0, 2 * math.pi, self.dim))
        frequency = torch.from_numpy(rng.uniform(-3, 3, self.dim))

        @scalar_time
        def network(x: Tensor, mu: Tensor, t: float) -> Tensor:
            y = (x - mu).double()
            alpha, sigma = float(self.sde.alpha(t)), float(self.sde.sigma(t))
            eps = (y - alpha * self.data(y, alpha, sigma)) / sigma
            if delta:
                lambda_ = float(self.sde.lambda_(t))
                eps = eps + delta * math.sqrt(2) * torch.sin(y @ W + phase + frequency * lambda_)
            return eps.to(x)

        return network

    def draw(self, n: int, seed: int) -> Tensor:
        """n exact samples of y0."""
        rng = np.random.default_rng(seed)
        k = rng.choice(len(self.weights), n, p=self.weights)
        return torch.from_numpy(self.means[k] + np.sqrt(self.variances[k]) * rng.standard_normal((n, self.dim)))

    def exact_flow(self, y: Tensor, start: float | None = None, end: float | None = None) -> Tensor:
        """The probability-flow ODE solved from y at lambda = start to lambda = end; by default from t = T to t = 0."""
        start = float(self.sde.lambda_(self.sde.T)) if start is None else start
        end = float(self.sde.lambda_(0.0)) if end is None else end

        def derivative(lambda_: float, u: Array) -> Array:
            # In u = y / sigma the flow is du/dlambda = exp(lambda) E[y0 | y].
            alpha = float(self.sde.alpha_from_lambda(lambda_))
            sigma = float(self.sde.sigma_from_lambda(lambda_))
            state = torch.from_numpy(u.reshape(-1, self.dim))
            return np.asarray((math.exp(lambda_) * self.data(state * sigma, alpha, sigma)).numpy().ravel())

        first = (y / float(self.sde.sigma_from_lambda(start))).numpy().ravel()
        solution = solve_ivp(derivative, (start, end), first, method="DOP853", rtol=1e-12, atol=1e-13)
        u = torch.from_numpy(solution.y[:, -1].reshape(-1, self.dim))
        return u * float(self.sde.sigma_from_lambda(end))


def sliced_wasserstein(x: Tensor, reference: Tensor, directions: int = 64) -> float:
    """Sliced Wasserstein-2 distance between two samples of equal size."""
    generator = torch.Generator().manual_seed(1)
    projection = torch.randn(x.shape[1], directions, generator=generator, dtype=torch.float64)
    projection /= projection.norm(dim=0)
    gap = (x @ projection).sort(dim=0).values - (reference @ projection).sort(dim=0).values
    return float((gap**2).mean().sqrt())
