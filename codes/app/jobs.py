"""Jobs of the web page, without widgets: photos restored or solvers compared, reported step by step, cancellable."""

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

from ..data.images import ImageError, Picture, to_uint8
from ..data.resizing import shrunk
from ..metrics import Scorer
from ..restoration.meter import Pace
from ..restoration.restorer import Restoration, Restorer
from ..solvers import NonFiniteError, StepInfo
from .choice import Choice, WorkError, chosen_solver, solver_words

Image = NDArray[np.uint8]
Scores = dict[str, float | None]
T = TypeVar("T")
R = TypeVar("R")

THUMBNAIL = 128
MAX_THUMBNAILS = 12


class Cancelled(Exception):
    """The user cancelled the job."""


@dataclass(frozen=True)
class Photo:
    """A photo to restore: its name, the pixels that will be computed, and how to read it (and its reference)."""

    name: str
    pixels: int
    read: Callable[[], tuple[Picture, Picture | None]]


@dataclass(frozen=True, kw_only=True)
class Step:
    """Progress: `done` of `total` (any unit), with a text; `strip` holds the images so far, with captions."""

    done: float
    total: float
    text: str
    strip: tuple[tuple[str, Image], ...] = ()
    photo: int = 0  # the one in work


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A finished restoration. `scores`: for each image compared with the reference, its metrics."""

    photo: int
    picture: Picture
    restoration: Restoration
    solver: str  # its settings in words
    seconds: float
    scores: dict[str, Scores]
    strip: tuple[tuple[str, Image], ...]


@dataclass(frozen=True)
class Failed:
    """A photo that could not be restored, and why."""

    photo: int
    reason: str


@dataclass(frozen=True)
class Cell:
    """One restoration of a comparison."""

    image: Image
    nfe: int
    seconds: float
    scores: Scores


@dataclass(frozen=True, kw_only=True)
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
    """The latest job of each user, so that users stop only their own. Single operations on a dict need no lock."""

    def __init__(self) -> None:
        self._stops: dict[str, threading.Event] = {}

    def start(self, user: str) -> threading.Event:
        """A new job, which stops an earlier one of this user; returns the event that stops it."""
        self.stop(user)
        self._stops[user] = threading.Event()
        return self._stops[user]

    def stop(self, user: str) -> None:
        """Stop the job of a user, running or not yet."""
        self._stops.setdefault(user, threading.Event()).set()

    def stopped(self, user: str) -> bool:
        """Whether the user's latest job was stopped, or has ended."""
        return user in self._stops and self._stops[user].is_set()

    def forget(self, user: str) -> None:
        """Drop a user's job before the next one, or when the page is gone; stops it if it runs."""
        if (found := self._stops.pop(user, None)) is not None:
            found.set()

    def stop_all(self) -> None:
        """Stop everything."""
        for user in list(self._stops):
            self.stop(user)


# ---- the jobs


def restore_all(
    restorer: Restorer,
    photos: Sequence[Photo],
    choice: Choice,
    scorer: Scorer,
    report: Callable[[Step | Finished | Failed], None],
) -> None:
    """Restore photos one after the other, reporting each step, result and failure; a failure stops no other photo."""
    pace = Pace(sum(photo.pixels for photo in photos))
    for number, photo in enumerate(photos):

        def on_step(share: float, text: str, strip: tuple[tuple[str, Image], ...], number: int = number) -> None:
            pace.advance(share)
            texts = [f"photo {number + 1} of {len(photos)}"] if len(photos) > 1 else []
            text = ", ".join(filter(None, [*texts, text, pace.left_in_words]))
            now = pace.done + share * pace.size
            report(Step(done=now, total=pace.total, text=text, strip=strip, photo=number))

        pace.begin(photo.pixels)
        worked = False
        try:
            on_step(0, "reading", ())
            with readable_errors():
                picture, reference = photo.read()
                finished = restore(restorer, picture, reference, choice, scorer, on_step, number)
            worked = True
            report(finished)
        except (ImageError, WorkError) as error:
            report(Failed(number, str(error)))
        pace.end(worked)


def restore(
    restorer: Restorer,
    picture: Picture,
    reference: Picture | None,
    choice: Choice,
    scorer: Scorer,
    report: Callable[[float, str, tuple[tuple[str, Image], ...]], None],
    number: int = 0,
) -> Finished:
    """Restore a picture; reports share, text and the thumbnails of the first sample after each step."""
    degraded = to_uint8(picture.rgb)
    strip = [("input", shrunk(degraded, THUMBNAIL))]
    kept = kept_steps(choice.nfe)

    def on_step(info: StepInfo) -> None:
        is_image = info.x.shape[1] == 3  # not a latent
        if info.step <= choice.nfe and info.step in kept and is_image:
            strip.append((f"step {info.step}", shrunk(to_uint8(info.x[0]), THUMBNAIL)))
        texts.append(step_text(info, choice.samples))
        report(info.step / info.steps, texts[-1], tuple(strip))

    def on_progress(share: float) -> None:
        steps = share * choice.nfe * choice.samples
        if abs(steps - round(steps)) > 1e-6:  # within an evaluation, of a photo in tiles
            report(share, texts[-1], tuple(strip))

    texts = ["starting"]
    report(0, texts[-1], tuple(strip))
    start = time.perf_counter()
    solver = chosen_solver(restorer, choice)
    restoration = restorer.sample(
        picture.rgb,
        choice.samples,
        seed=choice.seed,
        algorithm=solver,
        strength=choice.strength,
        callback=on_step,
        progress=on_progress,
    )
    seconds = time.perf_counter() - start
    scores = {}
    if reference is not None:
        clean = to_uint8(reference.rgb)
        compared = {"input": degraded, "restored": to_uint8(restoration.sample)}
        if choice.samples > 1:
            compared[f"mean of {choice.samples}"] = to_uint8(restoration.mean)
        scores = {name: scorer(value, clean) for name, value in compared.items()}
    return Finished(
        photo=number,
        picture=picture,
        restoration=restoration,
        solver=", ".join([solver.algorithm, *solver_words(solver)]),
        seconds=seconds,
        scores=scores,
        strip=tuple(strip),
    )


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
    choices: Sequence[Choice],
    scorer: Scorer,
    report: Callable[[Compared], None],
) -> Compared:
    """Restore a picture with each solver at each number of evaluations, always at full strength from the same noise."""
    clean = None if reference is None else to_uint8(reference.rgb)
    state = Compared(
        solvers=tuple(dict.fromkeys(choice.solver for choice in choices)),
        nfes=tuple(sorted({choice.nfe for choice in choices})),
        degraded=to_uint8(picture.rgb),
        reference=clean,
        total=sum(choice.nfe for choice in choices),
    )
    report(replace(state, text="starting"))
    pace = Pace(state.total)
    for choice in choices:
        pace.begin(choice.nfe)
        done, label = state.done, f"{choice.solver} at {choice.nfe}"

        def on_step(info: StepInfo, state: Compared = state, done: int = done, label: str = label) -> None:
            pace.advance(info.step / info.steps)
            text = ", ".join(filter(None, [f"{label}: step {info.step} of {info.steps}", pace.left_in_words]))
            report(replace(state, done=done + info.step, text=text))

        cell: Cell | str
        start = time.perf_counter()
        try:
            with readable_errors():
                solver = chosen_solver(restorer, choice)
                found = restorer.sample(
                    picture.rgb, 1, seed=choice.seed, algorithm=solver, strength=1, callback=on_step
                )
        except WorkError as error:
            cell = str(error)  # if one solver fails, the others still run
        else:
            seconds = time.perf_counter() - start
            image = to_uint8(found.sample)
            cell = Cell(image, found.nfe, seconds, {} if clean is None else scorer(image, clean))
        pace.end(isinstance(cell, Cell))
        state = replace(
            state, cells=state.cells | {(choice.solver, choice.nfe): cell}, done=done + choice.nfe, text=label
        )
        report(state)
    return state


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
