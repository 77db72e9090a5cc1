"""What share of the machine's arithmetic limit the networks reach, at each precision and size.

The limit is the speed of a large convolution and of a large matrix product, measured in the same process, in turns
with the network. Operations are counted on the plain graph: a multiplication and an addition are two.
"""

import resource
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from codes.networks import build_network
from codes.networks.checkpoints import load_network
from codes.networks.predictor import half_precision_problem, predictor
from codes.runtime.startup import keep_memory

from .networks import NETWORKS

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def run(
    networks: Sequence[str], sizes: Sequence[int] = (128, 256, 512, 1024), repeats: int = 5
) -> list[dict[str, Any]]:
    """One row per network, size and precision that this processor has. `networks`: names of NETWORKS, or files."""
    rows = []
    for network in networks:
        for precision in PRECISIONS:
            if precision != "fp32" and half_precision_problem(precision):
                continue
            for size in sizes:
                with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                    rows.append(pool.submit(_measure, network, precision, size, repeats).result())
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as text."""
    lines = [
        f"{'network':18} {'':5} {'size':>5} {'GFLOP':>7} {'seconds':>8} {'GFLOPS':>7}"
        f"   {'limit':>6} {'share':>6}   {'matmul':>6} {'peak GB':>8}"
    ]
    for row in rows:
        lines.append(
            f"{row['network']:18} {row['precision']:5} {row['size']:5} {row['gflop']:7.1f} {row['seconds']:8.3f}"
            f" {row['gflops']:7.0f}   {row['convolution_limit']:6.0f} {100 * row['share']:5.0f} %"
            f"   {row['matmul_limit']:6.0f} {row['peak_gb']:8.2f}"
        )
    return "\n".join(lines)


def processor() -> str:
    """Name and vector instructions of the processor, for the caption of a table."""
    info = Path("/proc/cpuinfo")
    lines = dict(line.split(":", 1) for line in info.read_text().splitlines() if ":" in line) if info.exists() else {}
    fields = {key.strip(): value.strip() for key, value in lines.items()}
    flags = fields.get("flags", "").split()
    known = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags]
    return f"{fields.get('model name', 'unknown processor')} ({', '.join(known) or 'no AVX2'})"


def _measure(network: str, precision: str, size: int, repeats: int) -> dict[str, Any]:
    keep_memory()
    torch.manual_seed(0)
    net = build_network(*NETWORKS[network]) if network in NETWORKS else load_network(network)[0]
    net.eval()
    x, mu = torch.rand(2, 1, 3, size, size)
    text, image = torch.randn(2, 1, 512) if network == "daclip-unet" else (None, None)
    gflop = operations(net, text, image) * (size / 128) ** 2 / 1e9
    predict = predictor(net, degraded=mu, text_context=text, image_context=image, precision=precision)
    works: dict[str, tuple[float, Callable[[], Any]]] = {
        "network": (gflop, lambda: predict(x, mu, 50.0)),
        "convolution": _convolution(PRECISIONS[precision]),
        "matmul": _matmul(PRECISIONS[precision]),
    }
    best = dict.fromkeys(works, float("inf"))
    with torch.no_grad():
        for turn in range(repeats + 1):  # the first turn packs weights and gets memory
            for name, (_, work) in works.items():
                start = time.perf_counter()
                work()
                if turn:
                    best[name] = min(best[name], time.perf_counter() - start)
    speed = {name: works[name][0] / best[name] for name in works}
    return {
        "network": Path(network).stem,
        "precision": precision,
        "size": size,
        "gflop": gflop,
        "seconds": best["network"],
        "gflops": speed["network"],
        "convolution_limit": speed["convolution"],
        "matmul_limit": speed["matmul"],
        "share": speed["network"] / speed["convolution"],
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,  # kilobytes on Linux
    }


def operations(net: nn.Module, text: torch.Tensor | None, image: torch.Tensor | None, side: int = 128) -> float:
    """Operations of one evaluation at a size. With gradients the plain graph runs, whose operators are counted."""
    x, mu = torch.rand(2, 1, 3, side, side)
    contexts = () if text is None else (text, image)
    counter = FlopCounterMode(display=False)
    with counter, torch.enable_grad():
        net(x, mu, torch.full((1,), 50.0), *contexts)
    return float(counter.get_total_flops())


def _convolution(dtype: torch.dtype, width: int = 256, side: int = 64) -> tuple[float, Callable[[], Any]]:
    x = torch.rand(1, width, side, side).to(dtype).contiguous(memory_format=torch.channels_last)
    weight = torch.rand(width, width, 3, 3).to(dtype).contiguous(memory_format=torch.channels_last)
    return 2 * 9 * width**2 * side**2 / 1e9, lambda: F.conv2d(x, weight, padding=1)


def _matmul(dtype: torch.dtype, side: int = 2048) -> tuple[float, Callable[[], Any]]:
    a, b = torch.rand(2, side, side).to(dtype)
    return 2 * side**3 / 1e9, lambda: a @ b
