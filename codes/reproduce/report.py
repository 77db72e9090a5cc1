"""The report: tables, figures, what theory expected and what came out, and where it ran."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..evaluation import tables
from ..evaluation.statistics import RULE
from ..evaluation.tables import QUALITY
from .catalogue import DATASETS, DEFAULTS, MANY, METHODS, TABLE_OF_TASK, TABLES, Table, all_runs, full_table
from .findings import evaluations, orders, speed_up, theory
from .published import published, remarks
from .render import MISSING, ComparedRow, compared_rows, csv_text, markdown, shown_columns, verdict_table
from .results import CELLS_FILE, Results, save
from .testsets import TEST_SETS
from .verdicts import ENOUGH, NOT, RULES

_EMBEDDED = """\
**The paper's numbers (in brackets) are of another network**: DA-CLIP's universal network. Where the images are the
paper's own, all of them and whole, the difference to its number (ours minus the paper's) stands behind it: it says what
the two networks differ in. Where they are not, the paper's numbers show the shape of the curves alone: how a method
changes from 100 evaluations to 5. Each table says which it is."""

_DACLIP = """\
In brackets: the paper's number, and the difference to it (ours minus the paper's)."""

_READING = """\
- NFE is the number of network evaluations. {missing}: not run, or not computed on these images.
- ± is one standard error of the mean over images. {rule} Bold: the best of ours at that NFE, and those that do not
  differ from it on the images of both.
- FID is computed with the standard Inception features. It depends on the number of images and has no error here; rows
  of fewer images than the others have none.
- *Published stride*: what the published code computes (`compat: official`), and the paper's tables show. *Correct
  stride*: the same method with the coefficients of the steps that are taken. At NFE 100 = T they are the same.
- MR Sampler-1 and -2 are run as published too: SDE, data prediction, uniform lambda, `compat: official`.
- <sup>!</sup> marks a misprint of the paper, <sup>?</sup> a doubtful number; both are listed [below](#misprints)."""


def write_report(
    results: Results, out: Path, names: Sequence[str], figures: Sequence[tuple[str, str, Path]], *, files: bool = True
) -> Path:
    """Write REPORT.md and the cells it is made of; returns the report's path.

    names     the tables to show
    figures   (name, title, PNG file)
    files     write each table to tables/NAME.{md,csv} as well
    """
    save(results, out / CELLS_FILE)
    for name in names if files else ():
        _write_table(results, name, out / "tables")
    chosen = [TABLES[name] for name in names if name in TABLES]
    of_a_task = [table for table in chosen if table.name in TABLE_OF_TASK.values()]
    others = [table for table in chosen if table not in of_a_task and table.name != "overview"]
    sections = [
        _introduction(results, files),
        _full(results),
        _reproduced(results, chosen),
        *(_table_section(results, table) for table in chosen if table.name == "overview"),
        theory(results),
        orders(results),
        speed_up(results),
        evaluations(results),
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


def _introduction(results: Results, files: bool) -> str:
    settings = results.settings
    model = settings.get("model", "?")
    network = {
        "embedded": "the small network that comes with the project",
        "daclip": "DA-CLIP's published universal network",
    }.get(model, "a network")
    wanted = sum(len(METHODS[method].nfes) for _, method in all_runs(TABLES))
    weights = f"`{settings.get('weights', '?')}`, sha256 `{str(settings.get('sha256', '?'))[:16]}`"
    commits = tables.commit_list(results.environment.get("commit", []))
    where = "Every table is in `tables/` as Markdown and CSV (all digits), and the" if files else "The"
    return (
        "# The paper's tables, reproduced\n\n"
        "Every table of *MaRS: a fast sampler for mean reverting diffusion* (ICLR 2025, "
        f"[arXiv:2502.07856](https://arxiv.org/abs/2502.07856)) with {network}.\n\n"
        f"- weights: {weights}\n- images: {_images(results)}; seed {settings.get('seed', 0)}\n"
        f"- cells: {len(results.cells)} of {wanted} (a cell is a task, a method and a number of evaluations)\n"
        f"- commit: {commits}\n- command: `{command(results)}`\n\n"
        f"{_DACLIP if results.same_model else _EMBEDDED}\n\n{_READING.format(missing=MISSING, rule=RULE)}\n\n"
        f"{where} numbers behind the tables are in `{CELLS_FILE}`, with the values of each image. What they mean for "
        "the paper's claims is in the project's `docs/CLAIMS.md`.\n"
    )


def command(results: Results) -> str:
    """The command that gives these results."""
    settings = results.settings
    usual = DEFAULTS.get(settings.get("model", ""), {})
    given = {
        "--data": "testsets" if settings.get("sets") else None,
        "--images": settings.get("set_images") or _unusual(settings, usual, "images"),
        "--size": settings.get("set_size") or _unusual(settings, usual, "size"),
        "--subset": _unusual(settings, usual, "subset"),
        "--fid": None if _has_fid(results) else "full" if results.full and _has_fid(results.full) else "none",
    }
    options = [f"{name} {value}" for name, value in given.items() if value] + ["--full"] * (results.full is not None)
    return " ".join(["python scripts/reproduce.py --table all --model", settings.get("model", "?"), *options])


def _has_fid(results: Results) -> bool:
    return any("fid" in cell.metrics for cell in results.cells)


def _unusual(settings: dict[str, Any], usual: dict[str, Any], name: str) -> Any:
    return None if settings.get(name) == usual.get(name) else settings.get(name)


def _full(results: Results) -> str:
    """The recommended solver on whole test sets, where the tables are of parts of them."""
    full = results.full
    if full is None:
        return ""
    texts = [
        "## The paper's test sets in full\n",
        "All images of each set, whole, restored with the recommended solver; in brackets what the paper printed for "
        f"DA-CLIP's network. The tables below are of {_images(replace(results, full=None))}.\n",
    ]
    for task in TEST_SETS:
        nfes = tuple(sorted({cell.nfe for cell in full.cells if cell.task == task}, reverse=True))
        if nfes:
            table = full_table(task, nfes)
            rows = compared_rows(table, table.parts[0], full)
            differs = what_differs(full, task)
            texts.append(f"{differs if len(texts) == 2 else differs.partition(' What differs')[0]}\n")
            texts.append(markdown(rows, shown_columns(rows, table.columns), with_difference=True))
    return "\n".join(texts)


def _images(results: Results) -> str:
    """What was restored: the paper's test sets, and the others."""
    settings = results.settings
    counts = {cell.task: max(each.images for each in results.cells if each.task == cell.task) for cell in results.cells}
    sets = [f"{results.test_set(task)['folder']} {count}" for task, count in counts.items() if results.test_set(task)]  # type: ignore[index]
    others = sorted({count for task, count in counts.items() if not results.test_set(task)})
    texts = []
    if sets:
        size = settings.get("set_size")
        texts.append(f"the paper's test sets, {', '.join(sets)}" + (f", crops of {size}x{size}" if size else ""))
    if others:
        size = settings.get("size")
        number = " to ".join(str(count) for count in dict.fromkeys((others[0], others[-1])))
        crops = f", centre crops of {size}x{size} pixels" if size else ""
        texts.append(f"{number} per task{' elsewhere' if sets else ''}{crops}")
    if settings.get("subset"):
        texts.append(f"with more than {MANY} evaluations at most {settings['subset']}, the first by name")
    return "; ".join(texts) or "none"


def _reproduced(results: Results, chosen: Sequence[Table]) -> str:
    """With the paper's own network: the rules, and how many numbers of each table are reproduced."""
    if not results.same_model:
        return ""
    lines = []
    for table in chosen:
        rows = [row for part in table.parts for row in compared_rows(table, part, results)]
        texts = [text for row in rows for name, text in row.verdicts.items() if row.marks.get(name) != "!"]
        if texts:
            missed = texts.count(NOT)
            share = (len(texts) - missed) / len(texts)
            verdict = "reproduced" if share >= ENOUGH else NOT
            lines.append([table.title, str(len(texts)), str(len(texts) - missed), str(missed), verdict])
    table_text = tables.markdown(["table", "numbers", "reproduced", "not", "verdict"], lines, "lrrrl")
    return f"## Reproduced?\n\n{RULES}\n\n{table_text if lines else 'No published number has been computed yet.'}\n"


def _table_section(results: Results, table: Table, level: str = "##") -> str:
    texts = [f"{level} {table.title}\n"]
    if table.about:
        texts.append(f"{table.about}\n")
    for part in table.parts:
        rows = compared_rows(table, part, results)
        columns = shown_columns(rows, table.columns)
        source = f" (paper: {published()[part.published].place})" if part.published else ""
        texts.append(f"{part.title}{source}{_coverage(rows)}\n")
        if part.task is not None and table.columns == QUALITY:
            texts.append(f"{what_differs(results, part.task)}\n")
        texts.append(markdown(rows, columns, results.same_model or results.is_whole_set(part.task)))
        if any(row.verdicts for row in rows):
            texts.append(
                f"<details>\n<summary>Published, ours, difference, verdict</summary>\n\n"
                f"{verdict_table(rows, columns)}\n</details>\n"
            )
    return "\n".join(texts)


def what_differs(results: Results, task: str) -> str:
    """Which images a table is of, and what else differs from the paper."""
    settings, found = results.settings, results.test_set(task)
    if found is None:
        if results.same_model:
            return "Images of the user's own folder."
        size = settings.get("size")
        kind = f"Photographs{f' of {size}x{size} pixels' if size else ''}, degraded by `codes/data/degradations`"
        return f"{kind}: not the paper's images, so that only the shape of the curves can be compared with it."
    known = TEST_SETS[task]
    size = settings.get("set_size")
    whole = f"centre crops of {size}x{size} pixels" if size else "whole images"
    text = f"The paper's images: {known.folder}, {found['images']} of {known.images}, {whole}; {known.made}."
    if results.same_model:
        return f"{text} What differs from the paper: the noise that is drawn."
    millions = settings.get("parameters", 0) / 1e6
    return (
        f"{text} What differs from the paper: the network, of {millions:.1f} million parameters where DA-CLIP's has 49 "
        "million and a CLIP encoder beside it; its training, on a CPU with photographs degraded by "
        "`codes/data/varied`, where DA-CLIP was trained on ten data sets with real and synthetic degradations, the "
        "training parts of LOL and Rain100H among them; and the noise that is drawn."
    )


def _coverage(rows: Sequence[ComparedRow]) -> str:
    """How many images the numbers are of, and whether some rows have fewer."""
    most = max((row.images for row in rows), default=0)
    if not most:
        return ", not run"
    fewer = any(0 < row.images < most for row in rows)
    missing = sum(not row.images for row in rows)
    text = f", {most} images" + ("; fewer in some rows, as they say" if fewer else "")
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
    folders += [f"testsets/{found['folder']}" for found in results.settings.get("sets", {}).values()]
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
