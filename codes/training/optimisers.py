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

# Entries of the matrices that Muon orthogonalises together.
_LARGEST_BATCH = 1 << 20


class Muon(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024) for weights that are matrices, AdamW for the others.

    The step of a matrix is its gradient's Nesterov average with all singular values brought to about 1, so that
    directions with small gradients are not learned late. Scaled by 0.2 sqrt(larger side), an entry moves as far as with
    AdamW (Liu et al. 2025): learning rates carry over.

    Compared with timm 1.0.31 and torch 2.13 on the 8.7 million weights of options/train.yml, from the same weights on
    the same synthetic batches, one matrix at a time: a step took 562 ms of CPU time here and 518 ms with
    timm.optim.Muon, with two processes 332 ms here, where they share the orthogonalisation, and 538 ms with timm. Since
    then equal matrices are orthogonalised together, in 180 ms instead of 234 ms; timm was not measured again. Mean loss
    of the last ten of 40 steps: 0.195 here, 0.187 with timm, which trains the other weights with NAdamW (whether that
    is the cause was not measured), and 0.174 with torch.optim.Muon,
    which takes no convolutions, so that AdamW trains nearly all of these weights. 40 steps say nothing about a long
    training. This one stays for its speed with several processes, and because the others cannot read its training
    states.
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
            if given and group["weight_decay"]:
                torch._foreach_mul_(given, 1 - group["lr"] * group["weight_decay"])
            matrices = [p for p in given if is_matrix(p)]
            if matrices:
                self._move_matrices(matrices, group["lr"], group["momentum"])
            others = [p for p in given if not is_matrix(p)]
            if others:
                self._adam(others, group["lr"], *group["betas"])

    def _move_matrices(self, matrices: list[Tensor], lr: float, momentum: float) -> None:
        gradients = [_gradient(p) for p in matrices]
        for p in matrices:
            if not self.state[p]:
                self.state[p]["exp_avg"] = torch.zeros_like(p)
        averages = [self.state[p]["exp_avg"] for p in matrices]
        torch._foreach_lerp_(averages, gradients, 1 - momentum)
        ahead = torch._foreach_lerp(gradients, averages, momentum)
        directions = _orthogonal([one.flatten(1).to(self.dtype or one.dtype) for one in ahead])
        for p, direction in zip(matrices, directions, strict=True):
            p.add_(direction.to(p.dtype).view_as(p), alpha=-lr * 0.2 * math.sqrt(max(direction.shape)))

    def _adam(self, params: list[Tensor], lr: float, beta1: float, beta2: float) -> None:
        gradients = [_gradient(p) for p in params]
        for p in params:
            if not self.state[p]:
                zeros = {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
                self.state[p].update(step=torch.tensor(0.0), **zeros)
        steps, averages, squares = ([self.state[p][key] for p in params] for key in ("step", "exp_avg", "exp_avg_sq"))
        torch._foreach_add_(steps, 1.0)
        torch._foreach_lerp_(averages, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)
        counts = [float(step) for step in steps]
        scales = torch._foreach_div(squares, [1 - beta2**n for n in counts])
        torch._foreach_sqrt_(scales)
        torch._foreach_add_(scales, 1e-8)
        torch._foreach_addcdiv_(params, averages, scales, [-lr / (1 - beta1**n) for n in counts])


def _gradient(p: Tensor) -> Tensor:
    assert p.grad is not None
    return p.grad


def is_matrix(p: Tensor) -> bool:
    """Whether a weight maps many channels to many, unlike biases, norms, scales and depthwise filters."""
    return p.ndim >= 2 and min(len(p), p[0].numel()) >= 16


def orthogonal(matrices: Tensor, steps: int = 5) -> Tensor:
    """U V^T of the singular value decomposition U S V^T, approximately: singular values end between 0.7 and 1.2.

    Of one matrix (M, N) or of each of (B, M, N). An odd polynomial of the matrix is iterated (Newton-Schulz;
    coefficients of Jordan et al.).
    """
    if matrices.ndim == 2:
        return orthogonal(matrices[None], steps)[0]
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    for _ in range(steps):
        square = torch.bmm(x, x.mT)
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    return x.mT if tall else x


def _orthogonal(matrices: list[Tensor]) -> list[Tensor]:
    """`orthogonal` of each matrix; processes divide the work among themselves.

    Matrices of one shape are computed together. The batches are the same for any number of processes, and so is the
    result, bit by bit.
    """
    together = dist.is_initialized() and dist.get_world_size() > 1
    rank, world = (dist.get_rank(), dist.get_world_size()) if together else (0, 1)
    batches = _batches(matrices)
    shares = _shares([_cost(matrices[batch[0]]) * len(batch) for batch in batches], world)
    found: dict[int, Tensor] = {}
    for i in shares[rank]:
        wide = [_wide(matrices[n]) for n in batches[i]]
        found |= zip(batches[i], orthogonal(torch.stack(wide)), strict=True)
    if together:
        orders = [[n for i in share for n in batches[i]] for share in shares]
        found = _gathered(found, orders, rank, matrices)
    return [found[n].T if len(m) > m.shape[1] else found[n] for n, m in enumerate(matrices)]


def _wide(matrix: Tensor) -> Tensor:
    return matrix.T if len(matrix) > matrix.shape[1] else matrix


def _cost(matrix: Tensor) -> int:
    """Multiplications of an orthogonalisation, up to a factor."""
    small, large = sorted(matrix.shape)
    return small * small * (2 * large + small)


def _batches(matrices: list[Tensor]) -> list[list[int]]:
    """Numbers of matrices that are equal in shape, turned or not; small enough to be divided among processes."""
    shapes: dict[tuple[int, ...], list[int]] = {}
    for n, matrix in enumerate(matrices):
        shapes.setdefault(tuple(sorted(matrix.shape)), []).append(n)
    counts = {shape: max(_LARGEST_BATCH // math.prod(shape), 1) for shape in shapes}
    return [same[i : i + counts[shape]] for shape, same in shapes.items() for i in range(0, len(same), counts[shape])]


def _shares(costs: list[int], world: int) -> list[list[int]]:
    """Which process does which work: the most costly first, each to the process with the least so far."""
    shares: list[list[int]] = [[] for _ in range(world)]
    totals = [0] * world
    for i in sorted(range(len(costs)), key=lambda i: -costs[i]):
        least = totals.index(min(totals))
        shares[least].append(i)
        totals[least] += costs[i]
    return shares


def _gathered(
    found: dict[int, Tensor], orders: list[list[int]], rank: int, matrices: list[Tensor]
) -> dict[int, Tensor]:
    """The wide matrices that all processes found, each process's own in its order."""
    longest = max(sum(matrices[n].numel() for n in order) for order in orders)
    ours = torch.zeros(longest, dtype=matrices[0].dtype, device=matrices[0].device)
    flat = torch.cat([ours[:0], *(found[n].flatten() for n in orders[rank])])
    ours[: len(flat)] = flat
    everything = [torch.empty_like(ours) for _ in orders]
    dist.all_gather(everything, ours)
    result: dict[int, Tensor] = {}
    for order, received in zip(orders, everything, strict=True):
        start = 0
        for n in order:
            wide = _wide(matrices[n])
            result[n] = received[start : start + wide.numel()].view(wide.shape)
            start += wide.numel()
    return result


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
