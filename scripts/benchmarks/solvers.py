"""What the arithmetic of a sampling step costs, without the network."""

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from codes.sde import MeanRevertingSDE
from codes.solvers import Solver, make_plan


def tensor_step(
    x: Tensor,
    mu: Tensor,
    m0: Tensor,
    m1: Tensor,
    z: Tensor,
    tables: tuple[Tensor, Tensor, Tensor],
    times: Tensor,
    i: int,
) -> Tensor:
    """MR-SDE-d-2 as the published code evaluates it: coefficients are tensors, looked up and computed at every step."""

    def interpolate(table: Tensor, t: Tensor) -> Tensor:
        low = t.floor().long().clamp(max=len(table) - 2)
        return table[low] + (t - low) * (table[low + 1] - table[low])

    (alpha_s, sigma_s, lambda_s), (alpha_t, sigma_t, lambda_t) = (
        tuple(interpolate(table, times[j]) for table in tables) for j in (i - 1, i)
    )
    h = lambda_t - lambda_s
    h_before = lambda_s - interpolate(tables[2], times[i - 2])
    p1 = 1 - torch.exp(-2 * h)
    D1 = (m0 - m1) / h_before
    return (
        sigma_t / sigma_s * torch.exp(-h) * x
        + mu * (1 - alpha_t / alpha_s * torch.exp(-2 * h) - alpha_t * p1)
        + alpha_t * p1 * m0
        + alpha_t * (h - p1 / 2) * D1
        + sigma_t * torch.sqrt(p1) * z
    )


def run(size: int = 256, batch: int = 1, repeats: int = 200) -> dict[str, float]:
    """Median seconds of one second-order step on (batch, 3, size, size), two ways, interleaved."""
    sde = MeanRevertingSDE()
    plan = make_plan(sde, Solver("mrsampler", 10))
    step = plan.steps[5].advance
    assert step is not None
    generator = torch.Generator().manual_seed(0)
    x, mu, m0, m1, z = torch.rand(5, batch, 3, size, size, generator=generator)
    index = range(sde.T + 1)
    alpha, sigma, lambda_ = (
        torch.tensor([getattr(sde.point(t), name) for t in index]) for name in ("alpha", "sigma", "lambda_")
    )
    times = torch.tensor([*plan.times, plan.end.t])
    ways: dict[str, Callable[[], Tensor]] = {
        "plan": lambda: step(x, mu, (m0, m1), z, None),
        "tensor coefficients": lambda: tensor_step(x, mu, m0, m1, z, (alpha, sigma, lambda_), times, 6),
    }
    results = [way() for way in ways.values()]
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=0, atol=2e-2)  # tables are interpolated
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}
