"""Whether the sizes that a network has seen make a later size slower, with our convolutions and with plain ones.

The same weights are in three copies that take turns within one process: one sees only the measured size, one has seen
other sizes before, one has plain convolutions. Processor time of one thread is measured, which other processes hardly
change.
"""

import copy
import time
from collections.abc import Sequence
from typing import Any

import torch

from codes.networks import cpu
from codes.networks.predictor import half_precision_problem, predictor
from codes.runtime.startup import keep_memory

from .networks import contexts, made, title

BEFORE = ((64, 64), (128, 128), (96, 160), (481, 321))


def run(
    networks: Sequence[str],
    size: tuple[int, int] = (256, 256),
    before: Sequence[tuple[int, int]] = BEFORE,
    repeats: int = 5,
) -> list[dict[str, Any]]:
    """One row per network and precision: the best seconds of each copy, and ratios to the one that sees one size only.

    networks   names of NETWORKS, or files
    """
    keep_memory()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    precisions = ["fp32"] if half_precision_problem("bf16") else ["fp32", "bf16"]
    rows = [_row(name, precision, size, before, repeats) for name in networks for precision in precisions]
    torch.set_num_threads(threads)
    return rows


def _row(
    name: str, precision: str, size: tuple[int, int], before: Sequence[tuple[int, int]], repeats: int
) -> dict[str, Any]:
    fresh = made(name)
    copies = {"fresh": fresh, "used": copy.deepcopy(fresh), "plain": copy.deepcopy(fresh)}
    for side in before:
        _seconds(name, copies["used"], precision, side)
    seconds: dict[str, list[float]] = {key: [] for key in copies}
    for turn in range(repeats + 1):
        for key, network in copies.items():
            packing, cpu.PACKING = cpu.PACKING, cpu.PACKING and key != "plain"
            taken = _seconds(name, network, precision, size)
            cpu.PACKING = packing
            if turn:  # the first turn packs
                seconds[key].append(taken)
    best = {key: min(times) for key, times in seconds.items()}
    ratios = {f"{key} / fresh": best[key] / best["fresh"] for key in ("used", "plain")}
    label = {"network": title(name), "precision": precision, "size": size, "before": list(before)}
    return {**label, "seconds": best, **ratios}


def _seconds(name: str, network: torch.nn.Module, precision: str, size: tuple[int, int]) -> float:
    x, mu = torch.rand(2, 1, 3, *size, generator=torch.Generator().manual_seed(0))
    predict = predictor(network, degraded=mu, precision=precision, **contexts(name))
    start = time.process_time()
    predict(x, mu, 50.0)
    return time.process_time() - start
