"""A bench: a network with a few images to measure solvers on.

Measuring goes through the evaluation's own loop, so that results are kept and several processes share the work.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..config import Options, OptionsError, difference, resolved
from ..data.images import read_image, save_image, to_uint8
from ..data.pairs import Item, image_seed
from ..data.resizing import middle
from ..data.sets import Task, find_data, load_item
from ..evaluation.folder import made_otherwise
from ..evaluation.job import Job, together
from ..evaluation.records import read_records
from ..evaluation.run import Score, run
from ..metrics import make_scorer
from ..restoration.loading import restorer_of
from ..restoration.restorer import Restorer
from ..runtime.device import choose_device
from ..runtime.distributed import Process, processes
from ..runtime.files import digest, read_json, remove_leftovers, write_json
from ..runtime.locks import claim
from ..runtime.paths import locate
from ..runtime.problems import Damaged
from ..solvers import Plan, Solver, make_plan
from .candidates import METRICS, Candidate, values_of

# Many steps of the ODE: the result depends on the start alone, so that other solvers can be compared with it.
REFERENCE = Solver("mrsampler-pc", 100, tau=0.0)


class Stopped(Exception):
    """A run that was interrupted or failed; `code` is the exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A network, images to measure solvers on, and the folder of the results."""

    folder: Path
    tasks: tuple[Task, ...]
    restorer: Restorer
    score: Score
    process: Process
    seed: int = 0

    @property
    def images(self) -> int:
        """The number of images of all tasks."""
        return sum(len(task.items) for task in self.tasks)

    @property
    def has_clean_images(self) -> bool:
        """Whether every image has a clean one to be compared with."""
        return all(item.gt is not None for task in self.tasks for item in task.items)

    def run(self, plans: Iterable[tuple[str, Plan]]) -> None:
        """Restore all images with these plans; what is on record is not done again."""
        job = Job(folder=self.folder, tasks=self.tasks, plans=tuple(plans), seed=self.seed, sheet_images=0)
        inputs = {(task.name, item.name) for task in self.tasks for item in task.items}  # nobody asks for their scores
        outcome = together(self.process.gather(run(job, self.restorer, self.score, self.process, inputs)))
        if outcome.interrupted:
            raise Stopped(f"interrupted; the same command continues in {self.folder}", 130)
        problems = [line for lines in outcome.problems.values() for line in lines]
        if outcome.failure or problems:
            raise Stopped("\n".join([*problems, *filter(None, [outcome.failure])]), 1)

    def measure(self, candidates: Sequence[Candidate]) -> None:
        """Restore and score all images with every candidate."""
        sde = self.restorer.sde
        self.run((candidate.label, make_plan(sde, Solver(**candidate.options()))) for candidate in candidates)
        self.process.barrier()

    def losses(self, metric: str) -> dict[Candidate, dict[str, float]]:
        """A metric of all candidates on record, by image ('task/name'), with the sign that makes lower better."""
        found = values_of(read_records(self.folder).values(), metric)
        sign = METRICS[metric].sign
        return {candidate: {image: sign * x for image, x in values.items()} for candidate, values in found.items()}

    def cost(self, candidates: Sequence[Candidate]) -> str:
        """The work of measuring candidates, and the time it takes."""
        item = self.tasks[0].items[0]
        assert item.lq is not None
        lq = read_image(item.lq)[None].to(self.restorer.device)
        pixels = to_uint8(lq[0].cpu())
        restorations = self.images * len(candidates)
        evaluations = self.images * sum(candidate.nfe for candidate in candidates)
        seconds = evaluations * evaluation_seconds(self.restorer, lq)
        seconds += restorations * mean_seconds(lambda: self.score(pixels, 255 - pixels))
        return (
            f"{restorations} restorations, {evaluations} evaluations: about {seconds / 60:.0f} minutes in all with one "
            "process"
        )


@contextmanager
def open_benches(
    options: Mapping[Path, Options], data: Path, images: int, size: int, *, bind: bool, without_lpips: str | None = ""
) -> Iterator[list[Bench]]:
    """A bench for each folder and its options, on the middle of a few images of the first options' data.

    images         how many images of each task
    size           side of the crops, which are kept in `data`
    bind           refuse folders of other settings; False writes nothing but the crops
    without_lpips  end of the error message where the weights of LPIPS are missing; None leaves LPIPS out
    """
    first = next(iter(options.values()))
    device = choose_device(first.device)
    with processes(device) as process, ExitStack() as claims:
        tasks = find_data(first)
        scorer, notes = make_scorer(list(METRICS), 0, device)
        if notes and without_lpips is not None:
            raise OptionsError(notes[0] + without_lpips)
        benches = []
        for folder, chosen in options.items():
            restorer = restorer_of(chosen, device)
            if bind:
                if process.is_main:  # another run waits, and then finds the measurements
                    folder.mkdir(parents=True, exist_ok=True)
                    claims.enter_context(claim(folder, wait=None, say=partial(print, file=sys.stderr)))
                    remove_leftovers(folder)
                open_folder(folder, fingerprint(chosen, images, size), process)
            bench = Bench(
                folder=folder,
                tasks=crops(tasks, data, images, size, chosen.seed, process),
                restorer=restorer,
                score=scorer,
                process=process,
                seed=chosen.seed,
            )
            benches.append(bench)
        yield benches


# ---- images


def crops(tasks: Sequence[Task], folder: Path, images: int, size: int, seed: int, process: Process) -> tuple[Task, ...]:
    """The middle of `images` images of every task as files; tasks that share images take different ones."""
    cut = []
    for number, task in enumerate(tasks):
        count = len(task.items)
        items = []
        for item in (task.items[(number * images + j) % count] for j in range(min(images, count))):
            lq = folder / task.name / "LQ" / f"{item.name}.png"
            gt = None if item.gt is None else folder / task.name / "GT" / f"{item.name}.png"
            if process.is_main and not lq.is_file():
                loaded = load_item(task, item, image_seed(seed, task.name, item.name))
                if loaded.lq is None:
                    raise Stopped(loaded.problem, 2)
                if loaded.gt is not None and gt is not None:
                    save_image(middle(loaded.gt, size), gt)
                save_image(middle(to_uint8(loaded.lq.rgb), size), lq)  # last: an LQ image marks a complete pair
            items.append(Item(item.name, lq, gt))
        cut.append(Task(name=task.name, items=tuple(items)))
    process.barrier()
    return tuple(cut)


def with_reference(bench: Bench) -> Bench:
    """The bench with the results of many steps in place of the clean images."""
    bare = replace(bench, tasks=tuple(_with_gt(task, lambda name: None) for task in bench.tasks))
    label = f"reference-nfe{REFERENCE.nfe}"
    bare.run([(label, make_plan(bench.restorer.sde, REFERENCE))])
    bench.process.barrier()
    job = Job(folder=bench.folder, tasks=bare.tasks, plans=(), seed=bench.seed)

    def result(task: Task) -> Callable[[str], Path]:
        return lambda name: job.image_path(task.name, label, name)

    return replace(bench, tasks=tuple(_with_gt(task, result(task)) for task in bench.tasks))


def _with_gt(task: Task, gt: Callable[[str], Path | None]) -> Task:
    return replace(task, items=tuple(Item(item.name, item.lq, gt(item.name)) for item in task.items))


# ---- the folder of the results


def open_folder(folder: Path, settings: Mapping[str, Any], process: Process, option: str = "-o") -> None:
    """Make a folder for results, or refuse one of other settings; `option` is the one that chooses the folder."""
    path = folder / "made-for.json"
    remedy = f"choose another {option}"
    try:
        before = read_json(path)
        if not isinstance(before, dict | None):
            raise Damaged(f"{path}: damaged, no settings")
    except Damaged as error:
        raise OptionsError(f"{error}; what the results there were made with is lost: {remedy}") from None
    process.barrier()  # no process writes before all have read
    if before is None and process.is_main:
        write_json(path, dict(settings))
    elif before is not None:
        changes = difference(before, json.loads(json.dumps(settings)))
        if changes:
            raise made_otherwise(folder, "settings", changes, remedy)
    process.barrier()


def fingerprint(options: Options, images: int, size: int) -> dict[str, Any]:
    """What results depend on, besides the solvers."""
    values = resolved(options)
    path = locate(options.path.pretrain_model_G or "")
    return {
        "weights": digest(path) if path.is_file() else str(path),
        **{key: values[key] for key in ("datasets", "path", "network_G", "seed") if key in values},
        "images": images,
        "size": size,
    }


# ---- speed


def evaluation_seconds(restorer: Restorer, images: Tensor) -> float:
    """Measured seconds of one network evaluation of one image, in a batch (N, 3, H, W)."""
    plan = make_plan(restorer.sde, Solver("mrsampler-pc", 2))

    def restore() -> None:
        restorer.batch(images, plan, [torch.Generator().manual_seed(0) for _ in images]).samples.cpu()

    return mean_seconds(restore) / plan.nfe / len(images)


# Seconds that are measured for the time of one function.
ENOUGH = 1.0


def mean_seconds(function: Callable[[], object]) -> float:
    """The mean time of a call: of as many calls as fit into ENOUGH seconds, after one that warms up.

    The mean and not the best: what else the machine does will slow down the real work as well.
    """
    function()
    calls, start = 0, time.perf_counter()
    while not calls or time.perf_counter() < start + ENOUGH:
        function()
        calls += 1
    return (time.perf_counter() - start) / calls
