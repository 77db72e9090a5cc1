"""The runs behind the tables: each method on each task is one run of the evaluation, as test.py does it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ..config import Options, OptionsError, build_solvers, load_options
from ..data.pairs import image_seed
from ..data.sets import Task, find_data, load_item
from ..evaluation.run import test_run
from ..figures import FIGURES
from ..figures.collect import Case
from ..figures.stored import write_items
from ..metrics import MissingWeights, Scorer, make_scorer
from ..metrics.weights import FILES, find_weights
from ..names import TASKS
from ..restoration.restorer import Restorer
from ..rows import METRICS, load
from ..runtime.distributed import Process
from ..study.bench import crops, fingerprint, open_folder
from .catalogue import METHODS
from .drawing import DATA
from .results import label, run_folder

FIGURE_2 = ("low-light", "motion-blurry")  # the tasks whose FID the paper plots


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What is reproduced: model and data, number and size of the images, and the folder of the results."""

    model: str
    file: Path
    root: Path
    images: int | None = None
    size: int | None = None
    fid: str = "all"  # all, figure, none
    overrides: tuple[str, ...] = ()


def base_options(setup: Setup) -> Options:
    """The option file with the overrides; it must have one test set, with clean images or with tasks."""
    options = load_options(setup.file, setup.overrides)
    sets = options.test_sets
    key = next(iter(sets))
    if len(sets) > 1:
        raise options.error(("datasets",), f"expected one set of images, got {', '.join(sets)}")
    if sets[key].mode != "GT" and sets[key].task_root is None:
        raise options.error(("datasets", key), "expected clean images (mode GT) or a root with a folder per task")
    return options


def with_fid(setup: Setup, task: str) -> bool:
    """Whether FID is computed for a task."""
    return setup.fid == "all" or (setup.fid == "figure" and task in FIGURE_2)


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
    if with_fid(setup, task):
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
    """Open the folder of the results; one of other settings is refused."""
    settings = {
        "model": setup.model,
        "options": setup.file.name,
        "weights": Path(base.path.pretrain_model_G or "").name,
        **{"sha256" if key == "weights" else key: value for key, value in fingerprint(base, 0, 0).items()},
        "images": setup.images,
        "size": setup.size,
        "overrides": list(setup.overrides),
    }
    open_folder(setup.root, settings, process, "--results")


def find_tasks(setup: Setup, base: Options) -> tuple[dict[str, Task], dict[str, str]]:
    """The images of each task, and a reason for each task without any."""
    found: dict[str, Task] = {}
    problems: dict[str, str] = {}
    for task in TASKS:
        try:
            (found[task],) = find_data(run_options(setup, base, task, "pc"))
        except OptionsError as error:
            problems[task] = str(error)
    return found, problems


def missing_metrics(setup: Setup, base: Options) -> list[str]:
    """A line for each metric whose weights are missing."""
    names = {*base.metrics.names} - {"fid"} | ({"fid"} if setup.fid != "none" else set())
    lines = []
    for name in FILES:
        try:
            if name in names:
                find_weights(name)
        except MissingWeights as error:
            lines.append(f"all tables: {METRICS[name].label} is left out: {error}")
    return lines


def cut(setup: Setup, found: dict[str, Task], seed: int, process: Process) -> dict[str, Task]:
    """The middle of each image where the set-up has a size; tasks that share images then take different ones."""
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
    """Run some (task, method) pairs; returns the exit code and a line for each image that was left out."""
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
    """Compute and store what the figures show, unless it is stored already. Only the main process calls this."""
    data = setup.root / DATA

    def case(task: str) -> Case:
        item = tasks[task].items[0]
        loaded = load_item(tasks[task], item, image_seed(seed, task, item.name))
        if loaded.lq is None or loaded.gt is None:
            raise OptionsError(loaded.problem or f"{task}: the figures need a clean image")
        lq = loaded.lq.rgb[None].to(restorer.device)
        gt = torch.from_numpy(loaded.gt).permute(2, 0, 1).float() / 255
        return Case(restorer.predictor(lq), restorer.sde, restorer.fit_target, lq, gt, loaded.seed)

    for figure in (FIGURES[name] for name in names if name in FIGURES):
        there = not figure.collect or (data / f"{figure.name}.npz").is_file()
        if there or not all(task in tasks for task in figure.tasks):
            continue
        parts = load(figure.collect)({task: case(task) for task in figure.tasks})
        # The file of the figure's own name comes last: where it exists, the figure is complete.
        for (file, _), items in reversed(list(zip(figure.stored, parts, strict=True))):
            write_items(data / f"{file}.npz", items)
