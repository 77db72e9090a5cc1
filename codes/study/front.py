"""The front of quality against evaluations that tuning finds."""

from collections.abc import Mapping
from pathlib import Path

from ..figures.style import BLACK, GREEN, SKY, VERMILION, canvas, save, whole_numbers
from .candidates import Candidate, front

_LOOKS = {"order1": (SKY, "^", "order 1"), "order2": (GREEN, "s", "order 2"), "pc": (VERMILION, "D", "pc")}


def draw(
    scores: Mapping[Candidate, float],
    chosen: Candidate,
    label: str,
    stem: Path,
    *,
    sign: float = 1.0,
    seconds_per_evaluation: float | None = None,
) -> tuple[Path, Path]:
    """All candidates, the front as a line, the chosen one ringed. `scores` are lower for better, times `sign` shown."""
    best = front(scores)
    with canvas(6.6, 4.2) as figure:
        axis = figure.subplots()
        for scheme, (color, marker, name) in _LOOKS.items():
            points = [(c.nfe, sign * score) for c, score in scores.items() if c.scheme == scheme]
            if points:
                axis.plot(*zip(*points, strict=True), marker, color=color, alpha=0.55, label=name, ms=4.5, mew=0)
        axis.plot([c.nfe for c in best], [sign * scores[c] for c in best], "-", color=BLACK, label="front", zorder=3)
        for candidate in best:
            color, marker, _ = _LOOKS[candidate.scheme]
            axis.plot(candidate.nfe, sign * scores[candidate], marker, color=color, mec=BLACK, ms=7, zorder=4)
        axis.plot(chosen.nfe, sign * scores[chosen], "o", mfc="none", mec=BLACK, mew=1.6, ms=16, zorder=5)
        axis.set_title(f"chosen: {chosen.description}, NFE {chosen.nfe}", loc="left", fontweight="bold")
        # A collapsed run would squeeze all others together.
        shown = sorted(sign * score for score in scores.values())
        middle = [sign * scores[c] for c in best]
        margin = 0.15 * (max(middle) - min(middle)) or 0.05 * abs(middle[0])
        quarter, three = shown[len(shown) // 4], shown[3 * len(shown) // 4]
        low, high = max(shown[0], min(quarter, *middle) - margin), min(shown[-1], max(three, *middle) + margin)
        axis.set_ylim(low - 0.04 * (high - low), high + 0.04 * (high - low))
        whole_numbers(axis, sorted({c.nfe for c in scores}))
        axis.set(xlabel="network evaluations (NFE)", ylabel=label)
        if seconds_per_evaluation:
            top = axis.secondary_xaxis("top")
            top.set_xscale("log")
            nfes = sorted({c.nfe for c in best})
            top.minorticks_off()
            top.set_xticks(nfes, [f"{nfe * seconds_per_evaluation:.2g}" for nfe in nfes], fontsize=7.5)
            top.set_xlabel("seconds per image", fontsize=8)
        axis.legend(loc="best")
        return save(figure, stem)
