"""The paper's convergence criterion per step, for noise and data prediction: its figures 4 and 5.

The paper estimates a radius of convergence of the Taylor series in lambda, component by component, from its first two
coefficients: |c_0 / c_1| > h counts as convergent. The criterion describes trajectories; it is not a test of
stability, and the figure includes two counterexamples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from .style import BLUE, GREEN, ORANGE, VERMILION, Array, Image, Line, canvas, save, show


@dataclass(frozen=True, kw_only=True)
class ConvergenceRun:
    """One restoration: the ratios at its second to last evaluation, its result and its PSNR."""

    nfe: int
    parameterization: str  # 'data', 'noise'
    solver_type: str  # 'sde', 'ode'
    ratios: Array
    image: Image
    psnr: float
    centred: Array | None = None  # ratios of the same predictions relative to mu

    @property
    def name(self) -> str:
        """Label in the legend."""
        return f"{self.parameterization} prediction, {self.solver_type.upper()}"


_LINES = {
    ("data", "sde"): Line(BLUE, "o"),
    ("noise", "sde"): Line(VERMILION, "D"),
    ("noise", "ode"): Line(ORANGE, "s", "--"),
    ("data", "ode"): Line(GREEN, "^", "--"),
}


def convergence_ratio(predictions: ArrayLike, lambdas: ArrayLike) -> Array:
    """The share of components with |c_0 / c_1| > h at the second to the last evaluation.

    predictions (N, ...) at lambdas[:N]; lambdas has N + 1 entries. c_0 is the prediction, c_1 its difference quotient
    to the one before, and h the step that follows. (The published script divides by that following step instead of
    the one before, which is the same on a uniform grid.)
    """
    m, lambda_ = np.asarray(predictions, np.float64), np.asarray(lambdas, np.float64)
    if len(lambda_) != len(m) + 1:
        raise ValueError(f"{len(m)} predictions need {len(m) + 1} lambdas, got {len(lambda_)}")
    h = np.diff(lambda_).reshape(-1, *[1] * (m.ndim - 1))
    c_1 = np.diff(m, axis=0) / h[:-1]
    return np.asarray((np.abs(m[1:]) > h[1:] * np.abs(c_1)).reshape(len(m) - 1, -1).mean(axis=1))


def draw(runs: Sequence[ConvergenceRun], stem: Path) -> tuple[Path, Path]:
    """Draw a column for every NFE: the ratios above, the results below."""
    nfes = sorted({run.nfe for run in runs})
    kinds = list(dict.fromkeys((run.parameterization, run.solver_type) for run in runs))
    ratios = [2.1, *[1.2] * len(kinds)]
    with canvas(1.1 + 2.2 * len(nfes), 0.9 + 1.12 * sum(ratios)) as figure:
        grid = figure.subplots(1 + len(kinds), len(nfes), squeeze=False, height_ratios=ratios)
        axes, cells = grid[0], grid[1:]
        for column, nfe in enumerate(nfes):
            axis = axes[column]
            for run in (run for run in runs if run.nfe == nfe):
                kind = run.parameterization, run.solver_type
                steps = np.arange(2, nfe + 1)
                look = _LINES[kind].arguments() | {"markevery": max(1, nfe // 12)}
                axis.plot(steps, 100 * run.ratios, **look, label=run.name)
                if run.centred is not None:
                    look |= {"linestyle": ":", "markerfacecolor": "white"}
                    axis.plot(steps, 100 * run.centred, **look, label=f"{run.name}: the same run, relative to mu")
                cell = cells[kinds.index(kind), column]
                show(cell, run.image, below=f"{run.psnr:.1f} dB")
                if column == 0:
                    cell.set_ylabel(run.name.replace(", ", "\n"))
            axis.set(title=f"NFE {nfe}", xlabel="evaluation", ylim=(-4, 104), xlim=(1.5, nfe + 0.5))
            axis.set_xticks(sorted({2, *np.linspace(2, nfe, min(nfe - 1, 5)).round().astype(int)}))
            if column:
                axis.set_yticklabels([])
        axes[0].set_ylabel("components that satisfy\n|c₀ / c₁| > h  [%]")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
        return save(figure, stem, dpi=110, few_colours=True)
