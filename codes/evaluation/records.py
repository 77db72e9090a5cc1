"""Records of a test run: one JSON line per restored image, which makes a run safe to stop and resume.

A record is appended after its image is on disk, so it is the commit point: an image is done if and only if it has a
record. Every process appends to its own file; all files together are the state of the run.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..runtime.files import JsonLines, read_json_lines

Key = tuple[str, str, str]  # task, solver label, image name

INPUT = "(input)"  # label of the degraded images' own scores; no solver can have this name


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
        """Identifies the image within the run."""
        return self.task, self.solver, self.name


def input_record(task: str, name: str, seed: int, metrics: dict[str, float | None]) -> Record:
    """A record of the degraded image's own scores."""
    return Record(task=task, solver=INPUT, name=name, nfe=0, seed=seed, seconds=0.0, metrics=metrics)


class RecordFile(JsonLines):
    """A file of records."""

    def add(self, record: Record) -> None:
        """Write a record and flush it to disk."""
        self.append(asdict(record))


def read_records(folder: Path) -> dict[Key, Record]:
    """All complete records of a results folder; half-written lines are skipped."""
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
    """The records, sorted by key, with their metrics replaced by those of a later scoring."""
    merged = []
    for record in records:
        metrics = scores.get(record.key)
        if metrics is not None:
            record = Record(**{**asdict(record), "metrics": metrics})
        merged.append(record)
    return sorted(merged, key=lambda record: record.key)


def read_scores(folder: Path) -> dict[Key, dict[str, float | None]]:
    """The metrics of the latest `--score-only` run; empty if there was none."""
    path = folder / "scores.jsonl"
    if not path.is_file():
        return {}
    lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    return {(line["task"], line["solver"], line["name"]): line["metrics"] for line in lines}
