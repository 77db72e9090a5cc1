"""Quality against the number of evaluations, for every task: the paper's figure 2."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..rows import METRICS
from .style import canvas, lines_of, save, whole_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """A method's mean metrics on a task; None for an unknown metric."""

    task: str
    method: str
    nfe: int
    values: dict[str, float | None]
    published: bool = False


def draw(points: Sequence[CurvePoint], stem: Path, metrics: Sequence[str] = ("fid", "lpips")) -> tuple[Path, Path]:
    """Draw a panel for every task and metric with values; published curves are dashed with hollow markers."""
    tasks = list(dict.fromkeys(point.task for point in points))
    known = [name for name in metrics if any(point.values.get(name) is not None for point in points)]
    if not tasks or not known:
        raise ValueError(f"nothing to draw: no values of {', '.join(metrics)}")
    columns = min(len(tasks), 5)
    bands = ceil(len(tasks) / columns)
    lines = lines_of([point.method for point in points])
    width = 1.2 + 2.15 * columns
    entries = len(lines) + any(point.published for point in points)
    legend_columns = max(1, min(entries, 4, int(width / 1.9)))
    with canvas(width, 0.35 + 0.2 * ceil(entries / legend_columns) + 1.8 * bands * len(known)) as figure:
        axes = figure.subplots(bands * len(known), columns, squeeze=False)
        for band in range(bands):
            for row, metric in enumerate(known):
                for column in range(columns):
                    axis = axes[band * len(known) + row, column]
                    if band * columns + column >= len(tasks):
                        axis.set_visible(False)
                        continue
                    task = tasks[band * columns + column]
                    _panel(axis, [point for point in points if point.task == task], metric)
                    axis.set_title(task if row == 0 else "", fontweight="bold")
                    if column == 0:
                        axis.set_ylabel(METRICS[metric].axis_label)
                    if row == len(known) - 1:
                        axis.set_xlabel("NFE")
        handles = [figure.axes[0].plot([], [], label=name, **line.arguments())[0] for name, line in lines.items()]
        if any(point.published for point in points):
            handles += figure.axes[0].plot([], [], "k--", marker="o", mfc="white", lw=1, label="as published (dashed)")
        figure.legend(handles=handles, loc="outside lower center", ncols=legend_columns)
        return save(figure, stem, dpi=110)


def _panel(axis: "Axes", points: Sequence[CurvePoint], metric: str) -> None:
    lines = lines_of([point.method for point in points])
    nfes = set()
    for published in (True, False):
        for name, line in lines.items():
            chosen = sorted(
                (point.nfe, value)
                for point in points
                if (point.method, point.published) == (name, published)
                and (value := point.values.get(metric)) is not None
                and np.isfinite(value)
            )
            if not chosen:
                continue
            look = line.arguments() | {"markersize": 4, "linewidth": 1.4}
            if published:
                look |= {"linestyle": "--", "linewidth": 0.9, "markerfacecolor": "white", "alpha": 0.9}
            axis.plot(*zip(*chosen, strict=True), **look)
            nfes |= {nfe for nfe, _ in chosen}
    whole_numbers(axis, [nfe for nfe in (1, 2, 5, 10, 20, 50, 100) if nfe in nfes] or sorted(nfes))
    if METRICS[metric].logarithmic:
        axis.set_yscale("log")
        _plain_ticks(axis)


def _plain_ticks(axis: "Axes") -> None:
    """Label ticks 0.05 or 300 instead of powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_ylim()
    marks = (1.0, 2.0, 5.0) if high / low < 300 else (1.0,)
    axis.yaxis.set_major_locator(LogLocator(subs=marks, numticks=12))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())
