"""The published training objective: match the optimal reverse step (IR-SDE, Eqs. 13-15 there).

One step back from an integer time t, with theta, g and sigma of the schedule's tables:

    predicted   m  = x_t - [theta_t (mu - x_t) + g_t^2 eps / sigma_t] dt
    optimal     m* = A (1-C^2)/(1-B^2) (x_t - mu) + C (1-A^2)/(1-B^2) (x0 - mu) + mu
                A = exp(-theta_t dt),  B = alpha_t,  C = alpha_{t-1}

The denoising process has no drift, and its variance grows by g_t^2 exp(-2 Theta_t dt) dt in a step:

    predicted   m  = x_t - g_t^2 exp(-2 Theta_t dt) eps / sigma_t dt
    optimal     m* = x0 + (sigma_{t-1} / sigma_t)^2 (x_t - x0)

Up to a small offset m - m* is proportional to eps minus the true noise, so this is noise matching with a weight that
depends on t.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from ..names import check_choice
from ..sde import Array, MeanRevertingSDE


def _at(table: Array, t: Tensor, like: Tensor) -> Tensor:
    """Entries of a table at integer times (B,), shaped to multiply `like` (B, ...)."""
    if t.ndim != 1 or len(t) != len(like):
        raise ValueError(f"t must have shape ({len(like)},), got {tuple(t.shape)}")
    return torch.as_tensor(table)[t.cpu()].to(like).view(-1, *[1] * (like.ndim - 1))


def reverse_step_mean(sde: MeanRevertingSDE, x: Tensor, mu: Tensor, t: Tensor, eps: Tensor) -> Tensor:
    """m: one Euler step of the reverse SDE without its noise, for a predicted noise `eps`."""
    theta = _at(sde.theta_table, t, x)
    sigma = _at(sde.sigma(range(sde.T + 1)), t, x)
    if not sde.reverts:
        variance = 2 * sde.sigma_inf**2 * theta * torch.exp(-2 * _at(sde.Theta_table, t, x) * sde.dt)
        return x - variance / sigma * eps * sde.dt
    return x - (theta * (mu - x) + 2 * sde.sigma_inf**2 * theta / sigma * eps) * sde.dt


def optimal_step_mean(sde: MeanRevertingSDE, x: Tensor, x0: Tensor, mu: Tensor, t: Tensor) -> Tensor:
    """m*: the mean of x_{t-1} given x_t and the clean image."""
    if not sde.reverts:
        sigma = sde.sigma(range(sde.T + 1))
        return x0 + (_at(sigma, t - 1, x) / _at(sigma, t, x)) ** 2 * (x - x0)
    A = torch.exp(-_at(sde.theta_table, t, x) * sde.dt)
    B = torch.exp(-_at(sde.Theta_table, t, x) * sde.dt)
    C = torch.exp(-_at(sde.Theta_table, t - 1, x) * sde.dt)
    return A * (1 - C**2) / (1 - B**2) * (x - mu) + C * (1 - A**2) / (1 - B**2) * (x0 - mu) + mu


def optimal_step_std(sde: MeanRevertingSDE, t: Tensor, like: Tensor) -> Tensor:
    """Standard deviation of x_{t-1} given x_t and the clean image."""
    A = torch.exp(-_at(sde.theta_table, t, like) * sde.dt)
    B = torch.exp(-_at(sde.Theta_table, t, like) * sde.dt)
    C = torch.exp(-_at(sde.Theta_table, t - 1, like) * sde.dt)
    return sde.sigma_inf * torch.sqrt((1 - A**2) * (1 - C**2) / (1 - B**2))


Loss = Literal["l1", "l2", "rms"]
_ROUNDING = 1e-3  # a quarter of an 8-bit level: below it the slope of the root stops growing


def matching_loss(predicted: Tensor, target: Tensor, kind: Loss = "l1", weights: Tensor | None = None) -> Tensor:
    """Mean of |predicted - target|, of its square, or of the root mean square of each image.

    l1 is minimal at the median, which changes nothing where most pixels are undamaged; l2 at the mean, but images with
    large errors outweigh the others. The root of each image's mean square has neither fault.
    `weights` (B,) are factors of the images' losses.
    """
    check_choice("loss", kind, get_args(Loss))
    gap = predicted - target
    if kind == "rms":
        loss = (gap.flatten(1).square().mean(1) + _ROUNDING**2).sqrt()
    else:
        loss = gap.abs() if kind == "l1" else gap**2
    if weights is not None:
        loss = loss * weights.view(-1, *[1] * (loss.ndim - 1))
    return loss.mean()
