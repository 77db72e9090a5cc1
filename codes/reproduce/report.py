"""The report: tables, figures, what theory expected and what came out, and where it ran."""

from collections.abc import Sequence
from pathlib import Path

from ..evaluation import tables
from .catalogue import DATASETS, METHODS, TABLE_OF_TASK, TABLES, Table, all_runs
from .findings import orders, speed_up, theory
from .published import published, remarks
from .render import MISSING, ComparedRow, compared_rows, csv_text, markdown, shown_columns
from .results import CELLS_FILE, Results, save

_EMBEDDED = """\
**The paper's numbers (in brackets) are of another model and other images**: DA-CLIP's universal network on the
published test sets. They are shown for the shape of the curves alone: how a method changes from 100 evaluations to 5.
Differences between ours and theirs say nothing about a method and are only in the CSV files."""

_REDUCED = """\
**This is a reduced run.** The paper restores 15 to 1111 images per task. A handful shows collapses and trends, not
differences of a few per cent. FID of so few images is indicative only; it is computed for the tasks of the paper's
figure 2 unless asked for elsewhere.

"""

_DACLIP = """\
In brackets: the paper's number, and the difference to it (ours minus the paper's)."""

_READING = """\
- NFE is the number of network evaluations. Bold: the best of ours at that NFE. {missing}: not run, or the metric's
  weights were missing.
- *Published stride*: what the published code computes (`compat: official`), and the paper's tables show. *Correct
  stride*: the same method with the coefficients of the steps that are taken. At NFE 100 = T they are the same.
- MR Sampler-1 and -2 are run as published too: SDE, data prediction, uniform lambda, `compat: official`.
- <sup>!</sup> marks a misprint of the paper, <sup>?</sup> a doubtful number; both are listed [below](#misprints)."""


def write_report(results: Results, out: Path, names: Sequence[str], figures: Sequence[tuple[str, str, Path]]) -> Path:
    """Write REPORT.md, tables/NAME.{md,csv} and the cells they are made of; returns the report's path.

    `names` are the tables to show; `figures` are (name, title, PNG file).
    """
    save(results, out / CELLS_FILE)
    for name in names:
        _write_table(results, name, out / "tables")
    chosen = [TABLES[name] for name in names if name in TABLES]
    of_a_task = [table for table in chosen if table.name in TABLE_OF_TASK.values()]
    others = [table for table in chosen if table not in of_a_task and table.name != "overview"]
    sections = [
        _introduction(results),
        *(_table_section(results, table) for table in chosen if table.name == "overview"),
        theory(results),
        orders(results),
        speed_up(results),
        _tasks(results, of_a_task),
        *(_table_section(results, table) for table in others),
        _datasets(results) if DATASETS in names else "",
        _figures(out, figures),
        _misprints(),
        _environment(results),
    ]
    path = out / "REPORT.md"
    path.write_text("\n".join(section for section in sections if section), encoding="utf-8")
    return path


def table_text(results: Results, name: str) -> str:
    """One table in Markdown, with its heading."""
    return _datasets(results) if name == DATASETS else _table_section(results, TABLES[name])


def _write_table(results: Results, name: str, folder: Path) -> None:
    if name == DATASETS:
        numbers = tables.csv_text(*_dataset_rows(results))
    else:
        table = TABLES[name]
        compared = [row for part in table.parts for row in compared_rows(table, part, results)]
        numbers = csv_text(compared, shown_columns(compared, table.columns))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(table_text(results, name), encoding="utf-8")
    (folder / f"{name}.csv").write_text(numbers, encoding="utf-8")


def _introduction(results: Results) -> str:
    settings = results.settings
    model = settings.get("model", "?")
    network = {
        "embedded": "the small noise-predicting network that comes with the project",
        "daclip": "DA-CLIP's published universal network",
    }.get(model, "a network")
    counts = sorted({cell.images for cell in results.cells})
    images = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1]))) if counts else "no"
    size = f", centre crops of {settings['size']}x{settings['size']} pixels" if settings.get("size") else ""
    wanted = sum(len(METHODS[method].nfes) for _, method in all_runs(TABLES))
    weights = f"`{settings.get('weights', '?')}`, sha256 `{str(settings.get('sha256', '?'))[:16]}`"
    found = [str(commit) for commit in results.environment.get("commit", [])]
    commits = ", ".join(f"`{commit[:12]}`" + " with changes" * commit.endswith("+") for commit in found) or "unknown"
    return (
        "# The paper's tables, reproduced\n\n"
        "Every table of *MaRS: a fast sampler for mean reverting diffusion* (ICLR 2025, "
        f"[arXiv:2502.07856](https://arxiv.org/abs/2502.07856)) with {network}.\n\n"
        f"- weights: {weights}\n- images: {images} per task{size}; seed {settings.get('seed', 0)}\n"
        f"- cells: {len(results.cells)} of {wanted} (a cell is a task, a method and a number of evaluations)\n"
        f"- commit: {commits}\n- command: `python scripts/reproduce.py --table all --model {model}`\n\n"
        f"{_DACLIP if results.same_model else _EMBEDDED}\n\n{_READING.format(missing=MISSING)}\n\n"
        f"{_REDUCED if model == 'embedded' else ''}"
        f"Every table is in `tables/` as Markdown and CSV (all digits), and the numbers behind them in "
        f"`{CELLS_FILE}`. What they mean for the paper's claims is in the project's `docs/CLAIMS.md`.\n"
    )


def _table_section(results: Results, table: Table, level: str = "##") -> str:
    texts = [f"{level} {table.title}\n"]
    if table.about:
        texts.append(f"{table.about}\n")
    for part in table.parts:
        rows = compared_rows(table, part, results)
        source = f" (paper: {published()[part.published].place})" if part.published else ""
        texts.append(f"{part.title}{source}{_coverage(rows)}\n")
        texts.append(markdown(rows, shown_columns(rows, table.columns), results.same_model))
    return "\n".join(texts)


def _coverage(rows: Sequence[ComparedRow]) -> str:
    """How many images the numbers are of, and which rows have fewer."""
    most = max((row.images for row in rows), default=0)
    if not most:
        return ", not run"
    fewer = [f"{row.method} at NFE {row.nfe} ({row.images})" for row in rows if 0 < row.images < most]
    missing = sum(not row.images for row in rows)
    text = f", {most} images" + (f"; fewer for {', '.join(fewer)}" if fewer else "")
    return text + (f"; {missing} of {len(rows)} rows are missing" if missing else "")


def _tasks(results: Results, tables: Sequence[Table]) -> str:
    if not tables:
        return ""
    texts = ["## The ten tasks\n"]
    for table in tables:
        texts.append(f"<details>\n<summary>{table.title}</summary>\n")
        texts.append(_table_section(results, table, "###"))
        texts.append("</details>\n")
    return "\n".join(texts)


def _dataset_rows(results: Results) -> tuple[list[str], list[list[str]]]:
    task_of = {name: task for task, name in TABLE_OF_TASK.items()}
    rows = []
    for record in published()[DATASETS].records():
        task = task_of.get(record["task"], record["task"])
        ours = max((cell.images for cell in results.cells if cell.task == task), default=0)
        rows.append([record["task"], record["dataset"], str(record["test_images"]), str(ours) if ours else MISSING])
    return ["task", "data set of the paper", "its test images", "images here"], rows


def _datasets(results: Results) -> str:
    sets = results.settings.get("datasets", {}).values()
    folders = [one.get("dataroot_GT") or one.get("root") or one.get("dataroot") for one in sets]
    source = f"Here: the images of {', '.join(f'`{folder}`' for folder in folders if folder)}.\n\n" if folders else ""
    return f"## Data sets\n\n{source}{tables.markdown(*_dataset_rows(results), 'llr')}"


def _figures(out: Path, figures: Sequence[tuple[str, str, Path]]) -> str:
    if not figures:
        return ""
    texts = ["## Figures\n"]
    for name, title, path in figures:
        texts.append(f"![{name}]({path.relative_to(out).as_posix()})\n\n*{title}*\n")
    return "\n".join(texts)


def _misprints() -> str:
    lines = ["## Misprints\n", "Numbers of the paper that are shown as printed, and why they are marked:\n"]
    for one in remarks():
        kind = "misprint" if one.certain else "doubtful"
        lines.append(f"- {kind}: {one.table}, NFE {one.nfe}, {one.method}, {one.metric} {one.printed:g}: {one.why}.")
    return "\n".join(lines) + "\n"


def _environment(results: Results) -> str:
    lines = ["## Environment\n", "| | |", "|---|---|"]
    known = {"settings": results.settings.get("overrides"), **results.environment}
    for key, value in known.items():
        if value:
            text = ", ".join(str(item) for item in value) if isinstance(value, list) else str(value)
            lines.append(f"| {key} | {text} |")
    notes = [f"- {note}" for note in results.notes]
    return "\n".join([*lines, "", *notes]) + "\n"
