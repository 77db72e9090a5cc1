"""Tables with our number, the paper's and the difference, in Markdown and CSV."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..evaluation import tables
from ..evaluation.statistics import Estimate
from ..evaluation.tables import QUALITY, mean
from ..names import TASKS
from ..rows import Column
from .catalogue import DATASETS, METHODS, TABLE_OF_TASK, Entry, Part, Table
from .published import published, remark_on
from .results import Results
from .verdicts import TOLERANCES, verdict

MISSING = "–"
_REMARKS = {"": "", "!": "misprint", "?": "doubtful"}  # by the sign behind a printed number


@dataclass(frozen=True, kw_only=True)
class ComparedRow:
    """Our numbers and the paper's by metric, None where there is none.

    marks      the sign behind a doubtful printed number
    bold       metrics where ours is the best at this NFE, or no different from it
    verdicts   whether a printed number is reproduced, with the paper's own network
    """

    part: str
    nfe: int
    method: str
    key: str = ""  # of the method, in the catalogue
    ours: dict[str, Estimate | None]
    paper: dict[str, float | None] = field(default_factory=dict)
    marks: dict[str, str] = field(default_factory=dict)
    bold: frozenset[str] = frozenset()
    verdicts: dict[str, str] = field(default_factory=dict)
    images: int = 0

    def difference(self, column: Column) -> float | None:
        """Ours minus the paper's."""
        ours, paper = self.ours[column.name], self.paper.get(column.name)
        return None if ours is None or paper is None else ours.mean - paper

    def ours_text(self, column: Column) -> str:
        """Our number with its standard error."""
        ours = self.ours[column.name]
        if ours is None:
            return MISSING
        text = ours.text(column.digits, "")
        number, space, error = text.partition(" ")
        return f"**{number}**{space}{error}" if column.name in self.bold else text

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
    rows = [replace(row, bold=_bold(row, rows, table, part, results)) for row in rows]
    found = {column.name: results.input_estimate(part.tasks, column.name) for column in table.columns}
    if table.columns == QUALITY and any(value is not None for value in found.values()):
        images = sum(cell.images for cell in results.inputs if cell.task in part.tasks)
        rows.append(ComparedRow(part=part.title, nfe=0, method="degraded image", ours=found, images=images))
    return rows


def _bold(row: ComparedRow, rows: Sequence[ComparedRow], table: Table, part: Part, results: Results) -> frozenset[str]:
    """The metrics in which a row is the best of its NFE, or no different from the best on the images of both."""
    chosen = set()
    for column in table.columns:
        tops = [rows[i] for i in best(rows, column) if rows[i].nfe == row.nfe]
        if row in tops:
            chosen.add(column.name)
        elif tops and row.ours[column.name] is not None:
            pair = (row.key, row.nfe), (tops[0].key, row.nfe)
            gap = results.difference(part.tasks, *pair, column.name)
            if gap is not None and gap.differs is False:
                chosen.add(column.name)
    return frozenset(chosen)


def _row(table: Table, part: Part, entry: Entry, nfe: int, results: Results) -> ComparedRow:
    names = [column.name for column in table.columns]
    cells = [results.cell(task, entry.method, nfe) for task in part.tasks]
    marks = {name: remark_on(part.published or "", entry.printed or "", nfe, name) for name in names}
    ours = {name: results.mean_estimate(part.tasks, entry.method, nfe, name) for name in names}
    paper = {name: _printed(part, entry, nfe, name) for name in names}
    images = 0 if None in cells else sum(cell.images for cell in cells if cell is not None)
    verdicts = {}
    if results.same_model and part.task is not None and part.published is not None:
        for column in (column for column in table.columns if column.name in TOLERANCES):
            ours_here, printed = ours[column.name], paper[column.name]
            if ours_here is not None and printed is not None:
                complete = images >= _test_images(part.task)
                verdicts[column.name] = verdict(column, printed, ours_here, complete)
    return ComparedRow(
        part=part.title,
        nfe=nfe,
        method=entry.title or METHODS[entry.method].title,
        key=entry.method,
        ours=ours,
        paper=paper,
        marks={name: "!" if remark.certain else "?" for name, remark in marks.items() if remark is not None},
        verdicts=verdicts,
        images=images,
    )


def _test_images(task: str) -> int:
    """How many images of a task the paper restores."""
    name = TABLE_OF_TASK[task]
    return next(int(record["test_images"]) for record in published()[DATASETS].records() if record["task"] == name)


def _printed(part: Part, entry: Entry, nfe: int, metric: str) -> float | None:
    """The paper's number, or the mean of its ten tables."""
    if entry.printed is None:
        return None
    names = [TABLE_OF_TASK[task] for task in TASKS] if part.published is None else [part.published]
    return mean([published()[name].values(entry.printed, nfe).get(metric) for name in names])


def best(rows: Sequence[ComparedRow], column: Column) -> set[int]:
    """Positions of our best value among rows with equally many evaluations."""
    means = [None if (ours := row.ours[column.name]) is None else ours.mean for row in rows]
    return tables.best(means, column.lower_is_better, [row.nfe for row in rows])


def shown_columns(rows: Sequence[ComparedRow], columns: Sequence[Column]) -> list[Column]:
    """The columns where one of our numbers is known; without any, those of the paper."""
    ours = [column for column in columns if any(row.ours[column.name] is not None for row in rows)]
    theirs = [column for column in columns if any(row.paper.get(column.name) is not None for row in rows)]
    return ours or theirs


def markdown(rows: Sequence[ComparedRow], columns: Sequence[Column], with_difference: bool) -> str:
    """For a code host: `ours ± error (paper, difference)`, the best of ours at each NFE bold."""
    lines: list[list[str]] = []
    varied = len({row.images for row in rows if row.images}) > 1
    for i, row in enumerate(rows):
        cells = []
        for column in columns:
            text = row.ours_text(column)
            if paper := row.printed(column):
                change = row.difference(column) if with_difference else None
                text += f" ({paper})" if change is None else f" ({paper}, {change:+.{column.digits}f})"
            cells.append(text)
        count = [str(row.images)] if varied else []
        lines.append(["" if i and row.nfe == rows[i - 1].nfe else str(row.nfe), row.method, *count, *cells])
    header = ["NFE", "method", *(["images"] if varied else []), *(column.heading for column in columns)]
    return tables.markdown(header, lines, "rlr")


def verdict_table(rows: Sequence[ComparedRow], columns: Sequence[Column]) -> str:
    """A line for each published number: it, ours, the difference and whether it is reproduced."""
    lines = [
        [str(row.nfe), row.method, column.label, row.printed(column), row.ours_text(column).replace("**", ""),
         f"{row.difference(column):+.{column.digits}f}", row.verdicts[column.name]]
        for row in rows
        for column in columns
        if column.name in row.verdicts
    ]  # fmt: skip
    return tables.markdown(["NFE", "method", "", "published", "ours", "difference", "verdict"], lines, "rllrrrl")


def csv_text(rows: Sequence[ComparedRow], columns: Sequence[Column]) -> str:
    """For a spreadsheet, with all digits; what is missing is empty."""
    header = ["part", "nfe", "method", "images"]
    parts = ("", "_error", "_paper", "_difference", "_remark", "_verdict")
    header += [f"{c.name}{suffix}" for c in columns for suffix in parts]
    lines = []
    for row in rows:
        line: list[object] = [row.part, row.nfe, row.method, row.images]
        for column in columns:
            change, name, ours = row.difference(column), column.name, row.ours[column.name]
            line += [*((None, None) if ours is None else (ours.mean, ours.error)), row.paper.get(name)]
            line += [None if change is None else round(change, 10), _REMARKS[row.marks.get(name, "")]]
            line.append(row.verdicts.get(name))
        lines.append(line)
    return tables.csv_text(header, lines)
