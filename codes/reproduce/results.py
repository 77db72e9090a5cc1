"""Stored results: the cells of a reproduction, collected from its runs and kept in one file with the report."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..evaluation.tables import QUALITY, mean
from ..runtime.files import read_json
from .catalogue import METHODS, SAME

CELLS_FILE = "cells.json"
RUNS = "runs"
METRICS = tuple(column.name for column in QUALITY)
INPUT = "(input)"  # the solver of the degraded images in a summary


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One method on one task at one number of evaluations; a metric is None where it could not be computed."""

    task: str
    method: str
    nfe: int
    images: int
    seconds: float
    metrics: dict[str, float | None] = field(default_factory=dict)

    def value(self, name: str) -> float | None:
        """A metric, or the seconds per image."""
        value = self.seconds if name == "seconds" else self.metrics.get(name)
        return value if value is None or math.isfinite(value) else None


@dataclass(frozen=True, kw_only=True)
class Results:
    """All cells of a reproduction, its settings and environment."""

    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    cells: tuple[Cell, ...] = ()
    notes: tuple[str, ...] = ()
    inputs: tuple[Cell, ...] = ()  # scores of the degraded images, by task

    def cell(self, task: str, method: str, nfe: int) -> Cell | None:
        """One cell, None where it is missing."""
        return self._by_key.get((task, SAME.get((method, nfe), method), nfe))

    @cached_property
    def _by_key(self) -> dict[tuple[str, str, int], Cell]:
        return {(cell.task, cell.method, cell.nfe): cell for cell in self.cells}

    def value(self, task: str, method: str, nfe: int, metric: str) -> float | None:
        """One number, None where it is missing."""
        cell = self.cell(task, method, nfe)
        return None if cell is None else cell.value(metric)

    def mean(self, tasks: Iterable[str], method: str, nfe: int, metric: str) -> float | None:
        """The mean over some tasks, None unless all of them have the number."""
        return mean([self.value(task, method, nfe, metric) for task in tasks])

    def input_mean(self, tasks: Sequence[str], metric: str) -> float | None:
        """The same for the degraded images themselves."""
        values = {cell.task: cell.value(metric) for cell in self.inputs}
        return mean([values.get(task) for task in tasks])

    @property
    def same_model(self) -> bool:
        """Whether the paper's numbers are of this model and these data."""
        return self.settings.get("model") == "daclip"


def run_folder(root: Path, task: str, method: str) -> Path:
    """Where the run of a method on a task is kept."""
    return root / RUNS / task / method


def label(method: str, nfe: int) -> str:
    """The solver's label within its run."""
    return f"{method}-nfe{nfe}"


def collect(root: Path) -> Results:
    """The results below a folder: from its runs, else its cells.json; raises FileNotFoundError without either."""
    settings_file = root / "made-for.json"
    if not settings_file.is_file():  # not where runs were made
        return load(root / CELLS_FILE)
    cells, inputs, notes, starts = [], {}, [], []
    for folder in sorted((root / RUNS).glob("*/*/")):
        task, method = folder.parent.name, folder.name
        if method not in METHODS or not (folder / "summary.json").is_file():
            continue
        summary = json.loads((folder / "summary.json").read_text())
        nfe_of = {label(method, nfe): nfe for nfe in METHODS[method].nfes}
        for row in summary["rows"]:
            metrics = {name: row["metrics"][name] for name in METRICS if name in row["metrics"]}
            numbers: dict[str, Any] = {"task": task, "images": row["images"], "metrics": metrics}
            if row["solver"] in nfe_of:
                cells.append(Cell(method=method, nfe=nfe_of[row["solver"]], seconds=row["seconds"], **numbers))
            elif row["solver"] == INPUT:
                inputs[task] = Cell(method=INPUT, nfe=0, seconds=0.0, **numbers)
        notes += [note for note in summary["notes"] if note not in notes]
        if (folder / "environment.json").is_file():
            starts += json.loads((folder / "environment.json").read_text())
    settings = read_json(settings_file)
    return Results(
        settings=settings,
        environment=_environment(starts),
        cells=tuple(cells),
        notes=tuple(notes),
        inputs=tuple(inputs.values()),
    )


def _environment(starts: list[dict[str, Any]]) -> dict[str, Any]:
    """Versions and machines of all starts, each value once."""
    known: dict[str, list[Any]] = {}
    for start in sorted(starts, key=lambda start: str(start["started"])):
        flat = {key: start.get(key) for key in ("commit", "python", "system", "device", "threads", "processes")}
        flat |= {name: version for name, version in start.get("packages", {}).items() if version}
        for key, value in flat.items():
            if value is not None and value not in known.setdefault(key, []):
                known[key].append(value)
    dates = sorted(str(start["started"]) for start in starts)
    return {"started": [dates[0], dates[-1]], **known} if dates else {}


def save(results: Results, path: Path) -> None:
    """Write results so that they can be rendered anywhere."""
    content = {
        "settings": results.settings,
        "environment": results.environment,
        "notes": list(results.notes),
        "inputs": [asdict(cell) for cell in sorted(results.inputs, key=lambda c: c.task)],
        "cells": [asdict(cell) for cell in sorted(results.cells, key=lambda c: (c.task, c.method, -c.nfe))],
    }
    lines = json.dumps({**content, "cells": []}, indent=1, ensure_ascii=False).removesuffix("[]\n}")
    cells = ",\n".join(f"  {json.dumps(cell, ensure_ascii=False)}" for cell in content["cells"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{lines}[\n{cells}\n ]\n}}\n", encoding="utf-8")


def load(path: Path) -> Results:
    """Read what `save` wrote."""
    content = json.loads(path.read_text(encoding="utf-8"))
    content |= {key: tuple(Cell(**cell) for cell in content[key]) for key in ("cells", "inputs")}
    return Results(**{**content, "notes": tuple(content["notes"])})
