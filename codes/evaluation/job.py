"""What a test run does, and how it ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..config import Options, title_of
from ..data.sets import Loaded, Task
from ..restoration.restorer import Restorer
from ..solvers import Plan
from .binding import Opened
from .records import Key, Record

THUMBNAIL = 224  # side of the images on a contact sheet


def image_path(folder: Path, task: str, label: str, name: str) -> Path:
    """Where a results folder keeps a restored image."""
    return folder / task / label / f"{name}.png"


@dataclass(frozen=True, kw_only=True)
class Job:
    """All that a run does.

    plans          what it restores images with, by label
    solvers        the options of all solvers of the folder, by label: those of earlier runs are shown too
    made           fingerprint of the weights and settings, for the records
    border         pixels that the metrics leave out, for the records
    workers        threads that read images ahead
    sheet_images   images per task on the contact sheet
    """

    folder: Path
    tasks: tuple[Task, ...]
    plans: tuple[tuple[str, Plan], ...]
    solvers: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    made: str = ""
    border: int = 0
    seed: int = 0
    batch_size: int = 1
    workers: int = 2
    sheet_images: int = 4

    @property
    def labels(self) -> list[str]:
        """The solvers of the folder, in the order of the table."""
        return list(dict.fromkeys([*self.solvers, *(label for label, _ in self.plans)]))

    @property
    def titles(self) -> dict[str, str]:
        """What tables and sheets call the solvers."""
        return {label: title_of(label, options) for label, options in self.solvers.items()}

    @property
    def total(self) -> int:
        """Images to restore, over all solvers."""
        return len(self.plans) * sum(len(task.items) for task in self.tasks)

    @property
    def keys(self) -> set[Key]:
        """Everything to restore."""
        return {(task.name, label, item.name) for task in self.tasks for label, _ in self.plans for item in task.items}

    def image_path(self, task: str, label: str, name: str) -> Path:
        """Where a restored image is kept."""
        return image_path(self.folder, task, label, name)


def batch_size(options: Options, device: torch.device) -> int:
    """Images restored at once."""
    if options.batch_size != "auto":
        return int(options.batch_size)
    return 4 if device.type == "cuda" else 1


def make_job(options: Options, tasks: Sequence[Task], restorer: Restorer, opened: Opened) -> Job:
    """Every task with every solver of the restorer."""
    plans = {opened.labels[label]: plan for label, _, plan in restorer.solvers}
    return Job(
        folder=opened.folder,
        tasks=tuple(tasks),
        plans=tuple(plans.items()),
        solvers=opened.solvers,
        made=opened.made,
        border=options.metrics.crop_border,
        seed=options.seed,
        batch_size=batch_size(options, restorer.device),
        workers=2 if options.workers == "auto" else max(1, int(options.workers)),
        sheet_images=options.contact_sheet,
    )


@dataclass(frozen=True, kw_only=True)
class Result:
    """One restored image on its way to disk."""

    task: Task
    label: str
    loaded: Loaded
    image: Tensor
    nfe: int
    tile: int | None
    seconds: float


@dataclass(kw_only=True)
class Outcome:
    """How a run ended.

    problems      images that were left out, by task
    interrupted   whether it was stopped
    failure       why it failed, if it did
    inputs        scores of the degraded images that this run read
    thumbnails    of what this run read and restored, for the contact sheets; LQ and GT under the labels 'LQ' and 'GT'
    """

    problems: dict[str, list[str]] = field(default_factory=dict)
    interrupted: bool = False
    failure: str = ""
    inputs: list[Record] = field(default_factory=list)
    thumbnails: dict[Key, NDArray[np.uint8]] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0 only if every image was restored."""
        if self.interrupted:
            return 130
        return 1 if self.failure or any(self.problems.values()) else 0


def together(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of all processes."""
    result = Outcome()
    for outcome in outcomes:
        for task, lines in outcome.problems.items():
            known = result.problems.setdefault(task, [])
            known += [line for line in lines if line not in known]
        result.interrupted |= outcome.interrupted
        result.inputs += outcome.inputs
        result.thumbnails |= outcome.thumbnails
    result.failure = "\n".join(dict.fromkeys(outcome.failure for outcome in outcomes if outcome.failure))
    return result
