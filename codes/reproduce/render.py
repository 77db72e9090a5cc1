"""Tables with our number, the paper's and the difference, in Markdown and CSV."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..evaluation import tables
from ..evaluation.tables import QUALITY, Column, mean
from ..names import TASKS
from .catalogue import METHODS, TABLE_OF_TASK, Entry, Part, Table
from .published import published, remark_on
from .results import Results

MISSING = "–"
_REMARKS = {"": "", "!": "misprint", "?": "doubtful"}  # by the sign behind a printed number


@dataclass(frozen=True, kw_only=True)
class ComparedRow:
    """Our numbers and the paper's by metric, None where there is none."""

    part: str
    nfe: int
    method: str
    ours: dict[str, float | None]
    paper: dict[str, float | None] = field(default_factory=dict)
    marks: dict[str, str] = field(default_factory=dict)  # metric -> sign behind a doubtful printed number
    images: int = 0

    def difference(self, column: Column) -> float | None:
        """Ours minus the paper's."""
        ours, paper = self.ours[column.name], self.paper.get(column.name)
        return None if ours is None or paper is None else ours - paper

    def printed(self, column: Column) -> str:
        """The paper's number, which has four digits in its tables, and the sign behind it."""
        paper, mark = self.paper.get(column.name), self.marks.get(column.name)
        return "" if paper is None else f"{paper:.4g}" + (f"<sup>{mark}</sup>" if mark else "")


def compared_rows(table: Table, part: Part, results: Results) -> list[ComparedRow]:
    """The rows of a part, most evaluations first, the methods in the catalogue's order."""
    nfes = table.nfes or sorted({nfe for entry in part.entries for nfe in METHODS[entry.method].nfes}, reverse=True)
    rows = [
        _row(table, part, entry, nfe, results)
        for nfe in nfes
        for entry in part.entries
        if nfe in METHODS[entry.method].nfes
    ]
    degraded = {column.name: results.input_mean(part.tasks, column.name) for column in table.columns}
    if table.columns == QUALITY and any(value is not None for value in degraded.values()):
        images = sum(cell.images for cell in results.inputs if cell.task in part.tasks)
        rows.append(ComparedRow(part=part.title, nfe=0, method="degraded image", ours=degraded, images=images))
    return rows


def _row(table: Table, part: Part, entry: Entry, nfe: int, results: Results) -> ComparedRow:
    names = [column.name for column in table.columns]
    cells = [results.cell(task, entry.method, nfe) for task in part.tasks]
    marks = {name: remark_on(part.published or "", entry.printed or "", nfe, name) for name in names}
    return ComparedRow(
        part=part.title,
        nfe=nfe,
        method=entry.title or METHODS[entry.method].title,
        ours={name: results.mean(part.tasks, entry.method, nfe, name) for name in names},
        paper={name: _printed(part, entry, nfe, name) for name in names},
        marks={name: "!" if remark.certain else "?" for name, remark in marks.items() if remark is not None},
        images=0 if None in cells else sum(cell.images for cell in cells if cell is not None),
    )


def _printed(part: Part, entry: Entry, nfe: int, metric: str) -> float | None:
    """The paper's number, or the mean of its ten tables."""
    if entry.printed is None:
        return None
    names = [TABLE_OF_TASK[task] for task in TASKS] if part.published is None else [part.published]
    return mean([published()[name].values(entry.printed, nfe).get(metric) for name in names])


def best(rows: Sequence[ComparedRow], column: Column) -> set[int]:
    """Positions of our best value among rows with equally many evaluations."""
    return tables.best([row.ours[column.name] for row in rows], column.lower_is_better, [row.nfe for row in rows])


def shown_columns(rows: Sequence[ComparedRow], columns: Sequence[Column]) -> list[Column]:
    """The columns where one of our numbers is known; without any, those of the paper."""
    ours = [column for column in columns if any(row.ours[column.name] is not None for row in rows)]
    theirs = [column for column in columns if any(row.paper.get(column.name) is not None for row in rows)]
    return ours or theirs


def markdown(rows: Sequence[ComparedRow], columns: Sequence[Column], with_difference: bool) -> str:
    """For a code host: `ours (paper, difference)`, the best of ours at each NFE bold."""
    chosen = {column.name: best(rows, column) for column in columns}
    lines: list[list[str]] = []
    for i, row in enumerate(rows):
        cells = []
        for column in columns:
            text = column.text(row.ours[column.name], MISSING)
            text = f"**{text}**" if i in chosen[column.name] else text
            if paper := row.printed(column):
                change = row.difference(column) if with_difference else None
                text += f" ({paper})" if change is None else f" ({paper}, {change:+.{column.digits}f})"
            cells.append(text)
        lines.append(["" if i and row.nfe == rows[i - 1].nfe else str(row.nfe), row.method, *cells])
    return tables.markdown(["NFE", "method", *(column.heading for column in columns)], lines, "rlr")


def csv_text(rows: Sequence[ComparedRow], columns: Sequence[Column]) -> str:
    """For a spreadsheet, with all digits; what is missing is empty."""
    header = ["part", "nfe", "method", "images"]
    header += [f"{c.name}{suffix}" for c in columns for suffix in ("", "_paper", "_difference", "_remark")]
    lines = []
    for row in rows:
        line: list[object] = [row.part, row.nfe, row.method, row.images]
        for column in columns:
            change = row.difference(column)
            line += [row.ours[column.name], row.paper.get(column.name), None if change is None else round(change, 10)]
            line.append(_REMARKS[row.marks.get(column.name, "")])
        lines.append(line)
    return tables.csv_text(header, lines)
