"""The summary of a test run: metrics of image sets (FID, KID), tables and contact sheets."""

import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from .. import metrics as m
from ..data.contact_sheet import contact_sheet
from ..data.images import encode_image, read_picture, to_uint8
from ..data.pairs import image_seed
from ..data.sets import Task, load_item
from ..runtime.files import write_atomically
from .job import THUMBNAIL, Job, Outcome
from .records import INPUT, Key, Record, input_record, read_records, read_scores, with_scores
from .tables import averages, columns_of, csv_table, json_table, markdown_table, overall, text_table

Image = NDArray[np.uint8]


def set_values(
    job: Job, records: Sequence[Record], names: Sequence[str], device: torch.device
) -> tuple[dict[tuple[str, str], dict[str, float | None]], list[str]]:
    """Set metrics for every task and solver with at least two clean images, and notes on their reliability."""
    wanted = [name for name in names if m.METRICS[name].per == "set"]
    tasks = [task for task in job.tasks if any(item.gt is not None for item in task.items)]
    if not wanted or not tasks:
        return {}, []
    pairs = [(task, label) for task in tasks for label, _ in job.plans]
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
    known: dict[str, NDArray[np.float32]] = {}
    if path.is_file():
        with np.load(path) as archive:
            known = dict(zip(archive["names"].tolist(), archive["features"], strict=True))
    missing = [name for name in images if name not in known]
    for name in missing:
        known[name] = inception(to_uint8(read_picture(images[name]).rgb)).reshape(-1)
    if missing:
        names = sorted(known)
        buffer = io.BytesIO()
        np.savez(buffer, names=np.array(names), features=np.stack([known[name] for name in names]))
        write_atomically(path, buffer.getvalue())
    return np.stack([known[name] for name in sorted(images)])


def score_again(job: Job, scorer: m.Scorer) -> None:
    """Score the images on disk again; `scores.jsonl` then replaces the metrics in the records."""
    clean = {(task.name, item.name): item.gt for task in job.tasks for item in task.items}
    lines = []
    records = sorted(read_records(job.folder).values(), key=lambda record: record.key)
    for record in tqdm(records, desc="scored", unit="image", disable=None):
        gt = clean.get((record.task, record.name))
        path = job.image_path(*record.key)
        if gt is None or not path.is_file():
            continue
        values = scorer(to_uint8(read_picture(path).rgb), to_uint8(read_picture(gt).rgb))
        lines.append(json.dumps({"task": record.task, "solver": record.solver, "name": record.name, "metrics": values}))
    write_atomically(job.folder / "scores.jsonl", ("\n".join(lines) + "\n").encode())


def input_records(job: Job, records: Sequence[Record], scorer: m.Scorer, scored: Sequence[Record]) -> list[Record]:
    """Scores of the degraded images, for those that were restored; cached in inputs.jsonl.

    `scored` holds those of this run. Inputs that an earlier run restored are read again if they have no scores yet.
    """
    path = job.folder / "inputs.jsonl"
    without = [f"without {name}" for name in scorer.not_loaded]
    settings = {"metrics": [*scorer.names, *without], "border": scorer.crop_border}
    known: dict[tuple[str, str], Record] = {}
    if path.is_file():
        first, *lines = (json.loads(line) for line in path.read_text().splitlines())
        if first == settings:
            known = {(line["task"], line["name"]): Record(**line) for line in lines}
    before = len(known)
    known |= {(record.task, record.name): record for record in scored}
    restored = {(record.task, record.name) for record in records}
    pairs = [(task, item) for task in job.tasks for item in task.items if item.gt is not None]
    wanted = [(task, item) for task, item in pairs if (task.name, item.name) in restored]
    missing = [(task, item) for task, item in wanted if (task.name, item.name) not in known]
    for task, item in tqdm(missing, desc="inputs scored", unit="image", disable=None, leave=False):
        seed = image_seed(job.seed, task.name, item.name)
        loaded = load_item(task, item, seed)
        if loaded.lq is not None and loaded.gt is not None:
            scores = scorer(to_uint8(loaded.lq.rgb), loaded.gt)
            known[task.name, item.name] = input_record(task.name, item.name, seed, scores)
    if len(known) > before:
        lines = [settings, *(asdict(known[key]) for key in sorted(known))]
        write_atomically(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())
    chosen = ((task.name, item.name) for task, item in wanted)
    return [known[key] for key in chosen if key in known]


def summarise(
    job: Job, scorer: m.Scorer, names: Sequence[str], outcome: Outcome, notes: Sequence[str], device: torch.device
) -> str:
    """Write summary.json, .csv, .md and a contact sheet per task; returns the table as text."""
    wanted = job.keys
    found = [record for record in read_records(job.folder).values() if record.key in wanted]
    records = with_scores(found, read_scores(job.folder))
    columns = columns_of(names)
    sets, set_notes = set_values(job, records, names, device)
    inputs = input_records(job, records, scorer, outcome.inputs)
    order = [(task.name, label) for task in job.tasks for label in (INPUT, *(label for label, _ in job.plans))]
    left_out = {task: len(lines) for task, lines in outcome.problems.items()}
    rows = averages([*inputs, *records], order, columns, left_out, sets)
    means = overall(rows)
    all_notes = [*notes, *set_notes]
    tiled = sum(row.tiled for row in rows)
    if tiled:
        all_notes.append(f"{tiled} images were restored in tiles, which changes the result slightly")
    # Unpaired images count as left out, but were never part of the job.
    unreadable = sum(left_out.get(task.name, 0) - len(task.problems) for task in job.tasks)
    missing = len(wanted) - len(records) - len(job.plans) * unreadable
    if missing > 0:
        all_notes.append(f"{missing} images are not restored yet; run the same command again to continue")
    text = "\n".join([text_table([*rows, *means], columns), *(f"note: {note}" for note in all_notes)])
    title = f"# {job.folder.name}\n\n"
    listed = "".join(f"- {note}\n" for note in all_notes)
    write_atomically(job.folder / "summary.json", json_table(rows, means, all_notes).encode())
    write_atomically(job.folder / "summary.csv", csv_table([*rows, *means], columns).encode())
    write_atomically(job.folder / "summary.md", f"{title}{markdown_table([*rows, *means], columns)}\n{listed}".encode())
    for task in job.tasks:
        draw_sheet(job, task, {record.key: record for record in [*inputs, *records]}, outcome.thumbnails)
    return text


def sheet_path(job: Job, task: str) -> Path:
    """The file of a task's contact sheet."""
    return job.folder / f"{task}.png"


def draw_sheet(job: Job, task: Task, records: dict[Key, Record], thumbnails: dict[Key, Image]) -> None:
    """Draw a task's contact sheet: LQ | each solver | GT for the first images that all solvers have restored.

    `thumbnails` holds those of this run; images restored by an earlier run are read from disk.
    """
    labels = [label for label, _ in job.plans]
    complete = [item for item in task.items if all((task.name, label, item.name) in records for label in labels)]
    rows: list[list[Image | None]] = []
    captions: list[list[str]] = []
    for item in complete[: job.sheet_images]:
        row = [thumbnails.get((task.name, label, item.name)) for label in ("LQ", *labels, "GT")]
        if any(image is None for image in row[:-1]) or (row[-1] is None and item.gt is not None):
            loaded = load_item(task, item, image_seed(job.seed, task.name, item.name))
            if loaded.lq is None:
                continue
            restored = [to_uint8(read_picture(job.image_path(task.name, label, item.name)).rgb) for label in labels]
            row = [to_uint8(loaded.lq.rgb), *restored, loaded.gt]
        rows.append(row)
        scores = [_caption(records.get((task.name, label, item.name))) for label in (INPUT, *labels)]
        captions.append([*scores, item.name])
    if rows:
        headings = ["degraded", *labels, "clean" if any(row[-1] is not None for row in rows) else ""]
        sheet = contact_sheet(headings, rows, captions, THUMBNAIL)
        write_atomically(sheet_path(job, task.name), encode_image(sheet, ".png"))


def _caption(record: Record | None) -> str:
    if record is None:
        return ""
    rows = [m.METRICS[name] for name in ("psnr", "lpips")]
    found = ((row, record.metrics.get(row.name)) for row in rows)
    return ", ".join(f"{value:.{row.digits}f} {row.unit or row.label}" for row, value in found if value is not None)
