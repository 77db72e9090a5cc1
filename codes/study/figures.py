"""The figures of the solver study and of tuning."""

from ..figures import Figure
from . import front, plots

FIGURES = {
    row.name: row
    for row in (
        Figure(
            name="study",
            title="Which solver at which number of evaluations, for networks with known and unknown errors",
            caption="LPIPS to the clean image, mean over images with its standard error, predictions clamped. Trained "
            "networks first. The others know the images they restore: *fields* are Gaussian fields, *patches* a finite "
            "set of images; *white*, *brightness* and *late* have an error of the prediction. Dashed: an exact sample "
            "of the images that the degraded one may come from, which a perfect solver of an exact network gives.",
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
