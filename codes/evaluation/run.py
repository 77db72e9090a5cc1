"""The test run: restore the images of all tasks with all solvers, and score them.

Threads read, save and score while the network computes. Processes divide the work by image. The records say what is
done, so a run that was stopped or killed resumes where it left off, even with another number of processes.
"""

import errno
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from ..config import Options
from ..data.images import ImageError, decode_picture, encode_image, to_uint8
from ..data.pairs import Item, image_seed
from ..data.resizing import shrunk
from ..data.sets import Loaded, Task, load_item
from ..metrics import Scorer
from ..restoration.restorer import Restorer
from ..restoration.tiling import BYTES_PER_PIXEL
from ..runtime.device import moved
from ..runtime.distributed import Process
from ..runtime.files import digest, set_aside, write_atomically
from ..runtime.output import one_line
from ..runtime.problems import FileError, check_regular, explain
from ..runtime.signals import stop_on_signal
from ..solvers import NonFiniteError, StepInfo
from .binding import opened
from .inputs import Inputs, read_inputs
from .job import THUMBNAIL, Job, Outcome, Result, image_path, make_job, together
from .records import Key, Record, RecordFile, drop_records, input_record, mend_records, read_records
from .summary import score_again, summarise

log = logging.getLogger(__name__)

Score = Callable[[NDArray[np.uint8], NDArray[np.uint8] | None], dict[str, float | None]]

# Batches' worth of images that are kept until a batch of one size is full.
WAITING = 4

# Errors of the operating system that concern the name of one file, not the folder it is written to.
_OF_ITS_NAME = (errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL)


class RunError(Exception):
    """Stops a run; the message names the image."""


@dataclass(frozen=True)
class Finished:
    """How a test run ended; only the main process has the table."""

    job: Job
    outcome: Outcome
    table: str = ""


def test_run(
    options: Options,
    tasks: Sequence[Task],
    restorer: Restorer,
    scorer: Scorer,
    process: Process,
    *,
    names: Sequence[str] | None = None,
    notes: Sequence[str] = (),
    fresh: bool = False,
    score_only: bool = False,
    relabel: bool = False,
) -> Finished:
    """Open the run's folder, restore and score what is missing there, and write the summary, with `notes` in it.

    Every process calls this. `names` are the metrics of the summary, by default those of the options. The last three
    arguments are those of `binding.opened`.
    """
    how = {"fresh": fresh, "score_only": score_only, "relabel": relabel}
    with opened(options, tasks, restorer, process, **how) as folder:
        job = make_job(options, tasks, restorer, folder)
        inputs = read_inputs(job.folder, scorer) if process.is_main else Inputs()
        if score_only:
            outcome = Outcome(problems={task.name: list(task.problems) for task in job.tasks})
            if process.is_main:
                mend(job)
                score_again(job, scorer)
        else:
            outcome = run(job, restorer, scorer, process, process.gather(inputs)[0].known)
        outcome = together(process.gather(outcome))
        if not process.is_main:
            return Finished(job, outcome)
        if outcome.failure:
            print(outcome.failure, file=sys.stderr)
        names = options.metrics.names if names is None else names
        try:
            table = summarise(job, scorer, names, inputs, outcome, notes, restorer.device)
        except OSError as error:
            table, problem = "", explain(error, job.folder)
            if not outcome.failure:
                print(problem, file=sys.stderr)
            outcome.failure = outcome.failure or problem
        return Finished(job, outcome, table)


def run(
    job: Job, restorer: Restorer, score: Score, process: Process, scored: Collection[tuple[str, str]] = ()
) -> Outcome:
    """Restore all images without a record. Every process calls this and does its share.

    scored   inputs, as (task, name), whose own scores are known
    """
    outcome = Outcome(problems={task.name: list(task.problems) for task in job.tasks})
    if process.is_main:
        for problem in (line for task in job.tasks for line in task.problems):
            tqdm.write(one_line(f"left out: {problem}"))
        mend(job)
    process.barrier()
    done = finished(job)
    process.barrier()  # no process writes before all have read
    quiet = None if process.is_main else True  # None: silent unless the output is a terminal
    with (
        stop_on_signal() as stop,
        closing(RecordFile(job.folder / f"records.{process.rank}.jsonl")) as records,
        ThreadPoolExecutor(job.workers, "read") as readers,
        # One torch thread each: a second team of OpenMP threads would compete with the network for the cores.
        ThreadPoolExecutor(2, "finish", initializer=torch.set_num_threads, initargs=(1,)) as finishers,
        tqdm(total=job.total, initial=len(done), unit="image", desc="restored", disable=quiet) as bar,
        tqdm(total=0, unit="step", desc="steps", leave=False, disable=quiet) as steps,
    ):
        means = RunningMeans()

        def finish(result: Result) -> None:
            try:
                metrics = save_result(job, result, score, records, outcome)
            except OSError as error:
                if error.errno not in _OF_ITS_NAME:
                    raise
                leave_out(
                    outcome,
                    result.task,
                    f"{result.loaded.item.lq or result.loaded.item.gt}: its result cannot be written: {error.strerror}",
                )
                return
            bar.set_postfix_str(means.add(result.label, metrics), refresh=False)
            bar.update(min(process.world, job.total - bar.n))  # assume that the other processes progress alike

        pending: deque[Future[None]] = deque()
        try:
            read: set[str] = set()  # items whose inputs have been scored
            for result in restorations(job, done, restorer, process, readers, outcome, stop, steps):
                if (item := f"{result.task.name}/{result.loaded.item.name}") not in read:
                    read.add(item)
                    known = (result.task.name, result.loaded.item.name) in scored
                    pending.append(finishers.submit(save_input, job, result, None if known else score, outcome))
                pending.append(finishers.submit(finish, result))
                while len(pending) > 4 * max(job.batch_size, 2):  # limits memory, and reports a full disk early
                    pending.popleft().result()
            while pending:
                pending.popleft().result()
        except RunError as error:
            outcome.failure = one_line(str(error))
        except OSError as error:
            outcome.failure = explain(error, job.folder)
        finally:
            # After a failure, still save finished images if possible; report only the first error.
            wait(pending)
        outcome.interrupted = stop.is_set()
    return outcome


def restorations(
    job: Job,
    done: set[Key],
    restorer: Restorer,
    process: Process,
    readers: ThreadPoolExecutor,
    outcome: Outcome,
    stop: threading.Event,
    steps: "tqdm[NoReturn]",
) -> Iterator[Result]:
    """Restore the images of this process, batch by batch and solver by solver, until `stop` is set."""

    def count(info: StepInfo) -> None:
        steps.update()

    # Where memory ends, a GPU raises an error; a CPU's system may end the process.
    bytes_per_pixel = BYTES_PER_PIXEL if restorer.device.type == "cpu" else 0
    before = 0
    for task in job.tasks:
        items = open_items(job, task, done)
        # Take turns across tasks, so that tasks with a single image are divided too.
        mine = items[(process.rank - before) % process.world :: process.world]
        before += len(items)
        for batch in batches(job, task, mine, readers, outcome, stop, bytes_per_pixel):
            too_large: set[str] = set()
            for label, plan in job.plans:
                todo = [loaded for loaded in batch if (task.name, label, loaded.item.name) not in done]
                todo = [loaded for loaded in todo if loaded.item.name not in too_large]
                if stop.is_set() or not todo:
                    continue
                steps.reset(total=plan.nfe)
                start = time.perf_counter()
                lq = moved(torch.stack([loaded.lq.rgb for loaded in todo if loaded.lq is not None]), restorer.device)
                generators = [torch.Generator().manual_seed(loaded.seed) for loaded in todo]
                try:
                    restored = restorer.batch(lq, plan, generators, callback=count)
                except NonFiniteError as error:
                    names = ", ".join(f"{task.name}/{todo[i].item.name}" for i in error.images)
                    raise RunError(f"{names} with {label}: {error}") from error
                except (MemoryError, RuntimeError) as error:
                    if not is_out_of_memory(error):
                        raise
                    too_large |= {loaded.item.name for loaded in todo}
                    for loaded in todo:
                        height, width = lq.shape[-2:]
                        where = loaded.item.lq or loaded.item.gt
                        leave_out(outcome, task, f"{where}: {width}x{height} pixels do not fit into memory")
                    continue
                images = restored.samples.cpu()  # waits for the GPU, so that the time is right
                seconds = (time.perf_counter() - start) / len(todo)
                for loaded, image in zip(todo, images, strict=True):
                    yield Result(
                        task=task,
                        label=label,
                        loaded=loaded,
                        image=image,
                        nfe=restored.nfe,
                        tile=restored.tile,
                        seconds=seconds,
                    )


def save_result(
    job: Job, result: Result, score: Score, records: RecordFile, outcome: Outcome
) -> dict[str, float | None]:
    """Save the image and score it; then write its record."""
    loaded = result.loaded
    assert loaded.lq is not None
    pixels = to_uint8(result.image)
    task, name = result.task.name, loaded.item.name
    file = encode_image(pixels, ".png", loaded.lq.alpha)
    write_atomically(job.image_path(task, result.label, name), file)
    metrics = score(pixels, loaded.gt)
    record = Record(
        task=task,
        solver=result.label,
        name=name,
        nfe=result.nfe,
        seed=loaded.seed,
        seconds=round(result.seconds, 4),
        tile=result.tile,
        metrics=metrics,
        border=job.border,
        image=digest(file),
        lq=loaded.sources.lq,
        gt=loaded.sources.gt,
        made=job.made,
        options=job.solvers.get(result.label, {}),
    )
    records.add(record)
    if on_sheet(job, result.task, name):
        outcome.thumbnails[record.key] = shrunk(pixels, THUMBNAIL)
    return metrics


def save_input(job: Job, result: Result, score: Score | None, outcome: Outcome) -> None:
    """Score the degraded image and keep thumbnails, so that the summary does not read the files again."""
    loaded, task = result.loaded, result.task.name
    assert loaded.lq is not None
    pixels, name = to_uint8(loaded.lq.rgb), loaded.item.name
    scores = score(pixels, loaded.gt) if score is not None else {}
    if scores:
        outcome.inputs.append(input_record(task, name, loaded.seed, scores))
    if on_sheet(job, result.task, name):
        outcome.thumbnails[task, "LQ", name] = shrunk(pixels, THUMBNAIL)
        if loaded.gt is not None:
            outcome.thumbnails[task, "GT", name] = shrunk(loaded.gt, THUMBNAIL)


def on_sheet(job: Job, task: Task, name: str) -> bool:
    """Whether the contact sheet shows this image: it shows the first ones of each task."""
    return name in [item.name for item in task.items[: job.sheet_images]]


def mend(job: Job) -> None:
    """Take back the records of images that are missing or damaged, and say so; they are restored again."""
    mend_records(job.folder)
    records = list(read_records(job.folder).values())
    with ThreadPoolExecutor(job.workers, "check") as threads:
        harms = threads.map(lambda record: harm_of(image_path(job.folder, *record.key), record.image), records)
        broken = {record.key: harm for record, harm in zip(records, harms, strict=True) if harm}
    labels = {label for label, _ in job.plans}
    for key, harm in broken.items():
        remedy = "restored again" if key[1] in labels else f"a run with {key[1]} restores it again"
        path = image_path(job.folder, *key)
        log.warning("%s: %s; %s", path, harm, remedy)
        # What no file can replace. Not `path.is_dir()`, which raises for a name that is too long.
        if os.path.isdir(path) and not path.is_symlink():  # noqa: PTH112
            set_aside(path)
    if broken:
        drop_records(job.folder, set(broken))


def harm_of(path: Path, checksum: str) -> str:
    """What is wrong with a restored image; '' if it is whole. Records of earlier versions have no checksum."""
    try:
        check_regular(path)
        content = path.read_bytes()
        if not checksum:
            decode_picture(content, str(path))
    except FileNotFoundError:
        return "missing"
    except FileError as error:
        return str(error).removeprefix(f"{path}: ")
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    except ImageError:
        return "damaged"
    return "" if checksum in ("", digest(content)) else "damaged or changed"


def finished(job: Job) -> set[Key]:
    """Keys of the images that have a record."""
    return read_records(job.folder).keys() & job.keys


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory is used up; torch has no type of its own for that on a CPU."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(error)


def leave_out(outcome: Outcome, task: Task, problem: str) -> None:
    """Say that an image is left out, and go on."""
    if problem not in outcome.problems[task.name]:
        outcome.problems[task.name].append(problem)
        tqdm.write(one_line(f"left out: {problem}"))


def open_items(job: Job, task: Task, done: set[Key]) -> list[Item]:
    """The images of a task that at least one solver has not restored yet."""
    return [item for item in task.items if any((task.name, label, item.name) not in done for label, _ in job.plans)]


def batches(
    job: Job,
    task: Task,
    items: Sequence[Item],
    readers: ThreadPoolExecutor,
    outcome: Outcome,
    stop: threading.Event,
    bytes_per_pixel: float,
) -> Iterator[list[Loaded]]:
    """Read images ahead, and batch those of equal size; at most WAITING batches of images wait for others like them."""
    mine = iter(items)
    load = partial(load_item, task, bytes_per_pixel=bytes_per_pixel)
    ahead: deque[Future[Loaded]] = deque()

    def read_ahead() -> None:
        for item in islice(mine, max(0, 2 * job.batch_size + 1 - len(ahead))):
            ahead.append(readers.submit(load, item, image_seed(job.seed, task.name, item.name)))

    waiting: dict[torch.Size, list[Loaded]] = {}
    read_ahead()
    while ahead and not stop.is_set():
        loaded = ahead.popleft().result()
        read_ahead()
        if loaded.problem:
            leave_out(outcome, task, loaded.problem)
            continue
        assert loaded.lq is not None
        shape = loaded.lq.rgb.shape
        waiting.setdefault(shape, []).append(loaded)
        if len(waiting[shape]) == job.batch_size:
            yield waiting.pop(shape)
        elif sum(map(len, waiting.values())) >= WAITING * job.batch_size:
            yield waiting.pop(max(waiting, key=lambda size: len(waiting[size])))
    while waiting and not stop.is_set():
        yield waiting.pop(next(iter(waiting)))


class RunningMeans:
    """Running mean PSNR of each solver, for the progress bar."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: dict[str, tuple[int, float]] = {}

    def add(self, label: str, metrics: dict[str, float | None]) -> str:
        """Add one image; returns the means as text."""
        value = metrics.get("psnr")
        with self._lock:
            if value is not None and np.isfinite(value):
                count, total = self._sums.get(label, (0, 0.0))
                self._sums[label] = count + 1, total + value
            shown = [f"{name} {total / count:.2f} dB" for name, (count, total) in self._sums.items()]
        return ", ".join(shown[:3]) + (" ..." if len(shown) > 3 else "")
