"""Optimisers, learning rates and the moving average of weights, as the published training has them."""

import bisect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..config.schema import TrainOptions

EMA_BETA = 0.995
EMA_EVERY = 10
EMA_AFTER = 100
EMA_POWER = 2 / 3


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023: p <- p (1 - lr wd) - lr sign(b1 m + (1 - b1) g), then m <- b2 m + (1 - b2) g."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step, from the gradients that are there."""
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["exp_avg"] = torch.zeros_like(p)
                average = state["exp_avg"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(torch.lerp(p.grad, average, beta1).sign_(), alpha=-group["lr"])
                average.lerp_(p.grad, 1 - beta2)


def make_optimiser(train: TrainOptions, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimiser of an option file; the fused kind of Adam, which is one pass over memory."""
    betas = (train.beta1, train.beta2)
    if train.optimizer == "Lion":
        return Lion(parameters, train.lr_G, betas, train.weight_decay_G)
    kind = torch.optim.Adam if train.optimizer == "Adam" else torch.optim.AdamW
    return kind(parameters, lr=train.lr_G, betas=betas, weight_decay=train.weight_decay_G, fused=True)


def learning_rate(train: TrainOptions, step: int) -> float:
    """The learning rate of a step, counted from 0."""
    if train.lr_scheme == "MultiStepLR":
        # The published code halves it, whatever lr_gamma says.
        rate = train.lr_G * 0.5 ** bisect.bisect_right(sorted(train.lr_steps), step)
    else:
        rate = train.eta_min + (train.lr_G - train.eta_min) * (1 + math.cos(math.pi * step / train.niter)) / 2
    return rate * min(1.0, (step + 1) / train.warmup_iter) if train.warmup_iter > 0 else rate


def ema_decay(n: int) -> float | None:
    """How much of the average the n-th update (from 0) keeps; 0 is a copy of the weights, None no update."""
    if n % EMA_EVERY:
        return None
    if n <= EMA_AFTER + EMA_EVERY:
        return 0.0  # the first update after the start begins with a copy, too
    return min(EMA_BETA, 1 - math.pow(1 + n - EMA_AFTER, -EMA_POWER))


@torch.no_grad()
def update_ema(ema: nn.Module, network: nn.Module, n: int) -> None:
    """The n-th update of the average, after the n-th step."""
    decay = ema_decay(n)
    if decay is None:
        return
    ours: Mapping[str, Any] = network.state_dict()
    for key, average in ema.state_dict().items():
        if decay == 0.0 or not average.is_floating_point():
            average.copy_(ours[key])
        else:
            average.lerp_(ours[key], 1 - decay)
