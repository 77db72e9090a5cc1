"""States, what the network is to match there, and the loss."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..sde import MeanRevertingSDE
from .published import Loss, matching_loss, optimal_step_mean, reverse_step_mean

# network(x, mu, t, rows): the prediction for states with a time for each, which belong to these samples of the batch.
Network = Callable[[Tensor, Tensor, Tensor, Tensor | slice], Tensor]

# distance(found, x0): how different images look, one number for each; values in [0, 1].
Distance = Callable[[Tensor, Tensor], Tensor]

# Where alpha is tiny, an error of the noise is a hundredfold error of the data. Counted so, nothing but the noise would
# be learned; and nothing depends on it, for the data that is found there has the weight alpha in the states to come.
_LARGEST_WEIGHT = 10.0

# How much stronger the noise of a sampler's states can be than their times say, for a small network.
_LARGEST_EXCESS = 0.4


@dataclass(frozen=True)
class Objective:
    """What is matched.

    target       'published': one reverse step of a network that predicts noise (codes/objective.py);
                 'noise', 'data', 'velocity': the prediction itself
    weighting    'none', or as what an error of the prediction counts: 'noise', 'data', 'velocity'
    mean_weight  how much the mean error of a patch counts, against 1 for the rest of it. Brightness is what a patch
                 tells least about, and an error of it has one sign everywhere: it outweighs all that can be learned
                 about detail
    perceptual   how different the clean image that a sampler finds looks: added to the loss with `perceptual_weight`
    """

    sde: MeanRevertingSDE
    target: Literal["published", "noise", "data", "velocity"] = "published"
    loss: Loss = "l1"
    weight: float = 1.0
    weighting: Literal["none", "noise", "data", "velocity"] = "none"
    mean_weight: float = 1.0
    perceptual: Distance | None = None
    perceptual_weight: float = 0.0

    @property
    def fit_target(self) -> str:
        """What the network comes to predict."""
        return "noise" if self.target == "published" else self.target

    def states(self, x0: Tensor, mu: Tensor, t: Tensor, noise: Tensor, prior: Tensor) -> Tensor:
        """x_t; where `prior` is set exactly what every sampler starts from, without a trace of x0."""
        x = self.sde.marginal(x0, mu, t, noise)
        start = self.sde.prior(mu, noise)
        return torch.where(_flags(prior, x), start, x)

    def targets(self, x: Tensor, x0: Tensor, mu: Tensor, t: Tensor, prior: Tensor) -> Tensor:
        """What the network is to say in the state x, that a sampler finds x0 from it.

        In a state that was made from x0 that is the true noise or velocity. In one that was made without x0, or from
        something else, the true noise would lead the sampler to that.
        """
        if self.fit_target == "data":
            return x0
        if self.fit_target == "noise":
            alpha, sigma = self.sde.alpha(t.cpu().numpy()), self.sde.sigma(t.cpu().numpy())
            return (x - mu - _column(alpha, x) * (x0 - mu)) / _column(sigma, x)
        cos, sin = (_column(values, x) for values in self._angle(t, prior))
        return (mu - x0 + cos * (x - mu)) / sin

    def found(self, y: Tensor, x: Tensor, mu: Tensor, t: Tensor) -> Tensor:
        """The clean image that a sampler finds where the network says y: `targets` the other way round."""
        if self.fit_target == "data":
            return y
        times = t.cpu().numpy()
        alpha, sigma = _column(self.sde.alpha(times), x), _column(self.sde.sigma(times), x)
        if self.fit_target == "noise":
            return mu + (x - mu - sigma * y) / alpha
        return mu + alpha * (x - mu) - sigma / self.sde.sigma_inf * y

    def __call__(
        self,
        network: Network,
        x0: Tensor,
        mu: Tensor,
        t: Tensor,
        noise: Tensor,
        prior: Tensor,
        asked: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The loss of a batch, and the prediction it is of. For `asked` see `seen`."""
        if asked is None:
            x = self.states(x0, mu, t, noise, prior)
        else:
            content = self.seen(network, x0, mu, t, noise, asked)
            x = self.states(content, mu, t, _excessive(noise, asked), prior)
        y = network(x, mu, t, slice(None))
        y = y.to(torch.promote_types(y.dtype, torch.float32))
        if self.target == "published":
            predicted, wanted = (
                reverse_step_mean(self.sde, x, mu, t, y),
                optimal_step_mean(self.sde, x, x0, mu, t),
            )
        else:
            predicted, wanted = y, self.targets(x, x0, mu, t, prior)
        weights = self._weights(t, prior, y)
        if self.mean_weight == 1:
            loss = matching_loss(predicted, wanted, self.loss, weights)
        else:
            mean = (predicted - wanted).mean((-2, -1), keepdim=True)
            detail = matching_loss(predicted - mean, wanted, self.loss, weights)
            loss = detail + self.mean_weight * matching_loss(mean, torch.zeros_like(mean), self.loss, weights)
        if self.perceptual is not None:
            loss = loss + self.perceptual_weight * self.perceptual(self.found(y, x, mu, t), x0).mean()
        return self.weight * loss, y

    @torch.no_grad()
    def seen(self, network: Network, x0: Tensor, mu: Tensor, t: Tensor, noise: Tensor, asked: Tensor) -> Tensor:
        """What states hold in the place of x0.

        x0 itself where `asked` is 0. Where it is t the degraded image, all that a sampler has to begin with. Where it
        is later than t, what the network finds at that time in such a state: a sampler's states are made of that.
        """
        asked = asked.to(x0.device)
        content = torch.where(_flags((asked == 0), x0), x0, mu)
        rows = (asked > t.to(x0.device)).nonzero().flatten()
        if not len(rows):
            return content
        times, mu = asked[rows], mu[rows]
        x = self.sde.marginal(mu, mu, times, noise[rows].flip(-1))  # mirrored: other noise than in the state to come
        found = self.found(network(x, mu, times, rows).to(mu), x, mu, times)
        # A sampler keeps within what images can be. For a noise prediction at a late time that is much.
        low, high = (limit(x0[rows].flatten(1), 1).view(-1, 1, 1, 1) for limit in (torch.amin, torch.amax))
        return content.index_copy(0, rows, found.clamp(low, high))

    def _angle(self, t: Tensor, prior: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """cos and sin of the angle between data and noise: alpha and sigma / sigma_inf, at the prior 0 and 1."""
        times, at_prior = t.cpu().numpy(), prior.cpu().numpy()
        return np.where(at_prior, 0.0, self.sde.alpha(times)), np.where(
            at_prior, 1.0, self.sde.sigma(times) / self.sde.sigma_inf
        )

    def _weights(self, t: Tensor, prior: Tensor, like: Tensor) -> Tensor | None:
        if self.target == "published" or self.weighting in ("none", self.fit_target):
            return None
        cos, sin = self._angle(t, prior)
        # Errors of the data, of the velocity and of the noise are to each other as these.
        share = {"data": sin, "velocity": np.ones_like(sin), "noise": cos / self.sde.sigma_inf}
        with np.errstate(divide="ignore"):
            ratio = np.minimum(share[self.weighting] / share[self.fit_target], _LARGEST_WEIGHT)
        return torch.as_tensor(ratio**2 if self.loss == "l2" else ratio).to(like)


def _excessive(noise: Tensor, asked: Tensor) -> Tensor:
    """Noise of states that hold what a sampler's would, a random part stronger than their times say.

    A sampler's states have the noise that its earlier predictions kept. A network that has learned to remove exactly
    what belongs to a time keeps it too. How much stronger is read off one of the noise's own numbers.
    """
    excess = 1 + _LARGEST_EXCESS * torch.special.ndtr(noise.flatten(1)[:, 0])
    return torch.where(_flags(asked != 0, noise), noise * excess.view(-1, *[1] * (noise.ndim - 1)), noise)


def _flags(prior: Tensor, like: Tensor) -> Tensor:
    return prior.to(like.device).view(-1, *[1] * (like.ndim - 1))


def _column(values: np.ndarray, like: Tensor) -> Tensor:
    return torch.as_tensor(values).to(like).view(-1, *[1] * (like.ndim - 1))


def time_weights(sde: MeanRevertingSDE, distribution: str) -> tuple[float, ...]:
    """Weights of t = 1..T: 'uniform', 'late' (growing with t), 'lambda' (even in the log signal-to-noise ratio)."""
    times = np.arange(1, sde.T + 1)
    if distribution == "late":
        weights = times.astype(np.float64)
    elif distribution == "lambda":
        edges = np.clip(np.concatenate([[0.5], times + 0.5]), 0, sde.T)
        weights = -np.diff(sde.lambda_(edges))
    else:
        weights = np.ones(sde.T)
    return tuple(float(weight) for weight in weights)
