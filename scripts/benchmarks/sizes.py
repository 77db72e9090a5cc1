"""Whether the sizes that a network has seen make a later size slower, with our convolutions and with plain ones.

The same weights are in three copies that take turns within one process: one sees only the measured size, one has seen
other sizes before, one has plain convolutions. Processor time is measured, which other processes hardly change.
"""

import copy
import time
from collections.abc import Sequence
from typing import Any

import torch

from codes.networks import build_network, cpu
from codes.networks.protocols import Embeds, TakesContexts

from .networks import NETWORKS

BEFORE = ((64, 64), (128, 128), (96, 160))


@torch.no_grad()
def run(
    networks: Sequence[str] = ("daclip-unet", "refusion-nafnet"),
    size: tuple[int, int] = (256, 256),
    before: Sequence[tuple[int, int]] = BEFORE,
    repeats: int = 5,
) -> list[dict[str, Any]]:
    """One row per network: the best processor seconds of each copy, and ratios to the copy that sees only one size."""
    rows = []
    for name in networks:
        torch.manual_seed(0)
        fresh = build_network(*NETWORKS[name])
        copies = {"fresh": fresh, "used": copy.deepcopy(fresh), "plain": copy.deepcopy(fresh)}
        for side in before:
            _seconds(name, copies["used"], side)
        seconds: dict[str, list[float]] = {key: [] for key in copies}
        for turn in range(repeats + 1):
            for key, network in copies.items():
                packing, cpu.PACKING = cpu.PACKING, cpu.PACKING and key != "plain"
                taken = _seconds(name, network, size)
                cpu.PACKING = packing
                if turn:  # the first turn packs
                    seconds[key].append(taken)
        best = {key: min(times) for key, times in seconds.items()}
        ratios = {f"{key} / fresh": best[key] / best["fresh"] for key in ("used", "plain")}
        rows.append({"network": name, "size": size, "before": list(before), "seconds": best, **ratios})
    return rows


def _seconds(name: str, network: torch.nn.Module, size: tuple[int, int]) -> float:
    assert isinstance(network, Embeds) and isinstance(network, TakesContexts)
    x, mu = torch.rand(2, 1, 3, *size, generator=torch.Generator().manual_seed(0))
    text, image = torch.ones(2, 1, 512) if name == "daclip-unet" else (None, None)
    embedding = network.embed(50.0, network.embed_context(text, image))
    start = time.process_time()
    network.evaluate(x, mu, embedding)
    return time.process_time() - start
