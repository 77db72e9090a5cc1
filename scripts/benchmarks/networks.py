"""Seconds, images per second and peak memory of the networks, for our graph and for the published one.

Both graphs have the same weights and take turns within one process, so that what else the machine does hits both.
Every configuration runs in a process of its own; peak memory is measured there, for one graph alone.
"""

import resource
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import torch
from torch import Tensor, nn

from codes.networks import build_network
from codes.networks.nafnet import NAFNet
from codes.networks.predictor import predictor
from codes.networks.unet import UNet

from . import published_graph

NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "daclip-unet": (
        "ConditionalUNet",
        {
            "in_nc": 3,
            "out_nc": 3,
            "nf": 64,
            "ch_mult": [1, 2, 4, 8],
            "context_dim": 512,
            "use_degra_context": True,
            "use_image_context": True,
        },
    ),
    "refusion-nafnet": (
        "ConditionalNAFNet",
        {"width": 64, "enc_blk_nums": [1, 1, 1, 28], "middle_blk_num": 1, "dec_blk_nums": [1, 1, 1, 1]},
    ),
    "irsde-unet": ("ConditionalUNet", {"in_nc": 3, "out_nc": 3, "nf": 64, "depth": 4}),
}
GRAPHS = ("ours", "published")


def run(
    networks: Sequence[str] = ("daclip-unet", "refusion-nafnet"),
    sizes: Sequence[int] = (128, 256),
    batches: Sequence[int] = (1, 4),
    repeats: int = 5,
    threads: int | None = None,
    published_up_to: int = 512,
) -> list[dict[str, Any]]:
    """One row per network, size and batch; beyond `published_up_to` pixels (its memory!) only our graph is run."""
    rows = []
    for network in networks:
        for size in sizes:
            for batch in batches:
                graphs = GRAPHS if size <= published_up_to else GRAPHS[:1]
                row = _child("time", network, size, batch, repeats, threads, graphs)
                for graph in graphs:
                    peak = _child("memory", network, size, batch, 1, threads, (graph,))
                    row[graph]["peak_gb"] = peak[graph]["peak_gb"]
                if len(graphs) == 2:
                    row["ratio"] = row["published"]["seconds"] / row["ours"]["seconds"]
                rows.append(row)
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as text; times are medians."""
    lines = [
        f"{'network':16} {'size':>5} {'batch':>5}   {'ours s':>8} {'images/s':>8} {'peak GB':>8}"
        f"   {'published s':>11} {'images/s':>8} {'peak GB':>8}   {'ratio':>5}"
    ]
    for row in rows:
        line = f"{row['network']:16} {row['size']:5} {row['batch']:5}   " + _columns(row["ours"], 8)
        if "published" in row:
            line += "   " + _columns(row["published"], 11) + f"   {row['ratio']:5.2f}"
        lines.append(line)
    return "\n".join(lines)


def _columns(result: dict[str, float], width: int) -> str:
    return f"{result['seconds']:{width}.3f} {result['images_per_second']:8.2f} {result['peak_gb']:8.2f}"


def _child(*arguments: Any) -> dict[str, Any]:
    """`_measure` in a process of its own, which starts from this process' script."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_measure, *arguments).result()


@torch.no_grad()
def _measure(
    what: str, network: str, size: int, batch: int, repeats: int, threads: int | None, graphs: Sequence[str]
) -> dict[str, Any]:
    if threads is not None:
        torch.set_num_threads(threads)
    torch.manual_seed(0)
    net = build_network(*NETWORKS[network])
    assert isinstance(net, UNet | NAFNet)
    x, mu = torch.rand(2, batch, 3, size, size)
    text, image = torch.randn(2, batch, 512) if network == "daclip-unet" else (None, None)
    embedding = net.embed(50.0, net.embed_context(text, image))
    # Copied only where both are needed: the memory of a graph is measured without the other's weights.
    old = net if "ours" not in graphs else build_network(*NETWORKS[network]) if "published" in graphs else net
    if "published" in graphs:
        old.load_state_dict(net.state_dict())
        old.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]

    def evaluate(graph: str) -> Tensor:
        if graph == "ours":
            return net.evaluate(x, mu, embedding)
        return published_graph.evaluate(old, x, mu, 50.0, text, image)

    seconds: dict[str, list[float]] = {graph: [] for graph in graphs}
    for turn in range(repeats if what == "memory" else repeats + 1):
        for graph in graphs:
            start = time.perf_counter()
            evaluate(graph)
            if turn or what == "memory":  # the first turn warms up
                seconds[graph].append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # kilobytes on Linux
    return {
        "network": network,
        "parameters": _count(net),
        "size": size,
        "batch": batch,
        "threads": torch.get_num_threads(),
        "repeats": repeats,
        **{
            graph: {
                "seconds": statistics.median(times),
                "images_per_second": batch / statistics.median(times),
                "peak_gb": peak,
            }
            for graph, times in seconds.items()
        },
    }


def precisions(size: int = 256, repeats: int = 3, network: str = "daclip-unet") -> dict[str, float | str]:
    """Seconds of one evaluation at each precision, taking turns; or why this machine cannot do it."""
    torch.manual_seed(0)
    net = build_network(*NETWORKS[network])
    x, mu = torch.rand(2, 1, 3, size, size)
    text, image = torch.randn(2, 1, 512) if network == "daclip-unet" else (None, None)
    results: dict[str, float | str] = {}
    seconds: dict[str, list[float]] = {}
    predictors = {}
    for precision in ("fp32", "bf16", "fp16"):
        try:
            predictors[precision] = predictor(net, text_context=text, image_context=image, precision=precision)
        except ValueError as error:
            results[precision] = str(error)
    for _ in range(repeats + 1):  # the first is for warming up
        for precision, predict in predictors.items():
            start = time.perf_counter()
            predict(x, mu, 50.0)
            seconds.setdefault(precision, []).append(time.perf_counter() - start)
    return results | {precision: statistics.median(times[1:]) for precision, times in seconds.items()}


def _count(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())
