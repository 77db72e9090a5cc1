"""How long the runs take: the work that is left, at the speed of this machine under its present load."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import torch
from PIL import Image

from .. import metrics as m
from ..config import Options
from ..data.images import encode_image, to_uint8
from ..data.sets import Task
from ..evaluation.job import batch_size
from ..evaluation.records import read_records
from ..restoration.restorer import Restorer
from ..runtime.distributed import Process
from ..study.bench import evaluation_seconds, mean_seconds
from .catalogue import METHODS
from .results import label, run_folder
from .runs import Setup, with_fid

MEASURED = 256  # side of the image that is timed, where the set-up has no size
_HEADERS = 20  # files of a task whose size is looked up


@dataclass(frozen=True)
class Images:
    """How many images a task has, and how many pixels each has in the mean."""

    count: int
    pixels: float


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Measured seconds for an image of some pixels: one evaluation, saving and scoring it, its features for FID."""

    pixels: int
    evaluation: float
    scoring: float
    features: float


def images_of(tasks: Mapping[str, Task], setup: Setup) -> dict[str, Images]:
    """What is to be restored of each task, from the headers of its first files."""
    found = {}
    for name, task in tasks.items():
        count = min(len(task.items), setup.images_of(name) or len(task.items))
        sizes = [_pixels(item.lq or item.gt, setup.size_of(name)) for item in task.items[: min(count, _HEADERS)]]
        known = [size for size in sizes if size]
        found[name] = Images(count, task.enlarge**2 * fmean(known) if known else MEASURED**2)
    return found


def _pixels(path: Path | None, size: int | None) -> int:
    try:
        with Image.open(path or "") as image:
            width, height = image.size
    except OSError:  # the run will name it
        return 0
    return min(width, size or width) * min(height, size or height)


def measure(setup: Setup, options: Options, restorer: Restorer, process: Process) -> Speed:
    """Time this device on noise. Every process calls this, so that they slow each other down as in the runs."""
    side = setup.size or MEASURED
    batch = batch_size(options, restorer.device)
    images = torch.rand(batch, 3, side, side, generator=torch.Generator().manual_seed(0)).to(restorer.device)
    pixels = to_uint8(images[0].cpu())
    scorer, _ = m.make_scorer(options.metrics.names, options.metrics.crop_border, restorer.device)
    inception = None if setup.fid == "none" else m.make_features(restorer.device)[0]
    process.barrier()
    evaluation = evaluation_seconds(restorer, images)
    scoring = mean_seconds(lambda: (encode_image(pixels, ".png"), scorer(pixels, 255 - pixels)))
    features = 0.0 if inception is None else mean_seconds(lambda: inception(pixels))
    everywhere = process.gather((evaluation, scoring, features))
    evaluation, scoring, features = (fmean(values) for values in zip(*everywhere, strict=True))
    return Speed(pixels=side**2, evaluation=evaluation, scoring=scoring, features=features)


def cost(
    setup: Setup, pairs: Sequence[tuple[str, str]], images: Mapping[str, Images], speed: Speed | None
) -> tuple[int, float]:
    """The network evaluations that some (task, method) pairs still need, and the seconds of one process for them.

    Without a speed the seconds are 0.
    """
    evaluations, seconds = 0, 0.0
    for task, method in pairs:
        if task not in images:
            continue
        done = Counter(record.solver for record in read_records(run_folder(setup.root, task, method)).values())
        wanted = {nfe: setup.count(images[task].count, nfe) for nfe in METHODS[method].nfes}
        missing = {nfe: max(0, count - done[label(method, nfe)]) for nfe, count in wanted.items()}
        todo = sum(nfe * count for nfe, count in missing.items())
        evaluations += todo
        if speed is not None:
            scale = images[task].pixels / speed.pixels
            restored = sum(missing.values())
            seconds += scale * (todo * speed.evaluation + restored * speed.scoring)
            seconds += restored * speed.features if with_fid(setup, task) else 0
    return evaluations, seconds
