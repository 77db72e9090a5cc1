"""Tables: averages of records, and rows of text as a terminal, Markdown, CSV or JSON table. Needs no torch.

`align` has one letter per column, l or r; the last letter stands for all columns that follow.
"""

import csv
import io
import json
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..rows import METRICS, Column
from .records import Record

ALL = "(all tasks)"  # the task of rows with means over tasks; no task can have this name


# The metrics of the paper's tables.
QUALITY: tuple[Column, ...] = tuple(METRICS[name] for name in ("lpips", "fid", "psnr", "ssim"))

# ---- numbers


def mean(values: Sequence[float | None]) -> float | None:
    """The mean, None unless all values are known."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(values) else None


def best(values: Sequence[float | None], lower_is_better: bool, groups: Sequence[Hashable] | None = None) -> set[int]:
    """Positions of the best values, ties included, in each group (default: all one group).

    A group with fewer than two known values has no best one.
    """
    members: dict[Hashable, list[tuple[float, int]]] = {}
    for i, value in enumerate(values):
        if value is not None:
            members.setdefault(None if groups is None else groups[i], []).append((value, i))
    found: set[int] = set()
    for known in members.values():
        if len(known) > 1:
            top = (min if lower_is_better else max)(value for value, _ in known)
            found |= {i for value, i in known if value == top}
    return found


# ---- formats


def _aligned(align: str, columns: int) -> str:
    return align[:columns].ljust(columns, align[-1])


def plain(header: Sequence[str], rows: Iterable[Sequence[str]], align: str = "lr") -> str:
    """For the terminal: columns padded to their widest cell."""
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    pads = [str.ljust if letter == "l" else str.rjust for letter in _aligned(align, len(header))]
    padded = ("  ".join(pad(cell, width) for pad, cell, width in zip(pads, line, widths)) for line in lines)
    return "\n".join(line.rstrip() for line in padded)


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], align: str = "lr") -> str:
    """For a code host."""
    rule = ["---" if letter == "l" else "---:" for letter in _aligned(align, len(header))]
    return "".join(f"| {' | '.join(line)} |\n" for line in (header, rule, *rows))


def csv_text(header: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """For a spreadsheet; None is an empty cell."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([header, *rows])
    return buffer.getvalue()


# ---- the summary of a run


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """The averages of one solver on one task; None where a metric could not be computed."""

    task: str
    solver: str
    nfe: float
    images: int
    left_out: int
    tiled: int
    metrics: dict[str, float | None]
    seconds: float


def averages(
    records: Sequence[Record],
    order: Sequence[tuple[str, str]],
    columns: Sequence[Column],
    left_out: dict[str, int],
    set_values: dict[tuple[str, str], dict[str, float | None]],
) -> list[TableRow]:
    """A row for each (task, solver) of `order` that has records; `set_values` are metrics of whole sets (FID)."""
    rows = []
    for task, solver in order:
        chosen = [record for record in records if (record.task, record.solver) == (task, solver)]
        if not chosen:
            continue
        known = set_values.get((task, solver), {})
        row = TableRow(
            task=task,
            solver=solver,
            images=len(chosen),
            left_out=left_out.get(task, 0),
            nfe=sum(record.nfe for record in chosen) / len(chosen),
            seconds=sum(record.seconds for record in chosen) / len(chosen),
            metrics={
                name: known[name] if name in known else mean([record.metrics.get(name) for record in chosen])
                for name in (column.name for column in columns)
            },
            tiled=sum(record.tile is not None for record in chosen),
        )
        rows.append(row)
    return rows


def overall(rows: Sequence[TableRow]) -> list[TableRow]:
    """The mean over tasks of each solver, with equal weights; empty where there is only one task.

    A metric that is missing for one of the tasks is missing in the mean.
    """
    tasks = list(dict.fromkeys(row.task for row in rows))
    if len(tasks) < 2:
        return []
    means = []
    for solver in dict.fromkeys(row.solver for row in rows):
        chosen = [row for row in rows if row.solver == solver]
        if len(chosen) < len(tasks):
            continue
        row = TableRow(
            task=ALL,
            solver=solver,
            images=sum(row.images for row in chosen),
            left_out=sum(row.left_out for row in chosen),
            nfe=math.fsum(row.nfe for row in chosen) / len(chosen),
            seconds=math.fsum(row.seconds for row in chosen) / len(chosen),
            metrics={name: mean([row.metrics[name] for row in chosen]) for name in chosen[0].metrics},
            tiled=sum(row.tiled for row in chosen),
        )
        means.append(row)
    return means


def _cells(
    rows: Sequence[TableRow], columns: Sequence[Column], mark: str, titles: Mapping[str, str]
) -> tuple[list[str], list[list[str]]]:
    """Header and cells; `mark` frames the best value of each column within its task."""
    tasks = [row.task for row in rows]
    marked = {c.name: best([row.metrics[c.name] for row in rows], c.lower_is_better, tasks) for c in columns}
    lines = []
    for i, row in enumerate(rows):
        images = str(row.images) + (f" (-{row.left_out})" if row.left_out else "")
        values = [(mark if i in marked[c.name] else "{}").format(c.text(row.metrics[c.name])) for c in columns]
        lines.append(
            [row.task, titles.get(row.solver, row.solver), f"{row.nfe:g}", images, *values, f"{row.seconds:.2f}"]
        )
    return ["task", "solver", "NFE", "images", *(column.heading for column in columns), "s/image"], lines


_LABELS: Mapping[str, str] = {}  # no titles: solvers are shown by their labels


def text_table(rows: Sequence[TableRow], columns: Sequence[Column], titles: Mapping[str, str] = _LABELS) -> str:
    """For the terminal; the best of each task is marked with *."""
    return plain(*_cells(rows, columns, "{}*", titles), "llr")


def markdown_table(rows: Sequence[TableRow], columns: Sequence[Column], titles: Mapping[str, str] = _LABELS) -> str:
    """For a code host; the best of each task is bold."""
    return markdown(*_cells(rows, columns, "**{}**", titles), "llr")


def csv_table(rows: Sequence[TableRow], columns: Sequence[Column]) -> str:
    """For a spreadsheet, with all digits."""
    names = [column.name for column in columns]
    lines = []
    for row in rows:
        start = [row.task, row.solver, f"{row.nfe:g}", row.images, row.left_out, row.tiled]
        lines.append([*start, *(row.metrics[name] for name in names), f"{row.seconds:.4f}"])
    return csv_text(["task", "solver", "nfe", "images", "left_out", "tiled", *names, "seconds"], lines)


def json_table(rows: Sequence[TableRow], means: Sequence[TableRow] = (), notes: Sequence[str] = ()) -> str:
    """For programs."""
    content = {"rows": [_entry(row) for row in rows], "means": [_entry(row) for row in means], "notes": list(notes)}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _entry(row: TableRow) -> dict[str, Any]:
    return {**asdict(row), "seconds": round(row.seconds, 4)}


def commit_list(commits: Iterable[str]) -> str:
    """The commits that results were computed at, each once; a `+` behind one says that files had changed since.

    >>> commit_list(["4c03ed3de417aa", "4c03ed3de417aa+"]), commit_list([])
    ('`4c03ed3de417`, `4c03ed3de417` with changes', 'unknown')
    """
    names = [f"`{commit[:12]}`" + " with changes" * commit.endswith("+") for commit in dict.fromkeys(commits)]
    return ", ".join(names) or "unknown"
