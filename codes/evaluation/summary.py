"""The summary of a test run: metrics of image sets (FID, KID), tables and contact sheets."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from .. import metrics as m
from ..data.contact_sheet import contact_sheet
from ..data.images import ImageError, encode_image, read_picture, to_uint8
from ..data.pairs import image_seed
from ..data.sets import Task, load_item
from ..runtime.files import read_arrays, write_arrays, write_atomically
from ..runtime.output import one_line
from ..runtime.problems import Damaged
from .inputs import Inputs, input_records
from .job import THUMBNAIL, Job, Outcome
from .records import INPUT, Key, Record, Rescored, read_records, read_scores, with_scores, write_scores
from .tables import averages, csv_table, json_table, markdown_table, overall, text_table

log = logging.getLogger(__name__)

Image = NDArray[np.uint8]


def set_values(
    job: Job, records: Sequence[Record], names: Sequence[str], device: torch.device
) -> tuple[dict[tuple[str, str], dict[str, float | None]], list[str]]:
    """Set metrics for every task and solver with at least two clean images, and notes on their reliability."""
    wanted = [name for name in names if m.METRICS[name].per == "set"]
    tasks = [task for task in job.tasks if any(item.gt is not None for item in task.items)]
    if not wanted or not tasks:
        return {}, []
    pairs = [(task, label) for task in tasks for label in job.labels]
    inception, notes = m.make_features(device)
    if inception is None:
        return {(task.name, label): dict.fromkeys(wanted) for task, label in pairs}, notes
    values: dict[tuple[str, str], dict[str, float | None]] = {}
    smallest = None
    for task, label in tqdm(pairs, desc="FID features", unit="set", disable=None, leave=False):
        done = sorted(record.name for record in records if (record.task, record.solver) == (task.name, label))
        clean = {item.name: item.gt for item in task.items if item.gt is not None and item.name in set(done)}
        if len(clean) < 2:
            values[task.name, label] = dict.fromkeys(wanted)
            continue
        ours = set_features(
            job, task, label, {name: job.image_path(task.name, label, name) for name in clean}, inception
        )
        theirs = set_features(job, task, "GT", clean, inception)
        values[task.name, label] = {**m.set_scores(wanted, ours, theirs)}
        smallest = min(len(clean), smallest or len(clean))
    if smallest is not None and smallest < m.INDICATIVE_FID_BELOW:
        notes.append(f"FID on {smallest} images is indicative only (it is biased below {m.INDICATIVE_FID_BELOW})")
    return values, notes


def set_features(
    job: Job, task: Task, label: str, images: dict[str, Path], inception: m.InceptionFeatures
) -> NDArray[np.float32]:
    """Inception features of images in name order, computed once and cached in the run's folder."""
    path = job.folder / "features" / task.name / f"{label}.npz"
    known = _known_features(path)
    missing = [name for name in images if name not in known]
    for name in missing:
        known[name] = inception(to_uint8(read_picture(images[name]).rgb)).reshape(-1)
    if missing:
        names = sorted(known)
        write_arrays(path, {"names": np.array(names), "features": np.stack([known[name] for name in names])})
    return np.stack([known[name] for name in sorted(images)])


def _known_features(path: Path) -> dict[str, NDArray[np.float32]]:
    """The features of a file by image; those of a damaged one are computed again."""
    try:
        found = read_arrays(path)
        if found is None:
            return {}
        names, features = found["names"], found["features"]
        if names.ndim != 1 or names.dtype.kind != "U" or features.ndim != 2 or len(names) != len(features):
            raise Damaged(f"{path}: damaged, not features by name")
        return dict(zip(names.tolist(), features, strict=True))
    except (Damaged, KeyError) as error:
        log.warning("%s; computed again", error if isinstance(error, Damaged) else f"{path}: damaged, without {error}")
        return {}


def score_again(job: Job, scorer: m.Scorer) -> None:
    """Score the images on disk again; `scores.jsonl` then replaces the metrics in the records."""
    clean = {(task.name, item.name): item.gt for task in job.tasks for item in task.items}
    scores = read_scores(job.folder)
    records = sorted(read_records(job.folder).values(), key=lambda record: record.key)
    for record in tqdm(records, desc="scored", unit="image", disable=None):
        gt = clean.get((record.task, record.name))
        if gt is None and not scorer.without_clean:
            continue
        try:
            restored = to_uint8(read_picture(job.image_path(*record.key)).rgb)
            truth = None if gt is None else to_uint8(read_picture(gt).rgb)
        except ImageError as error:
            tqdm.write(one_line(f"not scored: {error}"))
            continue
        scores[record.key] = Rescored(scorer(restored, truth), scorer.crop_border)
    write_scores(job.folder, scores)


def summarise(
    job: Job,
    scorer: m.Scorer,
    names: Sequence[str],
    inputs: Inputs,
    outcome: Outcome,
    notes: Sequence[str],
    device: torch.device,
) -> str:
    """Write summary.json, .csv, .md and a contact sheet per task; returns the table as text.

    They show all solvers of the folder, those of earlier runs too, on the images of this run.
    """
    images = {(task.name, item.name) for task in job.tasks for item in task.items}
    found = [record for record in read_records(job.folder).values() if (record.task, record.name) in images]
    records = with_scores(found, read_scores(job.folder))
    columns = [m.METRICS[name] for name in names]
    sets, set_notes = set_values(job, records, names, device)
    input_scores = input_records(job, records, scorer, inputs, outcome.inputs)
    order = [(task.name, label) for task in job.tasks for label in (INPUT, *job.labels)]
    left_out = {task: len(lines) for task, lines in outcome.problems.items()}
    rows = averages([*input_scores, *records], order, columns, left_out, sets)
    means = overall(rows)
    all_notes = [*notes, *set_notes, *_notes(job, scorer, records, outcome)]
    tiled = sum(row.tiled for row in rows)
    if tiled:
        all_notes.append(f"{tiled} images were restored in tiles, which changes the result slightly")
    shown = [*rows, *means]
    text = "\n".join([text_table(shown, columns, job.titles), *(f"note: {note}" for note in all_notes)])
    title = f"# {job.folder.name}\n\n"
    listed = "".join(f"- {note}\n" for note in all_notes)
    table = markdown_table(shown, columns, job.titles)
    write_atomically(job.folder / "summary.json", json_table(rows, means, all_notes).encode())
    write_atomically(job.folder / "summary.csv", csv_table(shown, columns).encode())
    write_atomically(job.folder / "summary.md", f"{title}{table}\n{listed}".encode())
    for task in job.tasks:
        draw_sheet(job, task, {record.key: record for record in [*input_scores, *records]}, outcome.thumbnails)
    return text


def _notes(job: Job, scorer: m.Scorer, records: Sequence[Record], outcome: Outcome) -> Iterator[str]:
    """What is not complete."""
    labels = {label for label, _ in job.plans}
    # Unpaired images count as left out, but were never part of the job.
    unreadable = sum(len(outcome.problems.get(task.name, ())) - len(task.problems) for task in job.tasks)
    done = {record.key for record in records}
    missing = len(job.keys - done) - len(labels) * unreadable
    if missing > 0:
        yield f"{missing} images are not restored yet; run the same command again to continue"
    counts = {label: sum(record.solver == label for record in records) for label in job.labels}
    fewer = [label for label, count in counts.items() if label not in labels and 0 < count < max(counts.values())]
    if fewer:
        yield f"fewer images than the others: {', '.join(fewer)}; their option file restores the rest"
    clean = {(task.name, item.name) for task in job.tasks for item in task.items if item.gt is not None}
    scored = [record for record in records if (record.task, record.name) in clean]
    wanted = {name: records if name in scorer.without_clean else scored for name in scorer.names}
    unknown = [name for name, of in wanted.items() if any(name not in record.metrics for record in of)]
    if unknown:
        yield f"{', '.join(unknown)}: not computed for images of earlier runs; --score-only computes it"


def sheet_path(job: Job, task: str) -> Path:
    """The file of a task's contact sheet."""
    return job.folder / f"{task}.png"


def draw_sheet(job: Job, task: Task, records: dict[Key, Record], thumbnails: dict[Key, Image]) -> None:
    """Draw a task's contact sheet: LQ | each solver | GT for the first images that all solvers have restored.

    `thumbnails` holds those of this run; images restored by an earlier run are read from disk.
    """
    shown = {label for label, _ in job.plans} | {label for name, label, _ in records if name == task.name}
    labels = [label for label in job.labels if label in shown]
    complete = [item for item in task.items if all((task.name, label, item.name) in records for label in labels)]
    rows: list[list[Image | None]] = []
    captions: list[list[str]] = []
    for item in complete[: job.sheet_images]:
        row = {label: thumbnails.get((task.name, label, item.name)) for label in ("LQ", *labels, "GT")}
        try:
            if row["LQ"] is None or (row["GT"] is None and item.gt is not None):
                loaded = load_item(task, item, image_seed(job.seed, task.name, item.name))
                if loaded.lq is None:
                    continue
                row |= {"LQ": to_uint8(loaded.lq.rgb), "GT": loaded.gt}
            for label in labels:
                if row[label] is None:
                    row[label] = to_uint8(read_picture(job.image_path(task.name, label, item.name)).rgb)
        except ImageError as error:
            tqdm.write(one_line(f"not on the contact sheet: {error}"))
            continue
        rows.append(list(row.values()))
        scores = [_caption(records.get((task.name, label, item.name))) for label in (INPUT, *labels)]
        captions.append([*scores, item.name])
    if rows:
        titles = [job.titles.get(label, label) for label in labels]
        headings = ["degraded", *titles, "clean" if any(row[-1] is not None for row in rows) else ""]
        sheet = contact_sheet(headings, rows, captions, THUMBNAIL)
        write_atomically(sheet_path(job, task.name), encode_image(sheet, ".png"))


def _caption(record: Record | None) -> str:
    if record is None:
        return ""
    rows = [m.METRICS[name] for name in ("psnr", "lpips")]
    found = ((row, record.metrics.get(row.name)) for row in rows)
    return ", ".join(f"{value:.{row.digits}f} {row.unit or row.label}" for row, value in found if value is not None)
