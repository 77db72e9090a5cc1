"""The figures of the solver study and of tuning."""

from ..figures import Figure
from . import front, plots

FIGURES = {
    row.name: row
    for row in (
        Figure(
            name="study",
            title="Which solver at which number of evaluations",
            caption="Mean over tasks and images for each network. Lines: all schemes on the uniform lambda grid "
            "without clamp; black rings: the best setting found by LPIPS, over all grids and with clamp. "
            "Right: what clamping and the grids change in LPIPS, on average over the settings that were "
            "measured both ways (below 0 is better).",
            draw=plots.draw,
        ),
        Figure(
            name="front",
            title="Quality against time",
            caption="Every setting that was tried on the given images; the line is the front: settings that no setting "
            "with as few evaluations beats. The ring is the choice: the cheapest on the front that is not "
            "measurably worse than the best one.",
            draw=front.draw,
        ),
    )
}
