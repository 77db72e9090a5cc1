"""What share of the machine's arithmetic limit the networks reach, at each precision and size.

The limit is the speed of a large convolution and of a large matrix product, measured in the same process, in turns
with the network and with the published graph of it. Operations are counted on the plain graph: a multiplication and an
addition are two.
"""

import resource
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from codes.evaluation import tables
from codes.networks.predictor import half_precision_problem, predictor
from codes.runtime.startup import keep_memory

from . import published_graph
from .networks import NETWORKS, contexts, made, title

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}
SIZES = (128, 256, 512, 1024)
# Processor time of one thread, which other processes hardly change; or seconds of all threads, on an idle machine.
CLOCKS: dict[str, Callable[[], float]] = {"processor": time.process_time, "wall": time.perf_counter}
# Larger images are measured twice only, and without the published graph, which needs too much memory for them.
_LARGE = 256


def run(
    networks: Sequence[str], sizes: Sequence[int] = SIZES, repeats: int = 5, clock: str = "processor"
) -> list[dict[str, Any]]:
    """One row per network, size and precision that this processor has. `networks`: names of NETWORKS, or files."""
    rows = []
    for network in networks:
        for precision in PRECISIONS:
            if precision != "fp32" and half_precision_problem(precision):
                continue
            for size in sizes:
                with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                    rows.append(pool.submit(_measure, network, precision, size, repeats, clock).result())
    return rows


_COLUMNS = "network||size|GFLOP|seconds|GFLOPS|convolution|share|matmul|published|peak GB".split("|")  # noqa: SIM905


def table(rows: Sequence[dict[str, Any]], markdown: bool = False) -> str:
    """The rows as text, or in Markdown."""
    write = tables.markdown if markdown else tables.plain
    return write(_COLUMNS, [_cells(row) for row in rows], "llr").rstrip("\n")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["network"],
        row["precision"],
        str(row["size"]),
        f"{row['gflop']:.1f}",
        f"{row['seconds']:.3f}",
        f"{row['gflops']:.0f}",
        f"{row['convolution_limit']:.0f}",
        f"{100 * row['share']:.0f} %",
        f"{row['matmul_limit']:.0f}",
        f"{row['faster']:.2f}x" if row["faster"] else "",
        f"{row['peak_gb']:.2f}",
    )


def caption(clock: str, repeats: int) -> str:
    """How the rows were measured."""
    threads = "processor time of one thread" if clock == "processor" else f"{torch.get_num_threads()} threads"
    return (
        f"One evaluation, {threads}, best of {repeats} (of 2 above {_LARGE} pixels). Convolution and matmul: GFLOPS "
        "of large ones, the limit. Share: of the convolution's. Published: how many times faster than it in fp32. All "
        "with large pages of memory, and freed memory is kept, as in training."
    )


def _measure(network: str, precision: str, size: int, repeats: int, clock: str) -> dict[str, Any]:
    keep_memory()
    if clock == "processor":
        torch.set_num_threads(1)
    net, given = made(network), contexts(network)
    x, mu = torch.rand(2, 1, 3, size, size)
    predict = predictor(net, degraded=mu, precision=precision, **given)
    predict(x, mu, 50.0)  # packs weights and gets memory, of which nothing else has taken any yet
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # kilobytes on Linux
    gflop = operations(net, given) * (size / 128) ** 2 / 1e9
    works: dict[str, tuple[float, Callable[[], Any]]] = {
        "network": (gflop, lambda: predict(x, mu, 50.0)),
        "convolution": _convolution(PRECISIONS[precision]),
        "matmul": _matmul(PRECISIONS[precision]),
    }
    if network in NETWORKS and size <= _LARGE:
        old = made(network)
        old.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        works["published"] = gflop, lambda: published_graph.evaluate(old, x, mu, 50.0, **given)
    best = dict.fromkeys(works, float("inf"))
    now = CLOCKS[clock]
    with torch.no_grad():
        for turn in range((repeats if size <= _LARGE else 2) + 1):  # the first is not counted
            for name, (_, work) in works.items():
                start = now()
                work()
                if turn:
                    best[name] = min(best[name], now() - start)
    speed = {name: works[name][0] / best[name] for name in works}
    return {
        "network": title(network),
        "precision": precision,
        "size": size,
        "gflop": gflop,
        "seconds": best["network"],
        "gflops": speed["network"],
        "convolution_limit": speed["convolution"],
        "matmul_limit": speed["matmul"],
        "share": speed["network"] / speed["convolution"],
        "faster": best["published"] / best["network"] if "published" in best else None,
        "peak_gb": peak,
    }


def operations(net: nn.Module, given: Mapping[str, torch.Tensor]) -> float:
    """Operations of one evaluation at 128x128. With gradients the plain graph runs, whose operators are counted."""
    x, mu = torch.rand(2, 1, 3, 128, 128)
    counter = FlopCounterMode(display=False)
    with counter, torch.enable_grad():
        net(x, mu, torch.full((1,), 50.0), **given)
    return float(counter.get_total_flops())


def _convolution(dtype: torch.dtype, width: int = 256, side: int = 64) -> tuple[float, Callable[[], Any]]:
    x = torch.rand(1, width, side, side).to(dtype).contiguous(memory_format=torch.channels_last)
    weight = torch.rand(width, width, 3, 3).to(dtype).contiguous(memory_format=torch.channels_last)
    return 2 * 9 * width**2 * side**2 / 1e9, lambda: F.conv2d(x, weight, padding=1)


def _matmul(dtype: torch.dtype, side: int = 2048) -> tuple[float, Callable[[], Any]]:
    a, b = torch.rand(2, side, side).to(dtype)
    return 2 * side**3 / 1e9, lambda: a @ b
