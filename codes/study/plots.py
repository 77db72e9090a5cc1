"""The solver study: schemes against evaluations for each network, and what grids and clamping change."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..figures.style import BLACK, GREEN, ORANGE, PURPLE, SKY, VERMILION, canvas, save, whole_numbers
from ..rows import METRICS
from .candidates import PAPER, Candidate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Means = Mapping[Candidate, float]
_COLORS = {"order1": (SKY, "^"), "order2": (GREEN, "s"), "pc": (VERMILION, "D")}
_STYLES = {0.0: ":", 0.3: "--", 1.0: "-"}
_NAMES = {"order1": "order 1", "order2": "order 2", "pc": "pc"}
_EFFECTS = {
    "clamp - no clamp": (BLACK, "o", "-"),
    "linspace - uniform lambda": (ORANGE, "v", "--"),
    "sinh - uniform lambda": (PURPLE, "P", "-."),
}


def draw(
    lpips: Mapping[str, Means],
    psnr: Mapping[str, Means],
    best: Mapping[int, Candidate],
    effects: Mapping[str, Mapping[int, float]],
    stem: Path,
) -> tuple[Path, Path]:
    """`lpips` and `psnr` by network and candidate; `best` by NFE; `effects` by name of `_EFFECTS` and NFE."""
    networks = list(lpips)
    with canvas(3.3 * (len(networks) + 1), 6.2) as figure:
        axes = figure.subplots(2, len(networks) + 1, squeeze=False)
        axis_labels = f"{METRICS['lpips'].label} (lower is better)", METRICS["psnr"].axis_label
        for row, (label, values) in enumerate(zip(axis_labels, (lpips, psnr), strict=True)):
            for axis, network in zip(axes[row], networks, strict=False):
                _lines(axis, values[network], best)
                axis.set_title(network if row == 0 else "", fontweight="bold")
                axis.set_xlabel("NFE" if row else "")
            axes[row, 0].set_ylabel(label)
        _changes(axes[0, -1], effects)
        axes[1, -1].set_axis_off()
        handles, labels = axes[0, 0].get_legend_handles_labels()
        axes[1, -1].legend(handles, labels, loc="center", ncols=1, title="uniform lambda grid, no clamp")
        return save(figure, stem, dpi=110)


def _lines(axis: "Axes", values: Means, best: Mapping[int, Candidate]) -> None:
    plain = [c for c in values if not c.clamp and c.grid == "linear-lambda"]
    nfes = sorted({c.nfe for c in values})
    for scheme, (color, marker) in _COLORS.items():
        for tau, style in _STYLES.items():
            points = sorted((c.nfe, values[c]) for c in plain if (c.scheme, c.tau) == (scheme, tau))
            if not points:
                continue
            paper = (scheme, tau) == (PAPER.scheme, PAPER.tau)
            name = f"{_NAMES[scheme]}, tau {tau:g}" + (" (the paper's)" if paper else "")
            axis.plot(
                *zip(*points, strict=True),
                style,
                color=color,
                marker=marker,
                ms=3.5,
                lw=2.4 if paper else 1.1,
                label=name,
            )
    rings = [(nfe, values[c]) for nfe, c in sorted(best.items()) if c in values]
    if rings:
        axis.plot(*zip(*rings, strict=True), "o", mfc="none", mec=BLACK, mew=1.4, ms=9, label="best setting found")
    whole_numbers(axis, nfes)
    # Collapsed runs leave the panel: the others are what is to be compared.
    ordered = sorted(values[c] for c in plain)
    quarter, three = ordered[len(ordered) // 4], ordered[3 * len(ordered) // 4]
    reach = 2.5 * (three - quarter) or 0.1 * abs(three)
    ends = [*ordered, *(value for _, value in rings)]
    low, high = max(min(ends), quarter - reach), min(max(ends), three + reach)
    axis.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))


def _changes(axis: "Axes", effects: Mapping[str, Mapping[int, float]]) -> None:
    nfes = set()
    for name, (color, marker, style) in _EFFECTS.items():
        if points := sorted(effects.get(name, {}).items()):
            axis.plot(*zip(*points, strict=True), style, color=color, marker=marker, label=name)
            nfes |= {nfe for nfe, _ in points}
    axis.axhline(0, color=BLACK, lw=0.8)
    axis.set_title("change of LPIPS (mean of networks)", fontweight="bold")
    axis.set_xlabel("NFE")
    if nfes:
        whole_numbers(axis, sorted(nfes))
        axis.legend(loc="best")
