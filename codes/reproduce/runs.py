"""The runs behind the tables: each method on each task is one evaluation, by the runner of test.py."""

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from .. import metrics as m
from ..config import Options, OptionsError, build_solvers, load_options
from ..config.errors import error_at
from ..data.images import to_uint8
from ..data.pairs import image_seed
from ..data.sets import Task, find_data, load_item
from ..evaluation.records import read_records
from ..evaluation.run import test_run
from ..evaluation.summary import Scorer, make_scorer
from ..figures import collect
from ..figures.stored import write_items
from ..names import TASKS
from ..restoration.restorer import Restorer
from ..runtime.distributed import Process
from ..solvers import Solver, make_plan
from ..study.bench import claim, crops, facts_of
from . import drawing as figures
from .catalogue import METHODS
from .results import label, run_folder

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
    else:
        data = {"tasks": [task]}
    if setup.images is not None and setup.size is None:
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


def prepare(setup: Setup, base: Options, process: Process) -> None:
    """Write what the reproduction is made with; refuse a folder that was made with something else."""
    settings = {
        "model": setup.model,
        "options": setup.file.name,
        "weights": Path(base.path.pretrain_model_G or "").name,
        **{"sha256" if key == "weights" else key: value for key, value in facts_of(base, 0, 0).items()},
        "images": setup.images,
        "size": setup.size,
        "overrides": list(setup.overrides),
    }
    claim(setup.root, settings, process, "--results")


def find_tasks(setup: Setup, base: Options) -> tuple[dict[str, Task], dict[str, str]]:
    """The images of each task, and for those that have none the reason."""
    found: dict[str, Task] = {}
    problems: dict[str, str] = {}
    for task in TASKS:
        try:
            (found[task],) = find_data(run_options(setup, base, task, "pc"))
        except OptionsError as error:
            problems[task] = str(error)
    return found, problems


def cut(setup: Setup, found: dict[str, Task], seed: int, process: Process) -> dict[str, Task]:
    """The middles of the images if a size was asked for; tasks that share images then take different ones."""
    if setup.size is None:
        return found
    images = setup.images or max(len(task.items) for task in found.values())
    folder = setup.root / f"images-{setup.size}"
    return {task.name: task for task in crops(list(found.values()), folder, images, setup.size, seed, process)}


# ---- the runs


def run_all(
    setup: Setup,
    pairs: Sequence[tuple[str, str]],
    tasks: dict[str, Task],
    process: Process,
    restorer: Restorer,
    tell: Callable[[str], None],
) -> tuple[int, list[str]]:
    """Do the runs of some (task, method) pairs; returns the exit code and which images were left out."""
    base = base_options(setup)
    code = 0
    problems: dict[str, None] = {}
    scorers: dict[tuple[str, ...], tuple[Scorer, list[str]]] = {}
    wanted = [(task, method) for task, method in pairs if task in tasks]
    for number, (task, method) in enumerate(wanted, start=1):
        options = run_options(setup, base, task, method)
        names = options.metrics.names
        if complete(run_folder(setup.root, task, method), method, len(tasks[task].items), names):
            continue
        if names not in scorers:
            scorers[names] = make_scorer(names, options.metrics.crop_border, restorer.device)
        scorer, notes = scorers[names]
        if process.is_main:
            tell(f"[{number}/{len(wanted)}] {task}, {METHODS[method].title}")
        chosen = replace(restorer, solvers=tuple(build_solvers(options, restorer.sde)))
        outcome = test_run(options, [tasks[task]], chosen, scorer, process, notes=notes).outcome
        problems |= dict.fromkeys(line for lines in outcome.problems.values() for line in lines)
        code = max(code, outcome.exit_code)
        if outcome.interrupted:
            break
    return code, list(problems)


def complete(folder: Path, method: str, images: int, names: Sequence[str]) -> bool:
    """Whether the summary of a run has all its cells, on all images, with all metrics."""
    path = folder / "summary.json"
    if not path.is_file():
        return False
    rows = {row["solver"]: row for row in json.loads(path.read_text())["rows"]}
    wanted = [rows.get(label(method, nfe)) for nfe in METHODS[method].nfes]
    return all(row is not None and row["images"] == images and set(names) <= set(row["metrics"]) for row in wanted)


# ---- what the figures show


def compute_figures(setup: Setup, tasks: dict[str, Task], restorer: Restorer, names: Sequence[str], seed: int) -> None:
    """The restorations whose course the figures show, as far as they are not there; for the main process alone."""
    data = setup.root / figures.DATA

    def case(task: str) -> collect.Case:
        item = tasks[task].items[0]
        loaded = load_item(tasks[task], item, image_seed(seed, task, item.name))
        if loaded.lq is None or loaded.gt is None:
            raise OptionsError(loaded.problem or f"{task}: the figures need a clean image")
        lq = loaded.lq.rgb[None].to(restorer.device)
        gt = torch.from_numpy(loaded.gt).permute(2, 0, 1).float() / 255
        return collect.Case(restorer.predictor(lq), restorer.sde, restorer.fit_target, lq, gt, loaded.seed)

    def missing(name: str, *needed: str) -> bool:
        return name in names and not (data / f"{name}.npz").is_file() and all(task in tasks for task in needed)

    if missing("comparison", *figures.COMPARISON_TASKS):
        rows = [collect.comparison(case(task), task) for task in figures.COMPARISON_TASKS]
        write_items(data / "comparison.npz", rows)
    if missing("trajectories", figures.TRAJECTORY_TASK):
        chosen = case(figures.TRAJECTORY_TASK)
        assert chosen.gt is not None
        write_items(data / "trajectories-images.npz", [figures.Pair(to_uint8(chosen.lq[0].cpu()), to_uint8(chosen.gt))])
        write_items(data / "trajectories.npz", collect.trajectories(chosen))
    if missing("convergence", figures.CONVERGENCE_TASK):
        write_items(data / "convergence.npz", collect.convergence(case(figures.CONVERGENCE_TASK)))
    if missing("stability"):
        write_items(data / "stability.npz", collect.stability())


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


def measure(restorer: Restorer, size: int, with_fid: bool, repeats: int = 3) -> Speed:
    """Time this device, on a noise image."""
    image = torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(0)).to(restorer.device)
    plan = make_plan(restorer.sde, Solver("mrsampler-pc", 2))

    def restore() -> None:
        restorer.batch(image, plan, [torch.Generator().manual_seed(0)]).samples.cpu()

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
