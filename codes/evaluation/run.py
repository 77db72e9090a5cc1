"""The evaluation: restore the images of some tasks with some solvers, score them, and tell how it went.

Reading, saving and scoring happen in threads beside the network. The work is split by image; what is done is known
from ..runtime.signals import stop_on_signal
from the records, so a run that was stopped, killed or started with another number of processes goes on where it was.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NoReturn, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from ..data.degradations import Degrade, enlarged
from ..data.images import ImageError, Picture, encode_image, read_picture, to_uint8
from ..data.pairs import Item, image_seed
from ..runtime.distributed import Process
from ..runtime.files import write_atomically
from ..runtime.signals import stop_on_signal
from ..solvers import NonFiniteError, Plan, StepInfo
from .records import Key, Record, RecordFile, read_records

Score = Callable[[NDArray[np.uint8], NDArray[np.uint8]], dict[str, float | None]]


@dataclass(frozen=True)
class Task:
    """A set of images of one kind. `degrade` makes the degraded image where the items have none."""

    name: str
    items: tuple[Item, ...]
    problems: tuple[str, ...] = ()  # images that were found but cannot be used
    degrade: Degrade | None = None
    enlarge: int = 1  # super-resolution: degraded images are smaller by this factor


@dataclass(frozen=True)
class Restored:
    """What a restorer returns: images (B, 3, H, W), the network calls it took, the tile side if any.

    `states` are, on request, the images on the way: the start, and one after each step.
    """

    images: Tensor
    nfe: int
    tile: int | None = None
    states: tuple[Tensor, ...] = ()


class Restorer(Protocol):
    """Restores a batch of equally large images; image i draws its noise from generators[i]."""

    def __call__(
        self,
        lq: Tensor,
        plan: Plan,
        generators: Sequence[torch.Generator],
        callback: Callable[[StepInfo], None] | None = None,
    ) -> Restored: ...


@dataclass(frozen=True)
class Job:
    """All that a run does."""

    folder: Path
    tasks: tuple[Task, ...]
    plans: tuple[tuple[str, Plan], ...]  # by label
    seed: int = 0
    batch_size: int = 1

    @property
    def total(self) -> int:
        """Images to restore, over all solvers."""
        return len(self.plans) * sum(len(task.items) for task in self.tasks)

    def image_path(self, task: str, label: str, name: str) -> Path:
        """Where a restored image is kept."""
        return self.folder / task / label / f"{name}.png"


@dataclass(frozen=True)
class Loaded:
    """An item's pictures, or the reason why it is left out."""

    item: Item
    seed: int
    lq: Picture | None = None
    gt: NDArray[np.uint8] | None = None
    problem: str = ""


@dataclass
class Outcome:
    """How a run ended: images that were left out, by task, and whether it was interrupted or failed."""

    problems: dict[str, list[str]] = field(default_factory=dict)
    interrupted: bool = False
    failure: str = ""

    @property
    def exit_code(self) -> int:
        """0 only if every image came out."""
        if self.interrupted:
            return 130
        return 1 if self.failure or any(self.problems.values()) else 0


def together(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of all processes: what any of them had to leave out, and whether any failed."""
    problems: dict[str, list[str]] = {}
    for outcome in outcomes:
        for task, lines in outcome.problems.items():
            known = problems.setdefault(task, [])
            known += [line for line in lines if line not in known]
    failures = [outcome.failure for outcome in outcomes if outcome.failure]
    return Outcome(problems, any(outcome.interrupted for outcome in outcomes), "\n".join(dict.fromkeys(failures)))


def load_item(task: Task, item: Item, seed: int) -> Loaded:
    """Read an item's images; never raises, a bad file is the item's problem alone."""
    try:
        gt = None if item.gt is None else read_picture(item.gt)
        if item.lq is not None:
            lq = read_picture(item.lq)
            if task.enlarge > 1:
                lq = Picture(enlarged(lq.rgb, task.enlarge))
        else:
            assert gt is not None and task.degrade is not None
            lq = Picture(task.degrade(gt.rgb, np.random.default_rng(seed)))
    except ImageError as error:
        return Loaded(item, seed, problem=str(error))
    if gt is not None and gt.rgb.shape != lq.rgb.shape:
        sizes = " and ".join(f"{picture.rgb.shape[2]}x{picture.rgb.shape[1]}" for picture in (lq, gt))
        return Loaded(item, seed, problem=f"{item.lq}: degraded and clean image differ in size, {sizes}")
    return Loaded(item, seed, lq, None if gt is None else to_uint8(gt.rgb))


def run(job: Job, restore: Restorer, score: Score, process: Process, device: torch.device) -> Outcome:
    """Restore what has no record yet. Every process calls this and does its share."""
    outcome = Outcome({task.name: list(task.problems) for task in job.tasks})
    done = finished(job)
    process.barrier()  # nobody writes before everybody has read
    quiet = None if process.is_main else True  # None: silent where the output is not a terminal
    with (
        stop_on_signal() as stop,
        closing(RecordFile(job.folder / f"records.{process.rank}.jsonl")) as records,
        ThreadPoolExecutor(2, "read") as readers,
        # One thread for torch in there: a second team of OpenMP threads would fight the network's for the cores.
        ThreadPoolExecutor(2, "finish", initializer=torch.set_num_threads, initargs=(1,)) as finishers,
        tqdm(total=job.total, initial=len(done), unit="image", desc="restored", disable=quiet) as bar,
        tqdm(total=0, unit="step", desc="steps", leave=False, disable=quiet) as steps,
    ):
        means = RunningMeans()

        def finish(result: Result) -> None:
            metrics = save_result(job, result, score, records)
            bar.set_postfix_str(means.add(result.label, metrics), refresh=False)
            bar.update(min(process.world, job.total - bar.n))  # the other processes are about as far

        pending: deque[Future[None]] = deque()
        try:
            for result in restorations(job, done, restore, process, device, readers, outcome, stop, steps):
                pending.append(finishers.submit(finish, result))
                while len(pending) > 4 * max(job.batch_size, 2):  # bounds memory, and reports a full disk soon
                    pending.popleft().result()
            while pending:
                pending.popleft().result()
        except RunError as error:
            outcome.failure = str(error)
        except OSError as error:
            outcome.failure = f"{error.filename or job.folder}: cannot be written: {error.strerror or error}"
        finally:
            # After a failure what is computed is still saved where that is possible; one error is enough to report.
            wait(pending)
        outcome.interrupted = stop.is_set()
    return outcome


@dataclass(frozen=True)
class Result:
    """One restored image on its way to disk."""

    task: Task
    label: str
    loaded: Loaded
    image: Tensor
    nfe: int
    tile: int | None
    seconds: float


class RunError(Exception):
    """Stops a run; the message names the image."""


def restorations(
    job: Job,
    done: set[Key],
    restore: Restorer,
    process: Process,
    device: torch.device,
    readers: ThreadPoolExecutor,
    outcome: Outcome,
    stop: threading.Event,
    steps: "tqdm[NoReturn]",
) -> Iterator[Result]:
    """The images of this process, restored one batch and solver after the other, until `stop` is set."""

    def count(info: StepInfo) -> None:
        steps.update()

    before = 0
    for task in job.tasks:
        items = open_items(job, task, done)
        # In turn over all tasks, so that tasks of one image each are shared too.
        mine = items[(process.rank - before) % process.world :: process.world]
        before += len(items)
        for batch in batches(job, task, mine, readers, outcome, stop):
            for label, plan in job.plans:
                todo = [loaded for loaded in batch if (task.name, label, loaded.item.name) not in done]
                if stop.is_set() or not todo:
                    continue
                steps.reset(total=plan.nfe)
                start = time.perf_counter()
                lq = torch.stack([loaded.lq.rgb for loaded in todo if loaded.lq is not None]).to(device)
                generators = [torch.Generator().manual_seed(loaded.seed) for loaded in todo]
                try:
                    restored = restore(lq, plan, generators, count)
                except NonFiniteError as error:
                    names = ", ".join(f"{task.name}/{todo[i].item.name}" for i in error.images)
                    raise RunError(f"{names} with {label}: {error}") from error
                images = restored.images.cpu()  # waits for a GPU, so the time is right
                seconds = (time.perf_counter() - start) / len(todo)
                for loaded, image in zip(todo, images, strict=True):
                    yield Result(task, label, loaded, image, restored.nfe, restored.tile, seconds)


def save_result(job: Job, result: Result, score: Score, records: RecordFile) -> dict[str, float | None]:
    """Save the image, score what was saved, and only then record it."""
    loaded = result.loaded
    assert loaded.lq is not None
    pixels = to_uint8(result.image)
    task, name = result.task.name, loaded.item.name
    write_atomically(job.image_path(task, result.label, name), encode_image(pixels, ".png", loaded.lq.alpha))
    metrics = {} if loaded.gt is None else score(pixels, loaded.gt)
    seconds = round(result.seconds, 4)
    records.add(Record(task, result.label, name, result.nfe, loaded.seed, seconds, result.tile, metrics))
    return metrics


def finished(job: Job) -> set[Key]:
    """What has a record and still its image."""
    wanted = {(task.name, label, item.name) for task in job.tasks for label, _ in job.plans for item in task.items}
    return {key for key in read_records(job.folder) if key in wanted and job.image_path(*key).is_file()}


def open_items(job: Job, task: Task, done: set[Key]) -> list[Item]:
    """The images of a task that some solver has still to restore."""
    return [item for item in task.items if any((task.name, label, item.name) not in done for label, _ in job.plans)]


def batches(
    job: Job,
    task: Task,
    items: Sequence[Item],
    readers: ThreadPoolExecutor,
    outcome: Outcome,
    stop: threading.Event,
) -> Iterator[list[Loaded]]:
    """Images of a task, read ahead, in batches of neighbours of equal size."""
    mine = iter(items)
    ahead: deque[Future[Loaded]] = deque()

    def read_ahead() -> None:
        for item in islice(mine, max(0, 2 * job.batch_size + 1 - len(ahead))):
            ahead.append(readers.submit(load_item, task, item, image_seed(job.seed, task.name, item.name)))

    batch: list[Loaded] = []
    read_ahead()
    while ahead and not stop.is_set():
        loaded = ahead.popleft().result()
        read_ahead()
        if loaded.problem:
            outcome.problems[task.name].append(loaded.problem)
            tqdm.write(f"left out: {loaded.problem}")
            continue
        assert loaded.lq is not None
        if batch and (len(batch) == job.batch_size or batch[0].lq.rgb.shape != loaded.lq.rgb.shape):  # type: ignore[union-attr]
            yield batch
            batch = []
        batch.append(loaded)
    if batch and not stop.is_set():
        yield batch


class RunningMeans:
    """The averages so far of one metric, by solver, for the progress bar."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: dict[str, tuple[int, float]] = {}

    def add(self, label: str, metrics: dict[str, float | None]) -> str:
        """Count one image in; returns the averages as text."""
        value = metrics.get("psnr")
        with self._lock:
            if value is not None and np.isfinite(value):
                count, total = self._sums.get(label, (0, 0.0))
                self._sums[label] = count + 1, total + value
            shown = [f"{name} {total / count:.2f} dB" for name, (count, total) in self._sums.items()]
        return ", ".join(shown[:3]) + (" ..." if len(shown) > 3 else "")
