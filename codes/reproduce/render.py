"""Tables with ours, the paper's number and the difference, in Markdown, CSV and LaTeX."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..evaluation.tables import Column
from ..names import TASKS
from .catalogue import METHODS, QUALITY, TABLE_OF_TASK, Entry, Part, Table
from .published import published, remark_on
from .results import Results, mean

MISSING = "–"


@dataclass(frozen=True)
class Line:
    """One row: our numbers and the paper's by metric, None where there is none."""

    part: str
    nfe: int
    method: str
    ours: dict[str, float | None]
    paper: dict[str, float | None] = field(default_factory=dict)
    marks: dict[str, str] = field(default_factory=dict)  # metric -> sign behind a doubtful printed number
    images: int = 0

    @property
    def missing(self) -> bool:
        """Whether it was not run."""
        return not self.images


def lines_of(table: Table, part: Part, results: Results) -> list[Line]:
    """The rows of a part, most evaluations first, the methods in the catalogue's order."""
    nfes = table.nfes or sorted({nfe for entry in part.entries for nfe in METHODS[entry.method].nfes}, reverse=True)
    lines = [
        _line(table, part, entry, nfe, results)
        for nfe in nfes
        for entry in part.entries
        if nfe in METHODS[entry.method].nfes
    ]
    degraded = {column.name: results.input_mean(part.tasks, column.name) for column in table.columns}
    if table.columns == QUALITY and any(value is not None for value in degraded.values()):
        images = sum(cell.images for cell in results.inputs if cell.task in part.tasks)
        lines.append(Line(part.title, 0, "degraded image", degraded, images=images))
    return lines


def _line(table: Table, part: Part, entry: Entry, nfe: int, results: Results) -> Line:
    names = [column.name for column in table.columns]
    cells = [results.cell(task, entry.method, nfe) for task in part.tasks]
    return Line(
        part.title,
        nfe,
        entry.title or METHODS[entry.method].title,
        {name: results.mean(part.tasks, entry.method, nfe, name) for name in names},
        {name: _printed(part, entry, nfe, name) for name in names},
        {name: mark for name in names if (mark := _mark(part, entry, nfe, name))},
        0 if None in cells else sum(cell.images for cell in cells if cell is not None),
    )


def _printed(part: Part, entry: Entry, nfe: int, metric: str) -> float | None:
    """The paper's number, or the mean of its ten tables."""
    if entry.printed is None:
        return None
    if part.published is not None:
        return published()[part.published].values(entry.printed, nfe).get(metric)
    values = [published()[TABLE_OF_TASK[task]].values(entry.printed, nfe).get(metric) for task in TASKS]
    return mean(values)


def _mark(part: Part, entry: Entry, nfe: int, metric: str) -> str:
    remark = remark_on(part.published or "", entry.printed or "", nfe, metric)
    return "" if remark is None else "!" if remark.certain else "?"


def best(lines: Sequence[Line], column: Column) -> set[int]:
    """Which lines have our best value among those with as many evaluations; where only one has any, none is best."""
    chosen: set[int] = set()
    for nfe in {line.nfe for line in lines}:
        known = [
            (value, i)
            for i, line in enumerate(lines)
            if line.nfe == nfe and (value := line.ours[column.name]) is not None
        ]
        if len(known) > 1:
            top = (min if column.lower_is_better else max)(value for value, _ in known)
            chosen |= {i for value, i in known if value == top}
    return chosen


def printed_number(value: float) -> str:
    """A number of the paper; its tables have four digits."""
    return f"{value:.4g}"


def difference(line: Line, column: Column) -> str:
    """Ours minus the paper's, with sign."""
    ours, paper = line.ours[column.name], line.paper.get(column.name)
    return "" if ours is None or paper is None else f"{ours - paper:+.{column.digits}f}"


def shown_columns(lines: Sequence[Line], columns: Sequence[Column]) -> list[Column]:
    """The columns where something of ours is known; without any, those of the paper."""
    ours = [column for column in columns if any(line.ours[column.name] is not None for line in lines)]
    theirs = [column for column in columns if any(line.paper.get(column.name) is not None for line in lines)]
    return ours or theirs


def arrow(column: Column) -> str:
    """The metric's name with the direction that is better."""
    return f"{column.label} {'↓' if column.lower_is_better else '↑'}"


def markdown(lines: Sequence[Line], columns: Sequence[Column], with_difference: bool) -> str:
    """For a code host: `ours (paper, difference)`, the best of ours at each NFE bold."""
    chosen = {column.name: best(lines, column) for column in columns}
    head = ["NFE", "method", *(arrow(column) for column in columns)]
    rows = [head, ["---:", "---", *["---:"] * len(columns)]]
    before = None
    for i, line in enumerate(lines):
        row = ["" if line.nfe == before else str(line.nfe), line.method]
        before = line.nfe
        for column in columns:
            value = line.ours[column.name]
            text = MISSING if value is None else f"{value:.{column.digits}f}"
            text = f"**{text}**" if i in chosen[column.name] else text
            if (paper := line.paper.get(column.name)) is not None:
                inside = printed_number(paper) + _superscript(line.marks.get(column.name, ""))
                change = difference(line, column) if with_difference else ""
                text += f" ({', '.join(part for part in (inside, change) if part)})"
            row.append(text)
        rows.append(row)
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def _superscript(mark: str) -> str:
    return f"<sup>{mark}</sup>" if mark else ""


def csv_text(lines: Sequence[Line], columns: Sequence[Column]) -> str:
    """For a spreadsheet, with all digits; what is missing is empty."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    head = ["part", "nfe", "method", "images"]
    for column in columns:
        head += [column.name, f"{column.name}_paper", f"{column.name}_difference", f"{column.name}_remark"]
    writer.writerow(head)
    remarks = {"": "", "!": "misprint", "?": "doubtful"}
    for line in lines:
        row: list[str | int] = [line.part, line.nfe, line.method, line.images]
        for column in columns:
            ours, paper = line.ours[column.name], line.paper.get(column.name)
            gap = "" if ours is None or paper is None else repr(round(ours - paper, 10))
            row += ["" if ours is None else repr(ours), "" if paper is None else repr(paper), gap]
            row.append(remarks[line.marks.get(column.name, "")])
        writer.writerow(row)
    return buffer.getvalue()


def latex(table: Table, lines: Sequence[Line], columns: Sequence[Column], with_difference: bool) -> str:
    """For a paper (booktabs): under each metric ours, the paper's, and the difference."""
    width = 3 if with_difference else 2
    chosen = {column.name: best(lines, column) for column in columns}
    spans = [rf"\multicolumn{{{width}}}{{c}}{{{_escape(column.label)}}}" for column in columns]
    under = ["ours", "paper", "diff."][:width]
    out = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_escape(table.title)}}}",
        rf"\label{{tab:{table.name}}}",
        rf"\begin{{tabular}}{{rl{'r' * width * len(columns)}}}",
        r"\toprule",
        " & ".join(["NFE", "Method", *spans]) + r" \\",
        " & ".join(["", "", *under * len(columns)]) + r" \\",
    ]
    before: tuple[str, int] | None = None
    for i, line in enumerate(lines):
        first = (line.part, line.nfe) != before
        if first:
            out.append(r"\midrule")
        if len(table.parts) > 1 and (before is None or before[0] != line.part):
            out += [rf"\multicolumn{{{2 + width * len(columns)}}}{{l}}{{{_escape(line.part)}}} \\", r"\midrule"]
        row = [str(line.nfe) if first else "", _escape(line.method)]
        before = (line.part, line.nfe)
        for column in columns:
            value, paper = line.ours[column.name], line.paper.get(column.name)
            text = "--" if value is None else f"{value:.{column.digits}f}"
            row.append(rf"\textbf{{{text}}}" if i in chosen[column.name] else text)
            mark = line.marks.get(column.name, "")
            row.append(
                "" if paper is None else printed_number(paper) + (rf"\textsuperscript{{{mark}}}" if mark else "")
            )
            if with_difference:
                change = difference(line, column)
                row.append(f"${change}$" if change else "")
        out.append(" & ".join(row) + r" \\")
    out += [r"\bottomrule", r"\end{tabular}", r"\end{table}", ""]
    return "\n".join(out)


def _escape(text: str) -> str:
    return "".join({"%": r"\%", "_": r"\_", "&": r"\&", "#": r"\#"}.get(letter, letter) for letter in text)
