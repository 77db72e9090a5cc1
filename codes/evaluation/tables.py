"""From records to tables: terminal, Markdown, CSV, JSON. Needs no torch."""

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..rows import METRICS
from .records import Record

ALL = "(all tasks)"  # the name of the rows with means over tasks; no task can have it


@dataclass(frozen=True)
class Column:
    """A metric as a column: how it is headed, which way is better, how many digits it gets."""

    name: str
    label: str
    lower_is_better: bool
    digits: int


def columns_of(names: Sequence[str]) -> list[Column]:
    """The columns of some metrics."""
    return [Column(row.name, row.label, row.lower_is_better, row.digits) for row in (METRICS[name] for name in names)]


@dataclass(frozen=True)
class Row:
    """The averages of one solver on one task; None where a metric could not be computed."""

    task: str
    solver: str
    images: int
    left_out: int
    nfe: float
    seconds: float
    values: dict[str, float | None] = field(default_factory=dict)
    tiled: int = 0


def averages(
    records: Sequence[Record],
    order: Sequence[tuple[str, str]],
    columns: Sequence[Column],
    left_out: dict[str, int],
    set_values: dict[tuple[str, str], dict[str, float | None]],
) -> list[Row]:
    """A row for each (task, solver) of `order` that has records; `set_values` are metrics of whole sets (FID)."""
    rows = []
    for task, solver in order:
        chosen = [record for record in records if (record.task, record.solver) == (task, solver)]
        if not chosen:
            continue
        values: dict[str, float | None] = {}
        for column in columns:
            if column.name in set_values.get((task, solver), {}):
                values[column.name] = set_values[task, solver][column.name]
            else:
                values[column.name] = _mean([record.metrics.get(column.name) for record in chosen])
        rows.append(
            Row(
                task,
                solver,
                len(chosen),
                left_out.get(task, 0),
                sum(record.nfe for record in chosen) / len(chosen),
                sum(record.seconds for record in chosen) / len(chosen),
                values,
                sum(record.tile is not None for record in chosen),
            )
        )
    return rows


def overall(rows: Sequence[Row]) -> list[Row]:
    """The mean over tasks of each solver, every task counting the same; none where there is only one task.

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
        means.append(
            Row(
                ALL,
                solver,
                sum(row.images for row in chosen),
                sum(row.left_out for row in chosen),
                math.fsum(row.nfe for row in chosen) / len(chosen),
                math.fsum(row.seconds for row in chosen) / len(chosen),
                {name: _mean([row.values[name] for row in chosen]) for name in chosen[0].values},
                sum(row.tiled for row in chosen),
            )
        )
    return means


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(values) else None


def best_rows(rows: Sequence[Row], column: Column) -> set[tuple[str, str]]:
    """The rows with the best value of a column within their task."""
    best: set[tuple[str, str]] = set()
    for task in {row.task for row in rows}:
        known = [
            (value, row.solver) for row in rows if row.task == task and (value := row.values[column.name]) is not None
        ]
        if len(known) > 1:
            top = (min if column.lower_is_better else max)(value for value, _ in known)
            best |= {(task, solver) for value, solver in known if value == top}
    return best


def _cells(rows: Sequence[Row], columns: Sequence[Column], mark: str) -> list[list[str]]:
    best = {column.name: best_rows(rows, column) for column in columns}
    lines = []
    for row in rows:
        line = [row.task, row.solver, f"{row.nfe:g}", str(row.images) + (f" (-{row.left_out})" if row.left_out else "")]
        for column in columns:
            value = row.values[column.name]
            text = "n/a" if value is None else f"{value:.{column.digits}f}"
            line.append(mark.format(text) if (row.task, row.solver) in best[column.name] else text)
        lines.append([*line, f"{row.seconds:.2f}"])
    return lines


def _heading(columns: Sequence[Column]) -> list[str]:
    arrows = [f"{column.label} {'↓' if column.lower_is_better else '↑'}" for column in columns]
    return ["task", "solver", "NFE", "images", *arrows, "s/image"]


def text_table(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """For the terminal; the best of each task is marked with *."""
    lines = [_heading(columns), *_cells(rows, columns, "{}*")]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < 2 else cell.rjust(width) for i, (cell, width) in enumerate(zip(line, widths))
        )
        for line in lines
    )


def markdown_table(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """For a code host; the best of each task is bold."""
    head = _heading(columns)
    lines = [head, ["---"] * 2 + ["---:"] * (len(head) - 2), *_cells(rows, columns, "**{}**")]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def csv_table(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """For a spreadsheet, with all digits."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    names = [column.name for column in columns]
    writer.writerow(["task", "solver", "nfe", "images", "left_out", "tiled", *names, "seconds"])
    for row in rows:
        values = ["" if (value := row.values[name]) is None else repr(value) for name in names]
        writer.writerow(
            [row.task, row.solver, f"{row.nfe:g}", row.images, row.left_out, row.tiled, *values, f"{row.seconds:.4f}"]
        )
    return buffer.getvalue()


def json_table(rows: Sequence[Row], means: Sequence[Row] = (), notes: Sequence[str] = ()) -> str:
    """For programs."""
    content = {"rows": [_entry(row) for row in rows], "means": [_entry(row) for row in means], "notes": list(notes)}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _entry(row: Row) -> dict[str, Any]:
    return {
        "task": row.task,
        "solver": row.solver,
        "nfe": row.nfe,
        "images": row.images,
        "left_out": row.left_out,
        "tiled": row.tiled,
        "metrics": row.values,
        "seconds": round(row.seconds, 4),
    }
