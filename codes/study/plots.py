"""The solver study: LPIPS against evaluations, a panel for each network."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..evaluation.statistics import Estimate
from ..figures.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, canvas, save, whole_numbers
from ..rows import METRICS
from .candidates import Candidate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curves = Mapping[Candidate, Estimate]
# scheme, tau and grid of the lines that are drawn, and how
_LINES = {
    "order 1, tau 1": (("order1", 1.0, "linear-lambda"), (SKY, "^", "-")),
    "order 1, tau 0": (("order1", 0.0, "linear-lambda"), (BLUE, "v", "--")),
    "order 1, tau 1, grid late": (("order1", 1.0, "late"), (BLACK, "o", ":")),
    "order 2, tau 1 (the paper's)": (("order2", 1.0, "linear-lambda"), (GREEN, "s", "-")),
    "order 2, tau 0": (("order2", 0.0, "linear-lambda"), (ORANGE, "P", "--")),
    "pc, tau 0.3": (("pc", 0.3, "linear-lambda"), (VERMILION, "D", "-")),
}
_COLUMNS = 4


def draw(curves: Mapping[str, Curves], exact: Mapping[str, float], stem: Path) -> tuple[Path, Path]:
    """`curves` by network; `exact` is the LPIPS of exact samples, of the networks that have any."""
    networks = list(curves)
    columns = min(_COLUMNS, len(networks))
    rows = -(-len(networks) // columns)
    with canvas(3.0 * columns, 2.5 * rows + 0.7) as figure:
        axes = figure.subplots(rows, columns, squeeze=False)
        for axis in axes.flat[len(networks) :]:
            axis.set_axis_off()
        for axis, network in zip(axes.flat, networks, strict=False):
            _panel(axis, curves[network], exact.get(network))
            axis.set_title(network, fontweight="bold")
            axis.set_xlabel("NFE")
        for row in axes:
            row[0].set_ylabel(f"{METRICS['lpips'].label} (lower is better)")
        handles = {
            label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4)
        return save(figure, stem, dpi=110)


def _panel(axis: "Axes", curves: Curves, exact: float | None) -> None:
    from matplotlib.ticker import NullLocator

    first = [(1, value.mean, value.error) for candidate, value in curves.items() if candidate.nfe == 1]
    shown: list[float] = []
    for label, (setting, (color, marker, style)) in _LINES.items():
        points = [
            (c.nfe, value.mean, value.error)
            for c, value in curves.items()
            if (c.scheme, c.tau, c.grid) == setting and c.nfe > 1
        ]
        if not points:
            continue
        # With one evaluation all solvers are the same.
        nfes, means, errors = zip(*sorted([*first, *points]), strict=True)
        axis.errorbar(
            nfes,
            means,
            errors,
            color=color,
            marker=marker,
            linestyle=style,
            ms=3.5,
            lw=1.2,
            elinewidth=0.7,
            label=label,
        )
        shown += means
    if exact is not None:
        axis.axhline(exact, color=PURPLE, linestyle="--", lw=1, label="exact sample")
        shown.append(exact)
    whole_numbers(axis, sorted({c.nfe for c in curves}))
    if shown and max(shown) > 4 * min(shown):  # what collapses must not hide what does not
        axis.set_yscale("log")
        ends = max(min(shown) * 0.9, 1e-6), max(shown) * 1.1
        ticks = [t for t in (0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0) if ends[0] <= t <= ends[1]]
        axis.yaxis.set_minor_locator(NullLocator())
        axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.set_ylim(*ends)
