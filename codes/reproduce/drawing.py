"""The figures of the report, drawn from the cells and from a few restorations with stored trajectories."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..figures import FIGURES
from ..figures.comparison import ComparisonRow
from ..figures.convergence import ConvergenceRun
from ..figures.curves import CurvePoint
from ..figures.stability import Gain
from ..figures.stored import read_items
from ..figures.style import Image
from ..figures.trajectories import Trajectory
from ..names import TASKS
from .catalogue import TABLE_OF_TASK, known_nfes
from .published import published
from .results import METRICS, Results

DATA = "figure-data"
NAMES = ("curves", "comparison", "trajectories", "convergence", "stability")
# Tasks of the figures; trajectories and convergence are on those of the paper.
TRAJECTORY_TASK, CONVERGENCE_TASK = "motion-blurry", "low-light"
COMPARISON_TASKS = ("rainy", "low-light", "motion-blurry", "uncompleted")
# Network evaluations that each figure takes.
EVALUATIONS = {"comparison": 130 * len(COMPARISON_TASKS), "trajectories": 150, "convergence": 255}
# What a figure is drawn from, as stored.
_ITEMS: dict[str, type[Any]] = {
    "comparison": ComparisonRow,
    "trajectories": Trajectory,
    "convergence": ConvergenceRun,
    "stability": Gain,
}

_LEGEND = {
    "posterior-official": "Posterior",
    "euler-official": "Euler",
    "mr-1": "MR Sampler-1",
    "mr-2": "MR Sampler-2",
    "posterior": "Posterior, correct strides",
    "euler": "Euler, correct strides",
    "pc": "mrsampler-pc",
}


@dataclass(frozen=True)
class Pair:
    """A degraded and its clean image."""

    lq: Image
    gt: Image


def curve_points(results: Results) -> list[CurvePoint]:
    """Every cell of the task tables; with the paper's own model its numbers too."""
    points = []
    for task in TASKS:
        for method, name in _LEGEND.items():
            for nfe in known_nfes(method):
                cell = results.cell(task, method, nfe)
                if cell is not None:
                    points.append(CurvePoint(task, name, nfe, dict(cell.metrics)))
        if results.same_model:
            for record in published()[TABLE_OF_TASK[task]].records():
                values: dict[str, float | None] = {name: float(record[name.upper()]) for name in METRICS}
                points.append(CurvePoint(task, record["method"], record["nfe"], values, published=True))
    return points


def _curves(results: Results, stem: Path) -> list[Path]:
    """LPIPS of all tasks, and FID of those that have it; in one picture where all have."""
    points = curve_points(results)
    known = {point.task for point in points if point.values.get("fid") is not None and not point.published}
    if known == {point.task for point in points}:
        return [FIGURES["curves"].draw(points, stem)[0]]
    pictures = [FIGURES["curves"].draw(points, stem, ["lpips"])[0]]
    if known:
        chosen = [point for point in points if point.task in known]
        pictures.append(FIGURES["curves"].draw(chosen, stem.with_name(f"{stem.name}-fid"), ["fid"])[0])
    return pictures


def draw(results: Results, root: Path, out: Path, names: Sequence[str]) -> list[tuple[str, str, Path]]:
    """Draw what can be drawn from the cells and from the data below `root`; (name, caption, PNG file) of each picture.

    Without their data, pictures of an earlier drawing are kept.
    """
    data = root / DATA
    found = []
    for name in (name for name in NAMES if name in names):
        stem = out / "figures" / name
        if name == "curves" and results.cells:
            pictures = _curves(results, stem)
        elif (data / f"{name}.npz").is_file():
            items: list[Any] = [read_items(data / f"{name}.npz", _ITEMS[name])]
            if name == "trajectories":
                (pair,) = read_items(data / "trajectories-images.npz", Pair)
                items += [pair.lq, pair.gt]
            pictures = [FIGURES[name].draw(*items, stem)[0]]
        else:
            pictures = sorted((out / "figures").glob(f"{name}*.png"))
        caption = f"{FIGURES[name].title}. {FIGURES[name].caption}"
        found += [
            (picture.stem, caption if i == 0 else "The same for FID.", picture) for i, picture in enumerate(pictures)
        ]
    return found
