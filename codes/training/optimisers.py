"""Optimisers, learning rates and the moving average of weights, as in the published training."""

import bisect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..config.train_options import TrainOptions
from ..runtime.torchvision_compat import ensure_torchvision

EMA_BETA = 0.995
EMA_EVERY = 10
EMA_AFTER = 100
EMA_POWER = 2 / 3


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024) for weights that are matrices, AdamW for the others.

    The step of a matrix is its gradient's Nesterov average with all singular values brought to about 1, so that
    directions with small gradients are not learned late. Scaled by 0.2 sqrt(larger side), an entry moves as far as with
    AdamW (Liu et al. 2025): learning rates carry over.

    Compared with timm 1.0.31 and torch 2.13 on the 8.7 million weights of options/train.yml, from the same weights on
    the same synthetic batches, 40 steps (timm with two processes: 12), one thread per process. CPU time of a step:
    562 ms here, 518 ms with timm.optim.Muon; with two processes 332 ms here, where they share the orthogonalisation,
    and 538 ms with timm, where each does all of it. In float32 instead of bfloat16 it is 1050 ms and 615 ms, with the
    same losses. Mean loss of the last ten steps: 0.195 here, 0.187 with timm, which trains the other weights with
    NAdamW (whether that is the cause was not measured), and 0.174 with torch.optim.Muon, which takes no convolutions,
    so that AdamW trains nearly all of these weights. 40 steps say nothing about a long training. This one stays for its
    speed with several processes, and because the others cannot read its training states.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        momentum: float = 0.95,
        dtype: torch.dtype | None = None,
    ) -> None:
        """dtype: precision of the orthogonalisation, which need not be exact; None: that of the weights."""
        self.dtype = dtype
        settings = {"lr": lr, "betas": betas, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(params, settings)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update all weights that have gradients."""
        for group in self.param_groups:
            given = [p for p in group["params"] if p.grad is not None]
            for p in given:
                p.mul_(1 - group["lr"] * group["weight_decay"])
            matrices = [p for p in given if is_matrix(p)]
            found = [self._direction(p, group["momentum"]) for p in matrices]
            directions = _orthogonal([direction.to(self.dtype or direction.dtype) for direction in found])
            for p, direction in zip(matrices, directions, strict=True):
                p.add_(direction.to(p.dtype).view_as(p), alpha=-group["lr"] * 0.2 * math.sqrt(max(direction.shape)))
            for p in given:
                if not is_matrix(p):
                    self._adam(p, group["lr"], *group["betas"])

    def _direction(self, p: Tensor, momentum: float) -> Tensor:
        state = self.state[p]
        if not state:
            state["exp_avg"] = torch.zeros_like(p)
        average = state["exp_avg"].lerp_(p.grad, 1 - momentum)
        return torch.lerp(p.grad, average, momentum).flatten(1)  # type: ignore[arg-type]

    def _adam(self, p: Tensor, lr: float, beta1: float, beta2: float) -> None:
        state = self.state[p]
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        state["step"] += 1
        step = float(state["step"])
        assert p.grad is not None
        average = state["exp_avg"].lerp_(p.grad, 1 - beta1)
        square = state["exp_avg_sq"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
        p.addcdiv_(average, (square / (1 - beta2**step)).sqrt_().add_(1e-8), value=-lr / (1 - beta1**step))


def is_matrix(p: Tensor) -> bool:
    """Whether a weight maps many channels to many, unlike biases, norms, scales and depthwise filters."""
    return p.ndim >= 2 and min(len(p), p[0].numel()) >= 16


def orthogonal(matrix: Tensor, steps: int = 5) -> Tensor:
    """U V^T of the singular value decomposition U S V^T, approximately: singular values end between 0.7 and 1.2.

    An odd polynomial of the matrix is iterated (Newton-Schulz; coefficients of Jordan et al.).
    """
    x = matrix.T if len(matrix) > matrix.shape[1] else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    result: Tensor = x.T if len(matrix) > matrix.shape[1] else x
    return result


def _orthogonal(matrices: list[Tensor]) -> list[Tensor]:
    """`orthogonal` of each matrix; processes divide the matrices among themselves."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return [orthogonal(matrix) for matrix in matrices]
    rank, world = dist.get_rank(), dist.get_world_size()
    by_size = sorted(range(len(matrices)), key=lambda i: matrices[i].numel())
    ours = set(by_size[rank::world])
    parts = [orthogonal(m) if i in ours else torch.zeros_like(m) for i, m in enumerate(matrices)]
    together = torch.cat([part.flatten() for part in parts])
    dist.all_reduce(together)
    pieces = torch.split(together, [part.numel() for part in parts])
    return [piece.view_as(part) for piece, part in zip(pieces, parts, strict=True)]


def lion(
    parameters: Iterable[Tensor], lr: float, betas: tuple[float, float], weight_decay: float
) -> torch.optim.Optimizer:
    """Lion (Chen et al. 2023), of timm."""
    ensure_torchvision()  # timm imports torchvision
    from timm.optim.lion import Lion

    return Lion(parameters, lr, betas, weight_decay)


def make_optimiser(
    train: TrainOptions, parameters: Iterable[nn.Parameter], dtype: torch.dtype | None = None
) -> torch.optim.Optimizer:
    """The optimiser of an option file; Adam and AdamW fused, in one pass over memory.

    dtype: precision of Muon's orthogonalisation; None: that of the weights.
    """
    betas = (train.beta1, train.beta2)
    if train.optimizer == "Lion":
        return lion(parameters, train.lr_G, betas, train.weight_decay_G)
    if train.optimizer == "Muon":
        return Muon(parameters, train.lr_G, betas, train.weight_decay_G, dtype=dtype)
    kind = torch.optim.Adam if train.optimizer == "Adam" else torch.optim.AdamW
    return kind(parameters, lr=train.lr_G, betas=betas, weight_decay=train.weight_decay_G, fused=True)


def learning_rate(train: TrainOptions, step: int) -> float:
    """The learning rate of a step, counted from 0."""
    if train.lr_scheme == "MultiStepLR":
        # The published code halves it, whatever lr_gamma says.
        rate = train.lr_G * 0.5 ** bisect.bisect_right(sorted(train.lr_steps), step)
    elif train.lr_scheme == "ConstantLinearLR":
        decay = train.decay_iter or max(1, train.niter // 5)
        rate = train.eta_min + (train.lr_G - train.eta_min) * min(1.0, (train.niter - step) / decay)
    else:
        rate = train.eta_min + (train.lr_G - train.eta_min) * (1 + math.cos(math.pi * step / train.niter)) / 2
    return rate * min(1.0, (step + 1) / train.warmup_iter) if train.warmup_iter > 0 else rate


def ema_decay(n: int) -> float | None:
    """The share of the average that the n-th update (from 0) keeps; 0 copies the weights, None is no update."""
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
