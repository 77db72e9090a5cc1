"""The runs behind the tables: each method on each task is one run of the evaluation, as test.py does it."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ..config import Options, OptionsError, build_solvers, load_options
from ..data.pairs import image_seed
from ..data.sets import Task, find_data, load_item
from ..defaults import NFE, SOLVER
from ..evaluation.run import test_run
from ..figures import FIGURES
from ..figures.collect import Case
from ..figures.stored import write_items
from ..metrics import MissingWeights, Scorer, make_scorer
from ..metrics.weights import FILES, find_weights
from ..names import TASKS
from ..networks.recommended import given
from ..restoration.restorer import Restorer
from ..rows import METRICS, load
from ..runtime.distributed import Process
from ..runtime.files import read_json
from ..runtime.problems import Damaged
from ..study.bench import crops, fingerprint, open_folder
from .catalogue import MANY, METHODS, PAPER_NFES, RECOMMENDED
from .drawing import DATA
from .results import FULL, label, run_folder
from .testsets import TEST_SETS, dataset_options

FIGURE_SIDE = 192  # pixels of the images that the figures show, from their middle
_HIGHEST_ORDER = 3  # of all solvers
FIGURE_2 = ("low-light", "motion-blurry")  # the tasks whose FID the paper plots


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What is reproduced: model and data, number and size of the images, and the folder of the results.

    data     folder of the paper's test sets, whole images of which take the place of those of the option file
    images   of each task; None: all
    size     side of centre crops; None: whole images
    subset   of each task with more than MANY evaluations; None: as many as with fewer
    set_images, set_size   the same for the tasks of test sets
    """

    model: str
    file: Path
    root: Path
    data: Path | None = None
    images: int | None = None
    size: int | None = None
    set_images: int | None = None
    set_size: int | None = None
    subset: int | None = None
    fid: str = "all"  # all, figure, full, none
    overrides: tuple[str, ...] = ()

    def of_set(self, task: str) -> bool:
        """Whether a task's images are those of the paper's test set."""
        return self.data is not None and task in TEST_SETS

    def images_of(self, task: str) -> int | None:
        """How many images of a task; None: all."""
        return self.set_images if self.of_set(task) else self.images

    def size_of(self, task: str) -> int | None:
        """The side of the crops of a task; None: whole images."""
        return self.set_size if self.of_set(task) else self.size

    def count(self, images: int, nfe: int) -> int:
        """How many of a task's images a number of evaluations takes."""
        return images if self.subset is None or nfe <= MANY else min(images, self.subset)


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
    """Whether FID is computed for a task; `figure` includes the paper's own test sets."""
    return setup.fid == "all" or (setup.fid == "figure" and (task in FIGURE_2 or setup.of_set(task)))


def recommended_options(restorer: Restorer) -> dict[str, Any]:
    """What the checkpoint recommends, else the project's default, without the number of evaluations."""
    solver = given(restorer.recommended) if restorer.recommended is not None else dict(SOLVER)
    return {key: value for key, value in solver.items() if key != "num_sample_steps"}


def lowered(solver: Mapping[str, Any], nfe: int) -> dict[str, Any]:
    """The options of a solver that must do with `nfe` evaluations: order k needs k of them.

    >>> lowered({"algorithm": "mrsampler", "order": 2, "tau": 0.5}, 1)
    {'algorithm': 'mrsampler', 'order': 1, 'tau': 0.5}
    """
    orders = {key: solver[key] for key in ("order", "predictor") if solver.get(key) is not None}
    if not orders and solver["algorithm"] == "mrsampler":
        orders = {"order": 2}  # the paper's, where the options are silent
    return {**solver, **{key: min(order, nfe) for key, order in orders.items()}}


def run_options(
    setup: Setup,
    base: Options,
    task: str,
    method: str,
    *,
    nfes: Sequence[int] = (),
    recommended: Mapping[str, Any] = SOLVER,
) -> Options:
    """The options of one run: a method with all its NFEs, or some, on a task."""
    key, dataset = next(iter(base.test_sets.items()))
    nfes = nfes or METHODS[method].nfes
    chosen = lowered(recommended, min(nfes)) if method == RECOMMENDED else METHODS[method].options
    folder = run_folder(setup.root, task, method)
    sampler: dict[str, Any] = {"variants": {method: {**chosen, "num_sample_steps": list(nfes)}}}
    if base.sampler.fit_target is not None:
        sampler["fit_target"] = base.sampler.fit_target
    names: list[str] = [name for name in base.metrics.names if name != "fid"]
    if with_fid(setup, task):
        names.append("fid")
    changes: dict[str, Any] = {
        "name": folder.name,
        "results": str(folder.parent),
        "sampler": sampler,
        "metrics.names": names,
        "contact_sheet": 0,
    }
    if setup.data is not None and setup.of_set(task):
        key = task
        changes |= {"datasets": dataset_options(setup.data, task), "distortion": None}
    elif dataset.mode == "GT":
        changes |= {f"datasets.{key}.degradation": task, f"datasets.{key}.name": task}
    else:
        changes[f"datasets.{key}.tasks"] = [task]
    if setup.images_of(task) is not None and setup.size_of(task) is None:
        changes[f"datasets.{key}.max_images"] = setup.images_of(task)
    return load_options(
        setup.file, [*setup.overrides, *(f"{name}={json.dumps(value)}" for name, value in changes.items())]
    )


# ---- before the runs


def prepare(setup: Setup, base: Options, restorer: Restorer, tasks: Mapping[str, Task], process: Process) -> None:
    """Open the folder of the results; one of other settings is refused."""
    settings = {
        "model": setup.model,
        "options": setup.file.name,
        "weights": Path(base.path.pretrain_model_G or "").name,
        **{"sha256" if key == "weights" else key: value for key, value in fingerprint(base, 0, 0).items()},
        "prediction": restorer.fit_target,
        "parameters": sum(parameter.numel() for parameter in restorer.network.parameters()),
        "recommended": recommended_options(restorer),
        "recommended_nfe": restorer.recommended.nfe if restorer.recommended is not None else NFE,
        "sets": {
            task: {"folder": TEST_SETS[task].folder, "images": min(count, setup.images_of(task) or count)}
            for task, count in ((name, len(found.items)) for name, found in tasks.items() if setup.of_set(name))
        },
        **{key: getattr(setup, key) for key in ("images", "size", "set_images", "set_size", "subset")},
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
            where = "; docs/reproduce.md says where the test sets come from" if setup.of_set(task) else ""
            problems[task] = f"{error}{where}"
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
    tasks = dict(found)
    for of_set in (False, True):
        size = setup.set_size if of_set else setup.size
        chosen = [task for name, task in found.items() if setup.of_set(name) == of_set]
        if size is None or not chosen:
            continue
        images = (setup.set_images if of_set else setup.images) or max(len(task.items) for task in chosen)
        folder = setup.root / f"images-{size}"
        tasks |= {task.name: task for task in crops(chosen, folder, images, size, seed, process)}
    return tasks


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
    recommended = recommended_options(restorer)
    wanted = [(task, method) for task, method in pairs if task in tasks]

    def runs() -> Iterator[_Run]:
        for number, (task, method) in enumerate(wanted, start=1):
            names = run_options(setup, base, task, method, recommended=recommended).metrics.names
            if complete(setup, task, method, len(tasks[task].items), names):
                continue
            text = f"[{number}/{len(wanted)}] {task}, {METHODS[method].title}"
            # The few images of many evaluations first: the last part summarises all of them.
            for count, nfes in parts(setup, method, len(tasks[task].items)):
                options = run_options(setup, base, task, method, nfes=nfes, recommended=recommended)
                yield text, options, replace(tasks[task], items=tasks[task].items[:count])
                text = ""

    return _run_each(runs(), process, restorer, tell)


_Run = tuple[str, Options, Task]  # what to say before it, unless that is empty, the solvers, and the images


def _run_each(
    runs: Iterable[_Run], process: Process, restorer: Restorer, tell: Callable[[str], None]
) -> tuple[int, list[str]]:
    """Do some runs until one is interrupted; returns the exit code and a line for each image that was left out."""
    code = 0
    problems: dict[str, None] = {}
    scorers: dict[tuple[str, ...], tuple[Scorer, list[str]]] = {}
    for text, options, images in runs:
        if text and process.is_main:
            tell(text)
        names = options.metrics.names
        if names not in scorers:
            scorers[names] = make_scorer(names, options.metrics.crop_border, restorer.device)
        scorer, notes = scorers[names]
        chosen = replace(restorer, solvers=tuple(build_solvers(options, restorer.sde)))
        outcome = test_run(options, [images], chosen, scorer, process, notes=notes).outcome
        problems |= dict.fromkeys(line for lines in outcome.problems.values() for line in lines)
        code = max(code, outcome.exit_code)
        if outcome.interrupted:
            break
    return code, list(problems)


def parts(setup: Setup, method: str, images: int) -> list[tuple[int, tuple[int, ...]]]:
    """The NFEs of a method by the number of images that they take, fewest first.

    The recommended solver may be of an order that the fewest evaluations do not reach: those are a part each.
    """

    def group(nfe: int) -> tuple[int, int]:
        return setup.count(images, nfe), min(nfe, _HIGHEST_ORDER) if method == RECOMMENDED else 0

    nfes = METHODS[method].nfes
    return [
        (each[0], tuple(nfe for nfe in nfes if group(nfe) == each)) for each in sorted({group(nfe) for nfe in nfes})
    ]


def complete(setup: Setup, task: str, method: str, images: int, names: Sequence[str]) -> bool:
    """Whether the summary of a run has all its cells, on all images, with all metrics."""
    try:
        summary = read_json(run_folder(setup.root, task, method) / "summary.json")
    except Damaged:
        return False
    rows = {row["solver"]: row for row in (summary or {"rows": []})["rows"]}
    wanted = {nfe: rows.get(label(method, nfe)) for nfe in METHODS[method].nfes}
    return all(
        row is not None and row["images"] == setup.count(images, nfe) and set(names) <= set(row["metrics"])
        for nfe, row in wanted.items()
    )


def run_full(
    setup: Setup, names: Sequence[str], process: Process, restorer: Restorer, tell: Callable[[str], None]
) -> tuple[int, list[str]]:
    """Where parts of test sets were restored: the recommended solver on all of their images, whole."""
    setup = full_setup(setup)
    base = base_options(setup)
    recommended = recommended_options(restorer)

    def runs() -> Iterator[_Run]:
        for task, images in find_tasks(setup, base)[0].items():
            for nfe in full_nfes(restorer) if task in names and setup.of_set(task) else ():
                text = f"{TEST_SETS[task].folder}, all images, whole: {nfe} evaluation{'s' * (nfe > 1)}"
                yield text, run_options(setup, base, task, RECOMMENDED, nfes=[nfe], recommended=recommended), images

    return _run_each(runs(), process, restorer, tell)


def full_setup(setup: Setup) -> Setup:
    """The same for whole test sets, in a folder of its own."""
    fid = "none" if setup.fid == "none" else "figure"
    return replace(setup, root=setup.root / FULL, set_images=None, set_size=None, fid=fid)


def full_nfes(restorer: Restorer) -> tuple[int, ...]:
    """The recommended number of evaluations, and the fewest of the paper's tables."""
    recommended = restorer.recommended.nfe if restorer.recommended is not None else NFE
    return tuple(dict.fromkeys((recommended, PAPER_NFES[-1])))


# ---- what the figures show


def compute_figures(setup: Setup, tasks: dict[str, Task], restorer: Restorer, names: Sequence[str], seed: int) -> None:
    """Compute and store what the figures show, unless it is stored already. Only the main process calls this."""
    data = setup.root / DATA
    own = restorer.recommended

    def case(task: str) -> Case:
        item = tasks[task].items[0]
        loaded = load_item(tasks[task], item, image_seed(seed, task, item.name))
        if loaded.lq is None or loaded.gt is None:
            raise OptionsError(loaded.problem or f"{task}: the figures need a clean image")
        side = min(FIGURE_SIDE, *loaded.gt.shape[:2])
        top, left = ((length - side) // 2 for length in loaded.gt.shape[:2])
        gt = torch.from_numpy(loaded.gt).permute(2, 0, 1).float() / 255
        lq, gt = (x[:, top : top + side, left : left + side].contiguous() for x in (loaded.lq.rgb, gt))
        lq = lq[None].to(restorer.device)
        return Case(
            network=restorer.predictor(lq),
            sde=restorer.sde,
            fit_target=restorer.fit_target,
            lq=lq,
            gt=gt,
            seed=loaded.seed,
            recommended=own,
        )

    for figure in (FIGURES[name] for name in names if name in FIGURES):
        there = not figure.collect or (data / f"{figure.name}.npz").is_file()
        if there or not all(task in tasks for task in figure.tasks):
            continue
        parts = load(figure.collect)({task: case(task) for task in figure.tasks})
        # The file of the figure's own name comes last: where it exists, the figure is complete.
        for (file, _), items in reversed(list(zip(figure.stored, parts, strict=True))):
            write_items(data / f"{file}.npz", items)
