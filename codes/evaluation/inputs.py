"""Scores of the degraded images themselves, which a folder computes once and keeps in inputs.jsonl."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from ..data.images import to_uint8
from ..data.pairs import image_seed
from ..data.sets import load_item
from ..metrics import Scorer
from ..runtime.files import read_lines, set_aside, write_json_lines
from .job import Job
from .records import Record, input_record, line_of, record_of

log = logging.getLogger(__name__)


@dataclass
class Inputs:
    """The scores on record, by task and name, and the metrics and border that they are of."""

    settings: dict[str, Any] = field(default_factory=dict)
    known: dict[tuple[str, str], Record] = field(default_factory=dict)


def read_inputs(folder: Path, scorer: Scorer) -> Inputs:
    """The scores of these metrics that a folder has; a damaged file is set aside, and its scores computed again."""
    without = [f"without {name}" for name in scorer.not_loaded]
    inputs = Inputs({"metrics": [*scorer.names, *without], "border": scorer.crop_border})
    path = folder / "inputs.jsonl"
    found = read_lines(path)
    if found is None:
        return inputs
    records = [record_of(line) for line in found.values[1:]]
    if found.damaged or not found.values or None in records:
        log.warning("%s: damaged, kept as %s; the degraded images are scored again", path, set_aside(path).name)
    elif found.values[0] == inputs.settings:
        inputs.known = {(record.task, record.name): record for record in records if record is not None}
    return inputs


def input_records(
    job: Job, records: Sequence[Record], scorer: Scorer, inputs: Inputs, scored: Sequence[Record]
) -> list[Record]:
    """Scores of the degraded images that were restored: those on record, and `scored` by this run; writes inputs.jsonl.

    Inputs that an earlier run restored are read again if they have no scores yet.
    """
    known, before = dict(inputs.known), len(inputs.known)
    known |= {(record.task, record.name): record for record in scored}
    restored = {(record.task, record.name) for record in records}
    items = [(task, item) for task in job.tasks for item in task.items if item.gt is not None or scorer.without_clean]
    wanted = [(task, item) for task, item in items if (task.name, item.name) in restored]
    missing = [(task, item) for task, item in wanted if (task.name, item.name) not in known]
    for task, item in tqdm(missing, desc="inputs scored", unit="image", disable=None, leave=False):
        seed = image_seed(job.seed, task.name, item.name)
        loaded = load_item(task, item, seed)
        if loaded.lq is not None:
            scores = scorer(to_uint8(loaded.lq.rgb), loaded.gt)
            known[task.name, item.name] = input_record(task.name, item.name, seed, scores)
    if len(known) > before:
        write_json_lines(
            job.folder / "inputs.jsonl", [inputs.settings, *(line_of(known[key]) for key in sorted(known))]
        )
    chosen = ((task.name, item.name) for task, item in wanted)
    return [known[key] for key in chosen if key in known]
