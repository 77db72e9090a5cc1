"""The runs behind the tables: each method on each task is one evaluation, by the runner of test.py."""

import hashlib
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .. import metrics as m
from .. import session
from ..config import Options, OptionsError, difference, load_options
from ..config.errors import error_at
from ..data.images import read_picture, save_image, to_uint8
from ..data.pairs import DataError, find_images
from ..distributed import Process
from ..evaluate import Outcome, Task
from ..records import read_records
from ..restorer import ImageRestorer
from ..runner import evaluate
from ..scoring import Scorer, make_scorer
from ..solvers import Solver, make_plan
from ..tasks import TASKS
from .catalogue import METHODS
from .results import RUNS, label, run_folder

FIGURE_2 = ("low-light", "motion-blurry")  # the tasks whose FID the paper plots


@dataclass(frozen=True)
class Setup:
    """What is reproduced: with which model and data, how many images, and where it is kept."""

    model: str
    file: Path
    root: Path
    images: int | None = None
    size: int | None = None
    fid: str = "all"  # all, figure, none
    overrides: tuple[str, ...] = ()


def base_options(setup: Setup) -> Options:
    """The option file with what the user set; one test set that has tasks."""
    options = load_options(setup.file, setup.overrides)
    sets = options.test_sets
    key = next(iter(sets))
    if len(sets) > 1:
        raise error_at(options.file, ("datasets",), f"expected one set of images, got {', '.join(sets)}")
    if sets[key].mode != "GT" and sets[key].task_root is None:
        raise error_at(
            options.file, ("datasets", key), "expected clean images (mode GT) or a root with a folder per task"
        )
    if setup.size is not None and sets[key].mode != "GT":
        raise OptionsError(f"--size {setup.size}: only clean images that are degraded on the fly can be cropped")
    return options


def run_options(setup: Setup, base: Options, task: str, method: str) -> Options:
    """The options of one run: a method with all its NFEs on a task."""
    key, dataset = next(iter(base.test_sets.items()))
    chosen = METHODS[method]
    folder = run_folder(setup.root, task, method)
    sampler: dict[str, Any] = {"variants": {method: {**chosen.options, "num_sample_steps": list(chosen.nfes)}}}
    if base.sampler.fit_target is not None:
        sampler["fit_target"] = base.sampler.fit_target
    if dataset.mode == "GT":
        data: dict[str, Any] = {"degradation": task, "name": task}
        if setup.size is not None:
            data["dataroot_GT"] = str(_crops(setup))
    else:
        data = {"tasks": [task]}
    if setup.images is not None:
        data["max_images"] = setup.images
    names: list[str] = [name for name in base.metrics.names if name != "fid"]
    if setup.fid == "all" or (setup.fid == "figure" and task in FIGURE_2):
        names.append("fid")
    changes = {
        "name": folder.name,
        "results": str(folder.parent),
        "sampler": sampler,
        "metrics.names": names,
        "contact_sheet": 0,
        **{f"datasets.{key}.{name}": value for name, value in data.items()},
    }
    return load_options(
        setup.file, [*setup.overrides, *(f"{name}={json.dumps(value)}" for name, value in changes.items())]
    )


# ---- before the runs


def prepare(setup: Setup, base: Options) -> None:
    """Write the crops and what the reproduction is made with; refuse a folder that was made with something else."""
    weights = session.locate(base.path.pretrain_model_G or "")
    settings = {
        "model": setup.model,
        "options": setup.file.name,
        "weights": weights.name,
        "sha256": _sha256(weights),
        "data": _described_data(base),
        "images": setup.images,
        "size": setup.size,
        "seed": base.seed,
        "overrides": list(setup.overrides),
    }
    path = setup.root / "settings.json"
    if path.is_file():
        changes = difference(json.loads(path.read_text()), settings)
        if changes:
            raise OptionsError(
                f"{setup.root}: was made with other settings, going on would mix results; choose another --results\n"
                + "\n".join(f"  {change}" for change in changes)
            )
    else:
        (setup.root / RUNS).mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings, indent=1) + "\n")
    if setup.size is not None:
        _write_crops(setup, base, setup.size)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _described_data(base: Options) -> str:
    dataset = next(iter(base.test_sets.values()))
    if dataset.mode == "GT":
        return f"{Path(dataset.dataroot_GT or '').as_posix()}, degraded on the fly"
    return Path(dataset.task_root or "").name


def _crops(setup: Setup) -> Path:
    return setup.root / f"clean-{setup.size}"


def _write_crops(setup: Setup, base: Options, size: int) -> None:
    """The middles of the clean images; smaller images stay as they are."""
    key, dataset = next(iter(base.test_sets.items()))
    try:
        found = find_images(session.locate(dataset.dataroot_GT or ""))
    except DataError as error:
        raise error_at(base.file, ("datasets", key), str(error)) from error
    for name, path in found.items():
        target = _crops(setup) / f"{name}.png"
        if not target.is_file():
            pixels = to_uint8(read_picture(path).rgb)
            top, left = (max(0, (side - size) // 2) for side in pixels.shape[:2])
            save_image(pixels[top : top + size, left : left + size], target)


# ---- the runs


def run_all(
    setup: Setup,
    pairs: Sequence[tuple[str, str]],
    process: Process,
    restorer: ImageRestorer,
    tell: Callable[[str], None],
) -> tuple[int, list[str]]:
    """Do the runs of some (task, method) pairs; returns the exit code and what went wrong. Every process calls this."""
    base = base_options(setup)
    problems: dict[str, None] = {}
    scorers: dict[tuple[str, ...], tuple[Scorer, list[str]]] = {}
    for number, (task, method) in enumerate(pairs, start=1):
        options = run_options(setup, base, task, method)
        try:
            tasks = session.find_data(options)
        except OptionsError as error:  # the data of this task are missing; the others may be there
            problems[str(error)] = None
            continue
        names = options.metrics.names
        images = sum(len(one.items) for one in tasks)
        if complete(run_folder(setup.root, task, method), method, images, names):
            continue
        if names not in scorers:
            scorers[names] = make_scorer(names, options.metrics.crop_border, restorer.device)
        scorer, notes = scorers[names]
        if process.is_main:
            tell(f"[{number}/{len(pairs)}] {task}, {METHODS[method].title}")
        outcome = evaluate(options, tasks, restorer, scorer, notes, process).outcome
        problems |= dict.fromkeys(_problems(outcome))
        if outcome.interrupted:
            return outcome.exit_code, list(problems)
    return (1 if problems else 0), list(problems)


def complete(folder: Path, method: str, images: int, names: Sequence[str]) -> bool:
    """Whether the summary of a run has all its cells, on all images, with all metrics."""
    path = folder / "summary.json"
    if not path.is_file():
        return False
    rows = {row["solver"]: row for row in json.loads(path.read_text())["rows"]}
    wanted = [rows.get(label(method, nfe)) for nfe in METHODS[method].nfes]
    return all(row is not None and row["images"] == images and set(names) <= set(row["metrics"]) for row in wanted)


def _problems(outcome: Outcome) -> list[str]:
    lines = [line for found in outcome.problems.values() for line in found]
    return [*lines, outcome.failure] if outcome.failure else lines


# ---- what it costs


@dataclass(frozen=True)
class Cost:
    """Network evaluations still to do, and the seconds they and the FID features take; None if not measured."""

    evaluations: int
    seconds: float | None


@dataclass(frozen=True)
class Speed:
    """Measured seconds of one network evaluation of an image, and of its FID features."""

    evaluation: float
    features: float = 0.0


def measure(restorer: ImageRestorer, size: int, with_fid: bool, repeats: int = 3) -> Speed:
    """Time this device, on a noise image."""
    image = torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(0)).to(restorer.device)
    plan = make_plan(restorer.sde, Solver("mrsampler-pc", 2))

    def restore() -> None:
        restorer(image, plan, [torch.Generator().manual_seed(0)]).images.cpu()

    evaluation = _median_seconds(restore, repeats) / plan.nfe
    if not with_fid:
        return Speed(evaluation)
    try:
        inception = m.InceptionFeatures().to(restorer.device)
    except m.MissingWeights:
        return Speed(evaluation)
    pixels = to_uint8(image[0].cpu())
    return Speed(evaluation, _median_seconds(lambda: inception(pixels), 1))


def _median_seconds(function: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats + 1):  # the first warms up
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def cost(setup: Setup, pairs: Sequence[tuple[str, str]], counts: dict[str, int], speed: Speed | None) -> Cost:
    """What the runs of some pairs still need; `counts` are the images of each task."""
    evaluations, features = 0, 0
    for task, method in pairs:
        done = _done(run_folder(setup.root, task, method))
        for nfe in METHODS[method].nfes:
            missing = max(0, counts.get(task, 0) - done.get(label(method, nfe), 0))
            evaluations += nfe * missing
            if setup.fid == "all" or (setup.fid == "figure" and task in FIGURE_2):
                features += missing
    if speed is None:
        return Cost(evaluations, None)
    return Cost(evaluations, evaluations * speed.evaluation + features * speed.features)


def _done(folder: Path) -> dict[str, int]:
    counts: dict[str, int] = {}
    for record in read_records(folder).values():
        counts[record.solver] = counts.get(record.solver, 0) + 1
    return counts


def image_counts(setup: Setup, base: Options) -> dict[str, int]:
    """How many images each task has; tasks whose data are missing have none."""
    counts: dict[str, int] = {}
    for task in TASKS:
        try:
            found: tuple[Task, ...] = session.find_data(run_options(setup, base, task, "pc"))
        except OptionsError:
            continue
        counts[task] = sum(len(one.items) for one in found)
    return counts
