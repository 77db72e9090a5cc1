"""The log of a training: losses, speed, validation scores."""

import logging
import math
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ..runtime.files import JsonLines, mend_lines, read_json_lines, write_json_lines

log = logging.getLogger(__name__)


class Meter:
    """Mean loss and images per second since the last `take`."""

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self.restart()

    def restart(self) -> None:
        """Start measuring anew."""
        self._losses: list[float] = []
        self._start = time.perf_counter()

    def add(self, loss: float) -> None:
        """Add the loss of a step."""
        self._losses.append(loss)

    def take(self) -> dict[str, float]:
        """The numbers so far; starts measuring anew."""
        count = max(len(self._losses), 1)
        seconds = max(time.perf_counter() - self._start, 1e-9)
        result = {"loss": sum(self._losses) / count, "images/s": round(count * self._batch / seconds, 2)}
        self.restart()
        return result


class Journal:
    """log.jsonl, TensorBoard if chosen and installed, and a line per entry where there is no progress bar."""

    def __init__(self, folder: Path, done: int, tensorboard: bool) -> None:
        path = folder / "log.jsonl"
        if damaged := mend_lines(path):
            log.warning("%s: %d damaged lines are left out; the old file is kept beside it", path, len(damaged))
        lines = list(read_json_lines(path))
        # Steps after the last checkpoint of a stopped run are made, and logged, again.
        kept = [line for line in lines if _step_of(line) <= done]
        if len(kept) < len(lines):
            write_json_lines(path, kept)
        self.validated = {line["step"] for line in kept if "validation" in line}
        self._file = JsonLines(path)
        self._writer: Any = None
        if tensorboard:
            try:
                from torch.utils.tensorboard import SummaryWriter

                self._writer = SummaryWriter(folder / "tensorboard", purge_step=done + 1)
            except ImportError:
                log.info("no TensorBoard log: the package tensorboard is not installed")

    def add(self, done: int, values: Mapping[str, Any]) -> None:
        """Write the values measured after `done` steps."""
        self._file.append({"step": done, **values})
        flat = dict(_flat(values))
        if self._writer is not None:
            for name, value in flat.items():
                self._writer.add_scalar(name, value, done)
        if "validation" in values:
            shown = {key: value for key, value in flat.items() if key.startswith("validation/all/")}
            tqdm.write(f"step {done}: " + ", ".join(f"{key[15:]} {value:.3f}" for key, value in shown.items()))
        elif not sys.stderr.isatty():
            log.info("step %d: %s", done, ", ".join(f"{key} {value:.4g}" for key, value in flat.items()))

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        if self._writer is not None:
            self._writer.close()


def _step_of(line: Mapping[str, Any]) -> float:
    step = line.get("step")
    return step if isinstance(step, int | float) else math.inf


def _flat(values: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, float]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{at}{key}/")
        else:
            yield f"{at}{key}", value
