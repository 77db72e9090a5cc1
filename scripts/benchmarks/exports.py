"""Processor time of one restoration with torch and with the exported graphs, one thread each, in turns."""

import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from codes import load_restorer
from codes.evaluation.tables import plain
from codes.integrations.export import SUFFIXES, Format, Unrolled, export, runner
from codes.restoration.restorer import Restorer

FORMATS: tuple[Format, ...] = ("onnx", "openvino")


def run(
    weights: str, sizes: Sequence[int] = (128, 256), nfes: Sequence[int] = (1, 2), repeats: int = 5
) -> list[dict[str, Any]]:
    """One row per number of evaluations and side. Ratios are torch's time over the graph's: above 1 it is faster."""
    torch.set_num_threads(1)
    restorer = load_restorer(weights, device="cpu", overrides=["precision=fp32"])
    rows = []
    for nfe in nfes:
        with tempfile.TemporaryDirectory() as folder:
            graphs = {}
            for format in FORMATS:
                file = Path(folder) / f"graph{SUFFIXES[format]}"
                export(restorer, file, format, nfe=nfe)
                graphs[format] = runner(file, threads=1)
            rows += [_measure(restorer, graphs, nfe, size, repeats) for size in sizes]
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as text."""
    lines = []
    for row in rows:
        errors = [cell for name in FORMATS for cell in (f"{row['ratio'][name]:.2f}", f"{row['error'][name]:.0e}")]
        lines.append([str(row["nfe"]), str(row["size"]), f"{row['seconds']['torch']:.3f}", *errors])
    return plain(["NFE", "size", "torch s", *(cell for name in FORMATS for cell in (f"{name} x", "error"))], lines, "r")


def _measure(
    restorer: Restorer, graphs: dict[Format, Callable[[Any, Any], Any]], nfe: int, size: int, repeats: int
) -> dict[str, Any]:
    rng = torch.Generator().manual_seed(0)
    image = torch.rand(3, size, size, generator=rng)
    # The graphs take the noise that the restorer draws.
    module, rng = Unrolled(restorer, restorer.plan(None, nfe)), torch.Generator().manual_seed(0)
    noise = torch.stack([torch.randn(image.shape, generator=rng)[None] for _ in range(module.draws)]).numpy()
    batch = image[None].numpy()
    works: dict[str, Callable[[], Any]] = {"torch": lambda: restorer(image, nfe=nfe, seed=0, strength=1.0).numpy()}
    works |= {name: partial(graph, batch, noise) for name, graph in graphs.items()}
    best, outputs = dict.fromkeys(works, float("inf")), {}
    for turn in range(repeats + 1):  # the first turn packs weights and gets memory
        for name, work in works.items():
            start = time.process_time()
            outputs[name] = work()
            if turn:
                best[name] = min(best[name], time.process_time() - start)
    return {
        "nfe": nfe,
        "size": size,
        "seconds": best,
        "ratio": {name: best["torch"] / best[name] for name in graphs},
        "error": {name: float(np.abs(outputs[name] - outputs["torch"]).max()) for name in graphs},
    }
