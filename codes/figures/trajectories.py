"""Paths of samplers through the space of images, projected on a plane: the paper's figure 3."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .style import Array, Image, as_image, canvas, lines_of, save, show


@dataclass(frozen=True)
class Trajectory:
    """A run: the start and the state after each step, (steps + 1, H, W, 3); half precision is enough to draw."""

    method: str
    nfe: int
    states: NDArray[np.float16]


@dataclass(frozen=True)
class Pair:
    """The degraded image that all runs restore, and the clean one."""

    lq: Image
    gt: Image


def principal_plane(states: Array) -> tuple[Array, Array]:
    """(mean, basis) of the plane of largest variance: states (n, D), basis (2, D) with orthonormal rows.

    The sign of each row makes its largest entry positive, so that the picture does not depend on the SVD library.
    """
    mean = states.mean(axis=0)
    _, _, basis = np.linalg.svd(states - mean, full_matrices=False)
    basis = basis[:2]
    signs = np.sign(basis[np.arange(2), np.abs(basis).argmax(axis=1)])
    return mean, basis * signs[:, None]


def project(states: Array, plane: tuple[Array, Array]) -> Array:
    """Coordinates (n, 2) in the plane."""
    mean, basis = plane
    return np.asarray((states - mean) @ basis.T)


def explained(states: Array, plane: tuple[Array, Array]) -> float:
    """The share of the states' variance that the plane shows."""
    return float((project(states, plane) ** 2).sum() / ((states - plane[0]) ** 2).sum())


def draw(trajectories: Sequence[Trajectory], images: Sequence[Pair], stem: Path, shown: int = 5) -> tuple[Path, Path]:
    """Draw the paths in the plane of largest variance (left) and `shown` states of each run (right).

    `images` holds the one pair that all runs share.
    """
    (pair,) = images
    lq, gt = pair.lq, pair.gt
    flat = [run.states.reshape(len(run.states), -1).astype(np.float64) for run in trajectories]
    truth = (gt.astype(np.float64) / 255).reshape(1, -1)
    plane = principal_plane(np.concatenate([*flat, truth]))
    share = explained(np.concatenate(flat), plane)
    lines = lines_of([run.method for run in trajectories])
    rows = len(trajectories)
    with canvas(10.5, max(4.2, 1.08 * rows + 0.3)) as figure:
        grid = figure.add_gridspec(rows, shown + 2, width_ratios=[0.95 * (shown + 1), *[1] * (shown + 1)])
        axis = figure.add_subplot(grid[:, 0])
        for run, states in zip(trajectories, flat, strict=True):
            path = project(states, plane)
            many = len(path) > 30
            look = lines[run.method].arguments() | ({"marker": "", "linestyle": ":"} if many else {})
            axis.plot(*path.T, **look, label=f"{run.method} ({run.nfe})", alpha=0.9)
            axis.plot(*path[-1], lines[run.method].marker, color=lines[run.method].color, markersize=9, mec="black")
        axis.plot(*project(flat[0][:1], plane)[0], "o", color="white", mec="black", markersize=10, zorder=5)
        axis.annotate("start", project(flat[0][:1], plane)[0], (7, 7), textcoords="offset points")
        mark = project((lq.astype(np.float64) / 255).reshape(1, -1), plane)[0]
        axis.plot(*mark, "kx", markersize=8, mew=2, zorder=5)
        axis.annotate("degraded", mark, (7, -11), textcoords="offset points")
        mark = project(truth, plane)[0]
        axis.plot(*mark, "k*", markersize=14, zorder=6)
        axis.annotate("clean", mark, (0, 14), textcoords="offset points", fontweight="bold", ha="center", zorder=7)
        axis.set(xlabel="first principal component", ylabel="second principal component")
        axis.set_title(f"the plane shows {100 * share:.0f} % of the variance; NFE in brackets", loc="left")
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.09), ncols=2)
        cells = np.array([[figure.add_subplot(grid[i, j + 1]) for j in range(shown + 1)] for i in range(rows)])
        for row, run in zip(cells, trajectories, strict=True):
            steps = np.linspace(0, len(run.states) - 1, shown).round().astype(int)
            for cell, step in zip(row, steps, strict=False):
                show(cell, as_image(run.states[step].astype(np.float32)), f"step {step}")
            row[0].set_ylabel(f"{run.method.replace(', ', ',' + chr(10))}\n({run.nfe})", fontsize=8)
        for cell in cells[2:, -1]:
            cell.set_axis_off()
        show(cells[0, -1], gt, "clean")
        if rows > 1:
            show(cells[1, -1], lq, "degraded")
        return save(figure, stem, dpi=110, few_colours=True)
