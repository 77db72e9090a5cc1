"""Records of a test run: one JSON line per restored image, which makes a run safe to stop and resume.

A record is appended after its image is on disk, so it is the commit point: an image is done if and only if it has a
record. It holds the checksums of the restored image and of what it was made from, so that a later run notices what was
damaged or changed since. Every process appends to its own file; all files together are the state of the run.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ..names import is_file_name, is_folder_name
from ..runtime.files import JsonLines, mend_lines, read_json_lines, read_lines, set_aside, write_json_lines

log = logging.getLogger(__name__)

Key = tuple[str, str, str]  # task, solver label, image name
Scores = dict[str, float | None]

INPUT = "(input)"  # label of the degraded images' own scores; no solver can have this name
_LONGEST_LABEL = 250  # bytes; labels are put together from a name and options


@dataclass(frozen=True, kw_only=True)
class Record:
    """One restored image.

    image     SHA-256 of its file; '' in records of earlier versions, like the three below
    lq, gt    what it was made from and compared with, by content: see `data.sets.Sources`
    made      the weights and settings it was made with: see `binding.fingerprint`
    options   the options of its solver
    border    pixels that the metrics leave out
    """

    task: str
    solver: str
    name: str
    nfe: int
    seed: int
    seconds: float
    tile: int | None = None
    metrics: Scores = field(default_factory=dict)
    border: int = 0
    image: str = ""
    lq: str = ""
    gt: str = ""
    made: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """Identifies the image within the run."""
        return self.task, self.solver, self.name


_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("task", "solver", "name", "image", "lq", "gt", "made"), (str,)),
    **dict.fromkeys(("nfe", "seed", "border"), (int,)),
    "seconds": (int, float),
    "tile": (int, type(None)),
    **dict.fromkeys(("metrics", "options"), (dict,)),
}


def record_of(line: Mapping[str, Any]) -> Record | None:
    """The record of a line; None if the line is none."""
    names = {field.name for field in fields(Record)}
    if not {"task", "solver", "name", "nfe", "seed", "seconds"} <= set(line) <= names:
        return None
    if not all(isinstance(value, _TYPES[key]) and not isinstance(value, bool) for key, value in line.items()):
        return None
    # A folder may come from somebody else: what becomes a path must not lead out of it.
    solver, name = line["solver"], line["name"]
    if not (is_folder_name(line["task"]) and (solver == INPUT or is_label(solver)) and is_file_name(name)):
        return None
    return Record(**line) if _are_scores(line.get("metrics", {})) else None


def is_label(name: str) -> bool:
    """Whether a solver may have this label, which is the name of a folder."""
    return is_folder_name(name, _LONGEST_LABEL)


def _are_scores(values: Any) -> bool:
    return isinstance(values, dict) and all(
        value is None or isinstance(value, int | float) for value in values.values()
    )


def input_record(task: str, name: str, seed: int, metrics: Scores) -> Record:
    """A record of the degraded image's own scores."""
    return Record(task=task, solver=INPUT, name=name, nfe=0, seed=seed, seconds=0.0, metrics=metrics)


def line_of(record: Record) -> dict[str, Any]:
    """A record as JSON, without what is empty."""
    return {key: value for key, value in asdict(record).items() if value != "" and not (key == "options" and not value)}


class RecordFile(JsonLines):
    """A file of records."""

    def add(self, record: Record) -> None:
        """Write a record and flush it to disk."""
        self.append(line_of(record))


def record_files(folder: Path) -> list[Path]:
    """The files of records, one for each process that ever worked in this folder."""
    return sorted(folder.glob("records.*.jsonl"))


def read_records(folder: Path) -> dict[Key, Record]:
    """All whole records of a results folder; half-written and damaged lines are skipped."""
    records: dict[Key, Record] = {}
    for path in record_files(folder):
        for line in read_json_lines(path):
            record = record_of(line)
            if record is not None:
                records.setdefault(record.key, record)
    return records


def mend_records(folder: Path) -> None:
    """Set files of records with damaged lines aside, keep their whole lines, and say so."""
    for path in record_files(folder):
        damaged = mend_lines(path)
        if damaged:
            log.warning(
                "%s: %d damaged lines, kept as %s.damaged; their images are restored again",
                path, len(damaged), path.name,
            )  # fmt: skip


def drop_records(folder: Path, keys: set[Key]) -> None:
    """Take back the records of images that are no longer whole."""
    for path in record_files(folder):
        found = [record for line in read_json_lines(path) if (record := record_of(line)) is not None]
        kept = [line_of(record) for record in found if record.key not in keys]
        if len(kept) < len(found):
            write_json_lines(path, kept)


# ---- a later scoring


@dataclass(frozen=True)
class Rescored:
    """The metrics of an image as `--score-only` computed them, and the border they leave out."""

    metrics: Scores
    border: int


def with_scores(records: Iterable[Record], scores: Mapping[Key, Rescored]) -> list[Record]:
    """The records, sorted by key, with their metrics replaced by those of a later scoring."""
    merged = []
    for record in records:
        found = scores.get(record.key)
        if found is not None:
            record = replace(record, metrics=found.metrics, border=found.border)
        merged.append(record)
    return sorted(merged, key=lambda record: record.key)


def read_scores(folder: Path) -> dict[Key, Rescored]:
    """The metrics of the latest `--score-only` run; empty if there was none. A damaged file is set aside."""
    path = folder / "scores.jsonl"
    found = read_lines(path)
    if found is None:
        return {}
    scores: dict[Key, Rescored] = {}
    for line in found.values:
        key = tuple(line.get(part) for part in ("task", "solver", "name"))
        metrics, border = line.get("metrics"), line.get("border", 0)
        if not all(isinstance(part, str) for part in key) or not _are_scores(metrics) or not isinstance(border, int):
            found.damaged.append(0)
            continue
        scores[key[0], key[1], key[2]] = Rescored(metrics or {}, border)  # type: ignore[index]
    if found.damaged or (not scores and path.stat().st_size == 0):
        aside = set_aside(path)
        log.warning("%s: damaged, kept as %s; --score-only scores the images again", path, aside.name)
        return {}
    return scores


def write_scores(folder: Path, scores: Mapping[Key, Rescored]) -> None:
    """Keep the metrics of a `--score-only` run."""
    lines = [
        {"task": task, "solver": solver, "name": name, "metrics": found.metrics, "border": found.border}
        for (task, solver, name), found in sorted(scores.items())
    ]
    write_json_lines(folder / "scores.jsonl", lines)
