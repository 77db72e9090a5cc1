"""Jobs of the web page, without widgets: one restoration or a comparison, reported step by step, cancellable."""

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from ..data.images import Picture, to_uint8
from ..data.resizing import shrunk
from ..metrics import Scorer
from ..restoration.restorer import Restoration, Restorer
from ..solvers import SOLVERS, NonFiniteError, Solver, StepInfo

log = logging.getLogger(__name__)

Image = NDArray[np.uint8]
Scores = dict[str, float | None]
T = TypeVar("T")
R = TypeVar("R")

# Solvers on offer: those of the option files, with the loaded file's settings, and the paper's ODE family.
ODE = "mrsampler (ODE)"
CHOICES = (*SOLVERS, ODE)
MAX_NFE = 100
MAX_SAMPLES = 16
MAX_CELLS = 24
COMPARED_NFES = (1, 2, 4, 6, 8, 12, 16, 24, 32, 50)
THUMBNAIL = 128
MAX_THUMBNAILS = 12


class Cancelled(Exception):
    """The user cancelled the job."""


class WorkError(Exception):
    """The job cannot be done; the message is shown to the user."""


@dataclass(frozen=True)
class Choice:
    """Solver settings chosen on the page. Values come from the browser and are validated."""

    solver: str
    nfe: int
    seed: int = 0
    samples: int = 1

    def __post_init__(self) -> None:
        if self.solver not in CHOICES:
            raise WorkError(f"unknown solver {str(self.solver)[:40]!r} (choices: {', '.join(CHOICES)})")
        for name, low, high in (
            ("nfe", 1, MAX_NFE),
            ("seed", 0, 2**31 - 1),
            ("samples", 1, MAX_SAMPLES),
        ):
            object.__setattr__(self, name, _whole(name, getattr(self, name), low, high))


def _whole(name: str, value: object, low: int, high: int) -> int:
    label = {"nfe": "evaluations (NFE)"}.get(name, name)
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if math.isinf(number) or math.isnan(number) or number != int(number):
        raise WorkError(f"{label}: expected a whole number from {low} to {high}, got {str(value)[:40]!r}")
    if not low <= number <= high:
        raise WorkError(f"{label}: expected from {low} to {high}, got {str(int(number))[:40]}")
    return int(number)


def default_choice(restorer: Restorer) -> Choice:
    """Solver and number of evaluations that the page starts with: the option file's, or the defaults."""
    solver = restorer.solver()
    return Choice(solver.algorithm, min(solver.nfe, MAX_NFE))


def chosen_solver(restorer: Restorer, choice: Choice) -> Solver:
    """The chosen solver, with the option file's settings for it."""
    if choice.solver == ODE:
        plain = restorer.solver("mrsampler", choice.nfe)
        return replace(plain, solver_type="ode", tau=None)
    return restorer.solver(choice.solver, choice.nfe)  # Choice has validated the name


@dataclass(frozen=True)
class Step:
    """Progress of a restoration; `strip` holds the images so far, with captions."""

    done: int
    total: int
    text: str
    strip: tuple[tuple[str, Image], ...] = ()


@dataclass(frozen=True)
class Finished:
    """A finished restoration. `scores`: for each image compared with the reference, its metrics."""

    image: Image
    restoration: Restoration
    seconds: float
    scores: dict[str, Scores]
    strip: tuple[tuple[str, Image], ...]


@dataclass(frozen=True)
class Cell:
    """One restoration of a comparison."""

    image: Image
    nfe: int
    seconds: float
    scores: Scores


@dataclass(frozen=True)
class Compared:
    """A comparison so far. `cells` by (solver, evaluations): a restoration, or why it failed."""

    solvers: tuple[str, ...]
    nfes: tuple[int, ...]
    degraded: Image
    reference: Image | None
    cells: dict[tuple[str, int], Cell | str] = field(default_factory=dict)
    done: int = 0
    total: int = 1
    text: str = ""


# ---- running


def stepwise(executor: Executor, work: Callable[[Callable[[T], None]], R], stop: threading.Event) -> Iterator[T | R]:
    """Run `work(report)` in the executor; yield what it reports, then its result.

    Setting `stop` or closing this iterator cancels the work: its next call of `report` raises Cancelled. The iterator
    itself raises Cancelled at once, without waiting for the current step.
    """
    reported: queue.SimpleQueue[T] = queue.SimpleQueue()

    def report(value: T) -> None:
        if stop.is_set():
            raise Cancelled
        reported.put(value)

    def started() -> R:
        if stop.is_set():
            raise Cancelled
        return work(report)

    future = executor.submit(started)
    try:
        while not (future.done() and reported.empty()):
            if stop.is_set():
                raise Cancelled
            try:
                yield reported.get(timeout=0.05)
            except queue.Empty:
                continue
        yield future.result()
    finally:
        stop.set()


class Jobs:
    """Running jobs by user, so that users can stop only their own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stops: dict[str, set[threading.Event]] = {}
        self._stopped: set[str] = set()

    def start(self, user: str) -> threading.Event:
        """Register a new job; returns the event that stops it."""
        stop = threading.Event()
        with self._lock:
            self._stops.setdefault(user, set()).add(stop)
        return stop

    def end(self, user: str, stop: threading.Event) -> None:
        """Unregister a job, however it ended."""
        stop.set()
        with self._lock:
            self._stops.get(user, set()).discard(stop)
            if not self._stops.get(user):
                self._stops.pop(user, None)

    def stop(self, user: str | None = None) -> int:
        """Stop all jobs of a user, or of everybody; returns their number."""
        with self._lock:
            found = [stop for name, stops in self._stops.items() if user in (None, name) for stop in stops]
            self._stopped |= set() if user is None else {user}
        for stop in found:
            stop.set()
        return len(found)

    def was_stopped(self, user: str) -> bool:
        """Whether the user has stopped a job since the last call."""
        with self._lock:
            found = user in self._stopped
            self._stopped.discard(user)
        return found


# ---- the jobs


def restore(
    restorer: Restorer,
    picture: Picture,
    reference: Picture | None,
    choice: Choice,
    scorer: Scorer,
    report: Callable[[Step], None],
) -> Finished:
    """Restore a picture; report each step, with thumbnails of the first sample."""
    degraded = to_uint8(picture.rgb)
    strip = [("degraded", shrunk(degraded, THUMBNAIL))]
    kept = kept_steps(choice.nfe)

    def on_step(info: StepInfo) -> None:
        is_image = info.x.shape[1] == 3  # not a latent
        if info.step <= choice.nfe and info.step in kept and is_image:
            strip.append((f"step {info.step}", shrunk(to_uint8(info.x[0]), THUMBNAIL)))
        report(Step(info.step, info.steps, step_text(info, choice.samples), tuple(strip)))

    report(Step(0, choice.nfe * choice.samples, "starting", tuple(strip)))
    start = time.perf_counter()
    with readable_errors():
        solver = chosen_solver(restorer, choice)
        restoration = restorer.sample(picture.rgb, choice.samples, seed=choice.seed, algorithm=solver, callback=on_step)
    seconds = time.perf_counter() - start
    image = to_uint8(restoration.sample)
    scores = {}
    if reference is not None:
        clean = to_uint8(reference.rgb)
        compared = {"degraded": degraded, "restored": image}
        if choice.samples > 1:
            compared[f"mean of {choice.samples}"] = to_uint8(restoration.mean)
        scores = {name: scorer(value, clean) for name, value in compared.items()}
    return Finished(image, restoration, seconds, scores, tuple(strip))


def kept_steps(nfe: int) -> set[int]:
    """The steps shown as thumbnails: all, or as many as fit, evenly spaced and including the last."""
    return set(np.linspace(1, nfe, min(nfe, MAX_THUMBNAILS)).round().astype(int).tolist())


def step_text(info: StepInfo, samples: int) -> str:
    """Progress of a restoration in words."""
    each = info.steps // samples
    within = f"step {(info.step - 1) % each + 1} of {each}"
    return within if samples == 1 else f"sample {(info.step - 1) // each + 1} of {samples}, {within}"


def compare(
    restorer: Restorer,
    picture: Picture,
    reference: Picture | None,
    solvers: Sequence[str],
    nfes: Sequence[int],
    seed: int,
    scorer: Scorer,
    report: Callable[[Compared], None],
) -> Compared:
    """Restore a picture with each solver at each number of evaluations, always from the same noise."""
    choices = check_comparison(solvers, nfes, seed)
    clean = None if reference is None else to_uint8(reference.rgb)
    rows = tuple(dict.fromkeys(choice.solver for choice in choices))
    columns = tuple(sorted({choice.nfe for choice in choices}))
    state = Compared(rows, columns, to_uint8(picture.rgb), clean, total=sum(choice.nfe for choice in choices))
    report(replace(state, text="starting"))
    for choice in choices:
        done, label = state.done, f"{choice.solver} at {choice.nfe}"

        def on_step(info: StepInfo, state: Compared = state, done: int = done, label: str = label) -> None:
            text = f"{label}: step {info.step} of {info.steps}"
            report(replace(state, done=done + info.step, text=text))

        cell: Cell | str
        start = time.perf_counter()
        try:
            with readable_errors():
                solver = chosen_solver(restorer, choice)
                found = restorer.sample(picture.rgb, 1, seed=choice.seed, algorithm=solver, callback=on_step)
        except WorkError as error:
            cell = str(error)  # if one solver fails, the others still run
        else:
            seconds = time.perf_counter() - start
            image = to_uint8(found.sample)
            cell = Cell(image, found.nfe, seconds, {} if clean is None else scorer(image, clean))
        state = replace(
            state, cells=state.cells | {(choice.solver, choice.nfe): cell}, done=done + choice.nfe, text=label
        )
        report(state)
    return state


def check_comparison(solvers: Sequence[str], nfes: Sequence[int], seed: int) -> list[Choice]:
    """The restorations of a comparison, solver by solver; raises WorkError if there are none or too many."""
    if not solvers or not nfes:
        raise WorkError("choose at least one solver and one number of evaluations")
    names = [name for name in CHOICES if name in solvers]
    choices = [Choice(name, nfe, seed) for name in names or solvers for nfe in nfes]
    if len(choices) > MAX_CELLS:
        raise WorkError(f"{len(choices)} restorations are too many at once; choose at most {MAX_CELLS}")
    return choices


class readable_errors:
    """Turn failures of a restoration into a WorkError with a helpful message."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, NonFiniteError):
            raise WorkError(f"this solver fails with these settings: {error}; try more evaluations") from error
        if isinstance(error, torch.OutOfMemoryError | MemoryError):
            raise WorkError("not enough memory for this image; try a smaller one") from error
        if isinstance(error, ValueError):
            raise WorkError(str(error)) from error
