"""What is measured of a network on clean photos and degraded copies: the careful rule, and what bf16 changes."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..data.degradations import tensor_degradation
from ..data.images import from_uint8, read_image, to_uint8
from ..data.pairs import image_seed
from ..data.resizing import middle, scaled
from ..data.varied import tensor_pair
from ..metrics.pixel import psnr
from ..names import TASKS
from ..networks.auto_precision import Bf16Change
from ..networks.recommended import NONE, CarefulRule
from .restorer import Restorer, decibels

# A clean photo counts as left alone from this PSNR to itself on.
KEPT = 40.0
# Asked of a rule: this share of clean photos is left alone, and the ten tasks lose at most so many dB on average.
SHARE, MOST_LOST = 0.95, 0.1
# PSNRs above this many dB count as this, so that no single photo decides.
LIMIT = 50.0
# Weights that are tried; the bias is searched for each pair.
NONE_WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
CHANGE_WEIGHTS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
BIASES = 200

Kind = Literal["clean", "task", "varied"]
_DEGRADED: tuple[tuple[Kind, str], ...] = tuple((kind, task) for kind in get_args(Kind)[1:] for task in TASKS)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A photo that was restored at full strength; the errors are mean squares.

    kind      clean, degraded as in test sets, or degraded in any way and strength
    none      recognised probability of no degradation
    before    |degraded - clean|^2
    change    |restored - degraded|^2
    towards   (restored - degraded) (clean - degraded): the share of the change that leads towards the clean photo
    """

    kind: Kind
    task: str
    none: float
    before: float
    change: float
    towards: float


@dataclass(frozen=True)
class Outcome:
    """What a rule does on the trials: shares of clean photos left alone, and PSNR against full strength in dB."""

    kept: float
    tasks: float
    varied: float

    @property
    def good(self) -> bool:
        """Whether both goals are met."""
        return self.kept >= SHARE and self.tasks >= -MOST_LOST

    def __str__(self) -> str:
        return (
            f"{100 * self.kept:.0f} % of the clean photos at {KEPT:.0f} dB or more to themselves; against full "
            f"strength {self.tasks:+.2f} dB on the ten tasks, {self.varied:+.2f} dB on varied degradations"
        )


def photos_for(paths: Sequence[Path], size: int) -> Iterator[tuple[str, Tensor]]:
    """Names and square crops of photos: every other photo is shrunk first, so that the crop shows most of it."""
    for number, path in enumerate(paths):
        pixels = to_uint8(read_image(path))
        if number % 2:
            pixels = scaled(pixels, size / min(pixels.shape[:2]))
        yield path.stem, from_uint8(middle(pixels, size))


def measure(
    restorer: Restorer, photos: Iterable[tuple[str, Tensor]], seed: int = 0, progress: Callable[[], Any] = lambda: None
) -> list[Trial]:
    """Restore each photo as it is, and degraded: for each task once as in test sets and once in a varied way."""
    trials = []
    for name, photo in photos:
        cases: tuple[tuple[Kind, str], ...] = (("clean", NONE), *_DEGRADED)
        for kind, task in cases:
            rng = np.random.default_rng(image_seed(seed, f"{kind}/{task}", name))
            clean, degraded = photo, photo
            if kind == "task":
                degraded = tensor_degradation(task)(photo, rng)
            elif kind == "varied":
                clean, degraded, _ = tensor_pair(task)(photo, rng)
            degraded = from_uint8(to_uint8(degraded))  # as a file would hold it
            restoration = restorer.sample(degraded, 1, seed=seed, strength=1)
            change, wanted = (restoration.sample - degraded).double(), (clean - degraded).double()
            trials.append(
                Trial(
                    kind=kind,
                    task=task,
                    none=(restoration.recognised or {}).get(NONE, 0.5),
                    before=float(wanted.square().mean()),
                    change=float(change.square().mean()),
                    towards=float((change * wanted).mean()),
                )
            )
            progress()
    return trials


def bf16_changes(
    restorer: Restorer,
    photos: Iterable[tuple[str, Tensor]],
    lpips: Callable[[NDArray[np.uint8], NDArray[np.uint8]], Any],
    seed: int = 0,
    progress: Callable[[], Any] = lambda: None,
) -> dict[str, Bf16Change]:
    """What bf16 changes in the restorations of photos with the restorer's own solver, on average for each task."""
    restorers = [replace(restorer, precision=precision) for precision in ("fp32", "bf16")]
    changes: dict[str, list[Bf16Change]] = {task: [] for task in TASKS}
    for name, photo in photos:
        clean = to_uint8(photo)
        for task in TASKS:
            rng = np.random.default_rng(image_seed(seed, f"task/{task}", name))
            degraded = from_uint8(to_uint8(tensor_degradation(task)(photo, rng)))
            scores = []
            for each in restorers:
                restored = to_uint8(each(degraded, seed=seed))
                scores.append((min(psnr(restored, clean), LIMIT), float(np.mean(lpips(restored, clean)))))
            exact, half = scores
            changes[task].append(Bf16Change(half[0] - exact[0], half[1] - exact[1]))
            progress()
    return {task: mean_change(found) for task, found in changes.items()}


def mean_change(changes: Sequence[Bf16Change]) -> Bf16Change:
    """The average, to five digits."""
    mean = [sum(values) / len(changes) for values in zip(*((c.psnr, c.lpips) for c in changes), strict=True)]
    return Bf16Change(*(round(value, 5) for value in mean))


def outcome(rule: CarefulRule, trials: Sequence[Trial]) -> Outcome:
    """What a rule does on trials."""
    columns = _columns(trials)
    strengths = np.array([rule.strength(trial.none, decibels(trial.change)) for trial in trials])
    return _outcome(columns, strengths)


def choose(trials: Sequence[Trial]) -> tuple[CarefulRule, Outcome]:
    """The best rule and what it does: of those that meet both goals the one with the highest PSNR on degraded photos.

    If none meets both, degraded photos come first: the rule that leaves the most clean photos alone.
    """
    columns = _columns(trials)
    best: tuple[tuple[bool, float, float], CarefulRule, Outcome] | None = None
    for none, change in itertools.product(NONE_WEIGHTS, CHANGE_WEIGHTS):
        if none == change == 0:
            continue
        # Scores from which the strength is 1 (at the least) and 0 (at the greatest) for every trial.
        rule = CarefulRule(bias=0.0, none=none, change=change)
        scores = np.array([rule.score(trial.none, decibels(trial.change)) for trial in trials])
        for bias in np.linspace(-scores.max(), 1 - scores.min(), BIASES):
            found = _outcome(columns, np.clip(scores + bias, 0, 1))
            if found.tasks < -MOST_LOST:
                continue
            quality = (found.tasks + found.varied) / 2
            rank = (found.good, 0.0 if found.good else found.kept, quality)
            if best is None or rank > best[0]:
                best = rank, replace(rule, bias=round(float(bias), 4)), found
    assert best is not None  # full strength loses nothing
    return best[1], outcome(best[1], trials)


@dataclass(frozen=True, kw_only=True)
class _Columns:
    clean: NDArray[np.bool_]
    task: NDArray[np.bool_]
    before: NDArray[np.float64]
    change: NDArray[np.float64]
    towards: NDArray[np.float64]


def _columns(trials: Sequence[Trial]) -> _Columns:
    kinds = np.array([trial.kind for trial in trials])
    numbers = {key: np.array([getattr(trial, key) for trial in trials]) for key in ("before", "change", "towards")}
    return _Columns(clean=kinds == "clean", task=kinds == "task", **numbers)


def _outcome(columns: _Columns, strengths: NDArray[np.float64]) -> Outcome:
    clean, task = columns.clean, columns.task
    kept = _psnr(strengths**2 * columns.change)[clean] >= KEPT
    gained = _psnr(_error(columns, strengths)) - _psnr(_error(columns, np.ones_like(strengths)))
    return Outcome(*(float(np.mean(part)) for part in (kept, gained[task], gained[~clean & ~task])))


def _error(columns: _Columns, strengths: NDArray[np.float64]) -> NDArray[np.float64]:
    """|degraded + s (restored - degraded) - clean|^2."""
    return np.asarray(columns.before - 2 * strengths * columns.towards + strengths**2 * columns.change)


def _psnr(error: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(-10 * np.log10(np.maximum(error, 10 ** (-LIMIT / 10))))
