"""What share of the machine's arithmetic limit the networks reach, at each precision and size.

The limit is the speed of a large convolution and of a large matrix product, measured in the same process, in turns
with the network; the published graph of it is measured right after. Operations are counted on the plain graph: a
multiplication and an addition are two.
"""

import os
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from codes.evaluation import tables
from codes.networks.predictor import half_precision_problem, predictor
from codes.runtime.startup import HUGE_PAGES, keep_memory

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
                row = _alone(_measure, network, precision, size, repeats, clock)
                published = None
                if network in NETWORKS and size <= _LARGE:
                    with _usual_pages():
                        published = _alone(_published, network, size, repeats, clock)
                rows.append({**row, "faster": published and published / row["seconds"]})
    return rows


def _alone(work: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function in a new process."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


@contextmanager
def _usual_pages() -> Iterator[None]:
    """New processes have torch's own settings of memory, as a program has that uses the published code."""
    before = os.environ.pop(HUGE_PAGES, None)
    try:
        yield
    finally:
        if before is not None:
            os.environ[HUGE_PAGES] = before


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
        "of large ones, the limit. Share: of the convolution's. Published: how many times faster than it in fp32, in a "
        "process with torch's own settings of memory; all else with large pages, and freed memory is kept, as in "
        "training."
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
    best = _best({name: work for name, (_, work) in works.items()}, repeats if size <= _LARGE else 2, clock)
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
        "peak_gb": peak,
    }


def _published(network: str, size: int, repeats: int, clock: str) -> float:
    """Seconds of one evaluation of the published graph, in fp32."""
    if clock == "processor":
        torch.set_num_threads(1)
    net, given = made(network), contexts(network)
    net.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    x, mu = torch.rand(2, 1, 3, size, size)
    return _best({"": lambda: published_graph.evaluate(net, x, mu, 50.0, **given)}, repeats, clock)[""]


def _best(works: Mapping[str, Callable[[], Any]], repeats: int, clock: str) -> dict[str, float]:
    """The fewest seconds of some works, in turns."""
    best, now = dict.fromkeys(works, float("inf")), CLOCKS[clock]
    with torch.no_grad():
        for turn in range(repeats + 1):  # the first is not counted
            for name, work in works.items():
                start = now()
                work()
                if turn:
                    best[name] = min(best[name], now() - start)
    return best


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
