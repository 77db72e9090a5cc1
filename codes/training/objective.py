"""Training states, regression targets and the loss."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..sde import MeanRevertingSDE
from .published import Loss, matching_loss, optimal_step_mean, reverse_step_mean

# network(x, mu, t, rows): the prediction for states x at times t (B,), which are these rows of the batch.
Network = Callable[[Tensor, Tensor, Tensor, Tensor | slice], Tensor]

# distance(found, x0): how different images in [0, 1] look, one number per image.
Distance = Callable[[Tensor, Tensor], Tensor]

# Where alpha is tiny, an error of the noise is a hundredfold error of the data. Without a limit only those times would
# be learned, although they matter little: the data found there has the weight alpha in the states that follow.
_LARGEST_WEIGHT = 10.0

# How much stronger a sampler's noise can be than its time says. With 0.4 a second evaluation had a LPIPS 9 % above that
# of the first: a network that must expect excess noise blurs.
_LARGEST_EXCESS = 0.1


@dataclass(frozen=True, kw_only=True)
class Objective:
    """The training objective.

    target       'published': one reverse step of a network that predicts noise (published.py);
                 'noise', 'data', 'velocity': the prediction itself
    weighting    'none', or the prediction in which errors are measured: 'noise', 'data', 'velocity'
    mean_weight  weight of a patch's mean error, against 1 for the rest of its error. A patch says little about its
                 brightness, and a wrong brightness has one sign everywhere: it would outweigh all detail
    perceptual   distance between the predicted clean image and the true one, added with `perceptual_weight`
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
        """The kind of prediction that the network learns."""
        return "noise" if self.target == "published" else self.target

    def states(self, x0: Tensor, mu: Tensor, t: Tensor, noise: Tensor, from_prior: Tensor) -> Tensor:
        """x_t; where `from_prior` is set, exactly the state every sampler starts from, without a trace of x0."""
        x = self.sde.marginal(x0, mu, t, noise)
        start = self.sde.prior(mu, noise)
        return torch.where(_flags(from_prior, x), start, x)

    def targets(self, x: Tensor, x0: Tensor, mu: Tensor, t: Tensor, from_prior: Tensor) -> Tensor:
        """Regression target at x: the prediction from which a sampler recovers x0.

        For a state made from x0 this is the true noise or velocity. For a state made without x0 the true noise would
        lead the sampler elsewhere.
        """
        if self.fit_target == "data":
            return x0
        if self.fit_target == "noise":
            alpha, sigma = self.sde.alpha(t.cpu().numpy()), self.sde.sigma(t.cpu().numpy())
            return (x - mu - _column(alpha, x) * (x0 - mu)) / _column(sigma, x)
        cos, sin = (_column(values, x) for values in self._angle(t, from_prior))
        return (mu - x0 + cos * (x - mu)) / sin

    def found(self, y: Tensor, x: Tensor, mu: Tensor, t: Tensor) -> Tensor:
        """The clean image that a sampler recovers from the prediction y: the inverse of `targets`."""
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
        *,
        t: Tensor,
        noise: Tensor,
        from_prior: Tensor,
        query_time: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The loss of a batch, and the network's prediction. For `query_time` see `state_content`."""
        if query_time is None:
            x = self.states(x0, mu, t, noise, from_prior)
        else:
            content = self.state_content(network, x0, mu, t=t, noise=noise, query_time=query_time)
            x = self.states(content, mu, t, _amplified_noise(noise, query_time), from_prior)
        y = network(x, mu, t, slice(None))
        y = y.to(torch.promote_types(y.dtype, torch.float32))
        if self.target == "published":
            predicted, wanted = (
                reverse_step_mean(self.sde, x, mu, t, y),
                optimal_step_mean(self.sde, x, x0, mu, t),
            )
        else:
            predicted, wanted = y, self.targets(x, x0, mu, t, from_prior)
        weights = self._weights(t, from_prior, y)
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
    def state_content(
        self, network: Network, x0: Tensor, mu: Tensor, *, t: Tensor, noise: Tensor, query_time: Tensor
    ) -> Tensor:
        """The images that states are made from, in place of x0.

        x0 itself where `query_time` is 0. Where it is t, the degraded image, which is all that a sampler begins with.
        Where it is later than t, the network's estimate at that time from such a state, as in a sampler's states.
        """
        query_time = query_time.to(x0.device)
        content = torch.where(_flags((query_time == 0), x0), x0, mu)
        rows = (query_time > t.to(x0.device)).nonzero().flatten()
        if not len(rows):
            return content
        times, mu = query_time[rows], mu[rows]
        x = self.sde.marginal(mu, mu, times, noise[rows].flip(-1))  # mirrored: other noise than in the final state
        found = self.found(network(x, mu, times, rows).to(mu), x, mu, times)
        # Samplers clip to the range of images, which changes a noise prediction at a late time a lot.
        low, high = (limit(x0[rows].flatten(1), 1).view(-1, 1, 1, 1) for limit in (torch.amin, torch.amax))
        return content.index_copy(0, rows, found.clamp(low, high))

    def _angle(self, t: Tensor, from_prior: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """cos and sin of the angle between data and noise: alpha and sigma / sigma_inf, at the prior 0 and 1."""
        times, at_prior = t.cpu().numpy(), from_prior.cpu().numpy()
        return np.where(at_prior, 0.0, self.sde.alpha(times)), np.where(
            at_prior, 1.0, self.sde.sigma(times) / self.sde.sigma_inf
        )

    def _weights(self, t: Tensor, from_prior: Tensor, like: Tensor) -> Tensor | None:
        if self.target == "published" or self.weighting in ("none", self.fit_target):
            return None
        cos, sin = self._angle(t, from_prior)
        # Relative sizes of one error when measured in the data, the velocity and the noise.
        share = {"data": sin, "velocity": np.ones_like(sin), "noise": cos / self.sde.sigma_inf}
        with np.errstate(divide="ignore"):
            ratio = np.minimum(share[self.weighting] / share[self.fit_target], _LARGEST_WEIGHT)
        return torch.as_tensor(ratio**2 if self.loss == "l2" else ratio).to(like)


def _amplified_noise(noise: Tensor, query_time: Tensor) -> Tensor:
    """Noise of self-generated states, amplified by a random factor of up to 1.1.

    A sampler's states keep the noise that its earlier predictions left. A network trained to remove exactly the noise
    of a time would keep it too. The factor is a function of one of the noise's own numbers.
    """
    excess = 1 + _LARGEST_EXCESS * torch.special.ndtr(noise.flatten(1)[:, 0])
    return torch.where(_flags(query_time != 0, noise), noise * excess.view(-1, *[1] * (noise.ndim - 1)), noise)


def _flags(flags: Tensor, like: Tensor) -> Tensor:
    return flags.to(like.device).view(-1, *[1] * (like.ndim - 1))


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
