"""Trying solvers on a few images: the part of tuning and of the solver study that computes.

Everything goes through the evaluation's own runner, so that what was computed is kept and several processes share it.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from ..config import Options, OptionsError, difference, resolved
from ..data.images import read_image, save_image, to_uint8
from ..data.pairs import Item, image_seed
from ..data.sets import Task, load_item
from ..evaluation.job import Job, together
from ..evaluation.records import Record, read_records
from ..evaluation.run import Score, run
from ..restoration.restorer import Restorer
from ..runtime.distributed import Process
from ..runtime.files import write_atomically
from ..runtime.paths import locate
from ..sde import MeanRevertingSDE
from ..solvers import Plan, Solver, make_plan
from .candidates import Candidate, Losses, parse, search

# Many steps of the ODE: its result depends on the start alone, so that other solvers can be compared with it.
REFERENCE = Solver("mrsampler-pc", 100, tau=0.0)


class Stopped(Exception):
    """A run that did not come to its end; `code` is the exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Bench:
    """A network with images to try solvers on, and where the results are kept."""

    folder: Path
    tasks: tuple[Task, ...]
    restorer: Restorer
    sde: MeanRevertingSDE
    score: Score
    device: torch.device
    process: Process
    seed: int = 0

    @property
    def images(self) -> int:
        """How many there are."""
        return sum(len(task.items) for task in self.tasks)

    def run(self, plans: Iterable[tuple[str, Plan]]) -> None:
        """Restore all images with these plans, as far as that was not done before."""
        job = Job(folder=self.folder, tasks=self.tasks, plans=tuple(plans), seed=self.seed, sheet_images=0)
        outcome = together(self.process.gather(run(job, self.restorer, self.score, self.process)))
        if outcome.interrupted:
            raise Stopped(f"interrupted; the same command goes on from {self.folder}", 130)
        problems = [line for lines in outcome.problems.values() for line in lines]
        if outcome.failure or problems:
            raise Stopped("\n".join([*problems, *filter(None, [outcome.failure])]), 1)

    def try_out(self, candidates: Sequence[Candidate]) -> None:
        """`run` for candidates."""
        self.run((candidate.label, make_plan(self.sde, Solver(**candidate.options()))) for candidate in candidates)

    def losses(self, metric: str, lower_is_better: bool) -> dict[Candidate, dict[str, float]]:
        """What is on record, by candidate and image."""
        return losses(read_records(self.folder).values(), metric, lower_is_better)


def losses(records: Iterable[Record], metric: str, lower_is_better: bool) -> dict[Candidate, dict[str, float]]:
    """A metric of all candidates, by image ('task/name'), with the sign that makes lower better."""
    found: dict[Candidate, dict[str, float]] = {}
    for record in records:
        candidate, value = parse(record.solver), record.metrics.get(metric)
        if candidate is not None and value is not None:
            found.setdefault(candidate, {})[f"{record.task}/{record.name}"] = value if lower_is_better else -value
    return found


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
                pixels = to_uint8(loaded.lq.rgb)
                rows, columns = (slice((side - size) // 2, (side + size) // 2) if side > size else slice(None)
                                 for side in pixels.shape[:2])  # fmt: skip
                if loaded.gt is not None and gt is not None:
                    save_image(loaded.gt[rows, columns], gt)
                save_image(pixels[rows, columns], lq)  # last: what has its LQ image is complete
            items.append(Item(item.name, lq, gt))
        cut.append(Task(name=task.name, items=tuple(items)))
    process.barrier()
    return tuple(cut)


def with_reference(bench: Bench) -> Bench:
    """The bench with the results of many steps in place of the clean images."""
    bare = replace(bench, tasks=tuple(_with_gt(task, lambda name: None) for task in bench.tasks))
    label = f"reference-nfe{REFERENCE.nfe}"
    bare.run([(label, make_plan(bench.sde, REFERENCE))])
    bench.process.barrier()
    job = Job(folder=bench.folder, tasks=bare.tasks, plans=(), seed=bench.seed)

    def result(task: Task) -> Callable[[str], Path]:
        return lambda name: job.image_path(task.name, label, name)

    return replace(bench, tasks=tuple(_with_gt(task, result(task)) for task in bench.tasks))


def _with_gt(task: Task, gt: Callable[[str], Path | None]) -> Task:
    return replace(task, items=tuple(Item(item.name, item.lq, gt(item.name)) for item in task.items))


def claim(folder: Path, facts: Mapping[str, Any], process: Process, option: str = "-o") -> None:
    """Make the folder, or refuse one that was made for something else; `option` names another folder."""
    path = folder / "made-for.json"
    if path.is_file():
        changes = difference(json.loads(path.read_text()), json.loads(json.dumps(facts)))
        if changes:
            raise OptionsError(
                f"{folder}: was made with other settings, going on would mix results; choose another {option}\n"
                + "\n".join(f"  {change}" for change in changes)
            )
    elif process.is_main:
        write_atomically(path, (json.dumps(facts, indent=1) + "\n").encode())
    process.barrier()


def facts_of(options: Options, images: int, size: int) -> dict[str, Any]:
    """What results depend on, beside the candidates."""
    values = resolved(options)
    path = locate(options.path.pretrain_model_G or "")
    return {
        "weights": hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else str(path),
        **{key: values[key] for key in ("datasets", "path", "network_G", "seed") if key in values},
        "images": images,
        "size": size,
    }


@dataclass(frozen=True)
class Cost:
    """What a search takes."""

    restorations: int
    evaluations: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.restorations} restorations, {self.evaluations} evaluations: "
            f"about {self.seconds / 60:.0f} minutes in all with one process"
        )


def cost(bench: Bench, candidates: Sequence[Candidate]) -> Cost:
    """An estimate, from one restoration and scoring of the first image."""
    item = bench.tasks[0].items[0]
    assert item.lq is not None
    lq = read_image(item.lq)[None].to(bench.device)
    plan = make_plan(bench.sde, Solver("mrsampler-pc", 2))
    seconds = []
    for _ in range(2):  # the first one warms up
        start = time.perf_counter()
        restored = bench.restorer.batch(lq, plan, [torch.Generator().manual_seed(0)])
        middle = time.perf_counter()
        bench.score(to_uint8(restored.samples[0]), to_uint8(lq[0]))
        seconds.append(((middle - start) / plan.nfe, time.perf_counter() - middle))
    evaluation, scoring = seconds[-1]
    restorations = bench.images * len(candidates)
    evaluations = bench.images * sum(candidate.nfe for candidate in candidates)
    return Cost(restorations, evaluations, evaluations * evaluation + restorations * scoring)


def complete(found: Mapping[Candidate, Losses], images: int) -> dict[Candidate, Losses]:
    """Those candidates that have been tried on all images."""
    return {candidate: values for candidate, values in found.items() if len(values) == images}


def pooled_values(bench: Bench, candidates: Sequence[Candidate]) -> dict[str, dict[str, float]]:
    """FID and KID of candidates over the images of all tasks together, by label; features are kept with the run."""
    from .. import metrics as m
    from ..evaluation.summary import set_features

    try:
        inception = m.InceptionFeatures().to(bench.device)
    except m.MissingWeights:
        return {}
    job = Job(folder=bench.folder, tasks=bench.tasks, plans=(), seed=bench.seed)

    def features(label: str) -> Any:
        parts = []
        for task in bench.tasks:
            clean = {item.name: item.gt for item in task.items if item.gt is not None}
            paths = clean if label == "GT" else {name: job.image_path(task.name, label, name) for name in clean}
            parts.append(set_features(job, task, label, paths, inception))
        return np.concatenate(parts)

    clean = features("GT")
    values = {}
    for candidate in tqdm(candidates, desc="FID features", unit="set", disable=None, leave=False):
        ours = features(candidate.label)
        values[candidate.label] = {"fid": m.fid(ours, clean), "kid": m.kid(ours, clean)}
    return values


def simulated_search(networks: int, nfes: Sequence[int], **choices: Any) -> list[Candidate]:
    """About the candidates that `search` would try, found with made-up losses: to know what it costs."""
    rng = np.random.default_rng(0)

    def measure(candidates: Sequence[Candidate]) -> list[dict[Candidate, float]]:
        return [{candidate: float(rng.random()) for candidate in candidates} for _ in range(networks)]

    return search(measure, nfes, **choices)
