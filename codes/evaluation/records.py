"""The records of a run: one JSON line per restored image, and what makes a results folder safe to stop and resume.

A record is appended after its image is on disk, so it is the commit point: what has a record is done, all else is not.
Every process appends to a file of its own; all files together are the state of the run.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..runtime.files import JsonLines, read_json_lines

Key = tuple[str, str, str]  # task, solver label, image name

INPUT = "(input)"  # the row of the degraded images themselves; no solver can have this name


@dataclass(frozen=True, kw_only=True)
class Record:
    """One restored image."""

    task: str
    solver: str
    name: str
    nfe: int
    seed: int
    seconds: float
    tile: int | None = None
    metrics: dict[str, float | None] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """What identifies it within the run."""
        return self.task, self.solver, self.name


def input_record(task: str, name: str, seed: int, metrics: dict[str, float | None]) -> Record:
    """What a degraded image itself scores."""
    return Record(task=task, solver=INPUT, name=name, nfe=0, seed=seed, seconds=0.0, metrics=metrics)


class RecordFile(JsonLines):
    """A file of records."""

    def add(self, record: Record) -> None:
        """Write a record and make sure that it is on disk."""
        self.append(asdict(record))


def read_records(folder: Path) -> dict[Key, Record]:
    """All complete records of a results folder; half-written lines are not counted."""
    records: dict[Key, Record] = {}
    for path in sorted(folder.glob("records.*.jsonl")):
        for line in read_json_lines(path):
            try:
                record = Record(**line)
            except TypeError:
                continue
            records.setdefault(record.key, record)
    return records


def with_scores(records: Iterable[Record], scores: dict[Key, dict[str, float | None]]) -> list[Record]:
    """Records with the metrics of a later scoring in place of their own, in a fixed order."""
    merged = []
    for record in records:
        metrics = scores.get(record.key)
        if metrics is not None:
            record = Record(**{**asdict(record), "metrics": metrics})
        merged.append(record)
    return sorted(merged, key=lambda record: record.key)


def read_scores(folder: Path) -> dict[Key, dict[str, float | None]]:
    """The metrics of the latest `--score-only`, if there was one."""
    path = folder / "scores.jsonl"
    if not path.is_file():
        return {}
    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    return {(line["task"], line["solver"], line["name"]): line["metrics"] for line in lines}
