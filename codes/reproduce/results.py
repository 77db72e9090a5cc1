"""Stored results: the cells of a reproduction, collected from its runs and kept in one file with the report."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..evaluation.records import INPUT, Record, read_records, read_scores, record_of, with_scores
from ..evaluation.statistics import Estimate, estimate, paired, pooled
from ..evaluation.tables import QUALITY
from ..runtime.files import read_json, read_lines, write_atomically
from ..runtime.problems import Damaged
from .catalogue import METHODS, SAME
from .testsets import TEST_SETS

CELLS_FILE, FULL_FILE = "cells.json", "full.json"
SETTINGS_FILE = "made-for.json"
FULL = "full"  # folder of the runs on whole test sets
RUNS = "runs"
METRICS = tuple(column.name for column in QUALITY)
_DIGITS = {"psnr": 3, "ssim": 5, "lpips": 5}  # of the values of single images, which errors are computed from


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One method on one task at one number of evaluations; a metric is None where it could not be computed.

    metrics   means over the images, and metrics of the whole set
    values    the values of each image, by metric and name: what the standard errors come from
    """

    task: str
    method: str
    nfe: int
    images: int
    seconds: float
    metrics: dict[str, float | None] = field(default_factory=dict)
    values: dict[str, dict[str, float]] = field(default_factory=dict)

    def value(self, name: str) -> float | None:
        """A metric, or the seconds per image."""
        value = self.seconds if name == "seconds" else self.metrics.get(name)
        return value if value is None or math.isfinite(value) else None

    def estimate(self, name: str) -> Estimate | None:
        """A mean over images with its standard error; of a set's metric and of the seconds the value alone."""
        value = self.value(name)
        known = estimate(list(self.values.get(name, {}).values()))
        return None if value is None else Estimate(value, known.error if known else None, self.images)


@dataclass(frozen=True, kw_only=True)
class Results:
    """All cells of a reproduction, its settings and environment.

    inputs   scores of the degraded images, by task
    full     where the others are of parts of the paper's test sets: the recommended solver on all of their images,
             whole
    """

    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    cells: tuple[Cell, ...] = ()
    notes: tuple[str, ...] = ()
    inputs: tuple[Cell, ...] = ()
    full: "Results | None" = None

    def cell(self, task: str, method: str, nfe: int) -> Cell | None:
        """One cell, None where it is missing."""
        return self._by_key.get((task, SAME.get((method, nfe), method), nfe))

    @cached_property
    def _by_key(self) -> dict[tuple[str, str, int], Cell]:
        return {(cell.task, cell.method, cell.nfe): cell for cell in self.cells}

    def mean(self, tasks: Iterable[str], method: str, nfe: int, metric: str) -> float | None:
        """The mean over some tasks, None unless all of them have the number."""
        found = self.mean_estimate(tasks, method, nfe, metric)
        return None if found is None else found.mean

    def mean_estimate(self, tasks: Iterable[str], method: str, nfe: int, metric: str) -> Estimate | None:
        """The same with its standard error."""
        cells = [self.cell(task, method, nfe) for task in tasks]
        return pooled([None if cell is None else cell.estimate(metric) for cell in cells])

    def difference(
        self, tasks: Iterable[str], one: tuple[str, int], other: tuple[str, int], metric: str
    ) -> Estimate | None:
        """One (method, NFE) minus another on the images that both have restored, the mean over some tasks.

        Of cells without values of single images the difference of their means, without a standard error.
        """
        parts = []
        for task in tasks:
            first, second = self.cell(task, *one), self.cell(task, *other)
            if first is None or second is None:
                return None
            part = paired(first.values.get(metric, {}), second.values.get(metric, {}))
            values = first.value(metric), second.value(metric)
            if part is None and values[0] is not None and values[1] is not None:
                part = Estimate(values[0] - values[1], None, min(first.images, second.images))
            parts.append(part)
        return pooled(parts)

    def input_estimate(self, tasks: Sequence[str], metric: str) -> Estimate | None:
        """The mean of the degraded images themselves."""
        cells = {cell.task: cell for cell in self.inputs}
        return pooled([cells[task].estimate(metric) if task in cells else None for task in tasks])

    @property
    def same_model(self) -> bool:
        """Whether the paper's numbers are of this model."""
        return self.settings.get("model") == "daclip"

    def test_set(self, task: str) -> dict[str, Any] | None:
        """The paper's test set that a task's images are of: its folder and number of images; None for other images."""
        found: dict[str, Any] | None = self.settings.get("sets", {}).get(task)
        return found

    def is_whole_set(self, task: str | None) -> bool:
        """Whether a task's images are those of the paper's test set: all of them, and whole."""
        found = None if task is None else self.test_set(task)
        whole = self.settings.get("set_size") is None
        return whole and found is not None and found["images"] == TEST_SETS[str(task)].images


def run_folder(root: Path, task: str, method: str) -> Path:
    """Where the run of a method on a task is kept."""
    return root / RUNS / task / method


def label(method: str, nfe: int) -> str:
    """The solver's label within its run."""
    return f"{method}-nfe{nfe}"


def collect(root: Path) -> Results:
    """The results below a folder: from its runs, else its cells.json; raises FileNotFoundError without either."""
    settings_file = root / SETTINGS_FILE
    if not settings_file.is_file():  # not where runs were made
        return load(root / CELLS_FILE)
    settings = read_json(settings_file)
    whole = _collect(root / FULL, {**settings, "set_images": None, "set_size": None})
    counts = {cell.task: cell.images for cell in whole.cells}
    sets = {task: {**known, "images": counts.get(task, 0)} for task, known in settings.get("sets", {}).items()}
    whole = replace(whole, settings={**whole.settings, "sets": sets})
    return replace(_collect(root, settings), full=whole if whole.cells else None)


def _collect(root: Path, settings: dict[str, Any]) -> Results:
    """The results of the runs below a folder."""
    cells: list[Cell] = []
    inputs: dict[str, Cell] = {}
    notes: list[str] = []
    starts: list[dict[str, Any]] = []
    for folder in sorted((root / RUNS).glob("*/*/")):
        task, method = folder.parent.name, folder.name
        if method not in METHODS or not (folder / "summary.json").is_file():
            continue
        summary = read_json(folder / "summary.json")
        records = [*with_scores(read_records(folder).values(), read_scores(folder)), *_input_records(folder)]
        nfe_of = {label(method, nfe): nfe for nfe in METHODS[method].nfes}
        most = max((row["images"] for row in summary["rows"]), default=0)
        for row in summary["rows"]:
            metrics = {name: row["metrics"][name] for name in METRICS if name in row["metrics"]}
            if row["images"] < most and "fid" in metrics:
                metrics["fid"] = None  # it depends on the number of images: not to be compared with the other rows
            values = _values([record for record in records if record.solver == row["solver"]])
            numbers: dict[str, Any] = {"task": task, "images": row["images"], "metrics": metrics, "values": values}
            if row["solver"] in nfe_of:
                cells.append(Cell(method=method, nfe=nfe_of[row["solver"]], seconds=row["seconds"], **numbers))
            elif row["solver"] == INPUT and row["images"] >= (inputs[task].images if task in inputs else 0):
                inputs[task] = Cell(method=INPUT, nfe=0, seconds=0.0, **numbers)
        notes += [note for note in summary["notes"] if note not in notes and not note.startswith("fewer images")]
        starts += read_json(folder / "environment.json") or []
    return Results(
        settings=settings,
        environment=_environment(starts),
        cells=tuple(cells),
        notes=tuple(notes),
        inputs=tuple(inputs.values()),
    )


def _input_records(folder: Path) -> list[Record]:
    """The scores of the degraded images themselves."""
    found = read_lines(folder / "inputs.jsonl")
    return [] if found is None else [record for line in found.values[1:] if (record := record_of(line)) is not None]


def _values(records: Iterable[Record]) -> dict[str, dict[str, float]]:
    """The metrics of single images, rounded as they are stored."""
    values: dict[str, dict[str, float]] = {}
    for record in sorted(records, key=lambda record: record.name):
        for name, digits in _DIGITS.items():
            value = record.metrics.get(name)
            if value is not None and math.isfinite(value):
                values.setdefault(name, {})[record.name] = round(value, digits)
    return values


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
    """Write results so that they can be rendered anywhere; values of images in the order of `names`.

    Those of whole test sets go into a file beside it.
    """
    full = path.with_name(FULL_FILE)
    if results.full is not None:
        save(results.full, full)
    elif path.name == CELLS_FILE:
        full.unlink(missing_ok=True)
    names = {
        task: sorted({name for cell in cells for values in cell.values.values() for name in values})
        for task, cells in _by_task([*results.inputs, *results.cells]).items()
    }

    def plain(cell: Cell) -> dict[str, Any]:
        values = {
            metric: [known.get(name) for name in names[cell.task]] for metric, known in sorted(cell.values.items())
        }
        return {**asdict(cell), "values": values}

    content = {
        "settings": results.settings,
        "environment": results.environment,
        "notes": list(results.notes),
        "names": {task: names[task] for task in sorted(names) if names[task]},
    }
    head = json.dumps(content, indent=1, ensure_ascii=False).removesuffix("\n}")
    lists = {
        "inputs": sorted(results.inputs, key=lambda c: c.task),
        "cells": sorted(results.cells, key=lambda c: (c.task, c.method, -c.nfe)),
    }
    parts = [
        f' "{key}": [\n' + ",\n".join(f"  {json.dumps(plain(cell), ensure_ascii=False)}" for cell in cells) + "\n ]"
        for key, cells in lists.items()
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (",\n".join([head, *parts]) + "\n}\n").encode())


def _by_task(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell.task, []).append(cell)
    return found


def load(path: Path) -> Results:
    """Read what `save` wrote."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise Damaged(f"{path}: damaged, no JSON; write it again from the runs: reproduce.py --render-only") from None
    names = content.pop("names")

    def made(cell: dict[str, Any]) -> Cell:
        values = {
            metric: {name: value for name, value in zip(names[cell["task"]], known) if value is not None}
            for metric, known in cell["values"].items()
        }
        return Cell(**{**cell, "values": values})

    content |= {key: tuple(made(cell) for cell in content[key]) for key in ("cells", "inputs")}
    full = path.with_name(FULL_FILE)
    whole = load(full) if path.name == CELLS_FILE and full.is_file() else None
    return Results(**{**content, "notes": tuple(content["notes"]), "full": whole})
