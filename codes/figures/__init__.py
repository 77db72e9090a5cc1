"""The figures: each is a function of plain numbers and images that writes STEM.png and STEM.svg.

    FIGURES["trajectories"].draw(runs, lq, gt, Path("results/figures/trajectories"))

What they are drawn from is computed by `collect` (the only module here that needs torch) and kept by `stored`, so that
a figure can be drawn again without computing anything. To add one: a file with a function `draw`, and a line here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..study import front
from ..study import plots as study
from . import comparison, convergence, curves, stability, trajectories


@dataclass(frozen=True)
class Figure:
    """A figure: what it is called, what it shows (and what not), and what draws it."""

    title: str
    caption: str
    draw: Callable[..., tuple[Path, Path]]


FIGURES = {
    "curves": Figure(
        "Quality against the number of evaluations",
        "Mean FID and LPIPS of every method on every task against the number of network evaluations (NFE); lower is "
        "better, both axes are logarithmic. Dashed with hollow markers: the values printed in the paper, which belong "
        "to its own network and images, so that only their shape can be compared with ours. Posterior and Euler use "
        "the published code's coefficients unless the legend says correct strides: those are made for 100 steps, and "
        "with fewer the run stops on its way. FID on few images is indicative only.",
        curves.draw,
    ),
    "trajectories": Figure(
        "Sampling trajectories",
        "States of one restoration from a common start, projected on the plane of their largest variance (left), and "
        "some of them as images (right). The number of evaluations is in brackets. With the published strides "
        "posterior sampling and Euler stop on the way at few evaluations; at 100 the way is made to its end. The plane "
        "leaves out most directions of the noise: closeness in it is necessary for closeness to the clean image, not "
        "sufficient.",
        trajectories.draw,
    ),
    "convergence": Figure(
        "The paper's convergence criterion",
        "Share of the components of the network's output with |c₀/c₁| > h at every evaluation after the first (above), "
        "and what the runs end in (below). It shows the paper's observation: noise prediction with the SDE scores low "
        "and collapses at few evaluations, data prediction scores high. It does not show the cause, and it is not a "
        "test of stability: the same data predictions counted relative to mu (dotted, hollow) score differently while "
        "every sample stays the same, and noise prediction with the ODE drops too at few evaluations and does not "
        "collapse. The collapse is a linear instability of the scheme: see the figure on stability.",
        convergence.draw,
    ),
    "comparison": Figure(
        "Restorations side by side",
        "The degraded image, restorations with their number of evaluations, and the clean image; below each the part "
        "with the most detail, enlarged, and the PSNR of the whole. Posterior sampling is the published code's.",
        comparison.draw,
    ),
    "stability": Figure(
        "Gain of one step",
        "How much a perturbation of the state grows in one step of length h. Lines are theory, markers are measured: "
        "what becomes of an error of the first prediction when the solver runs on an exactly solvable problem. With "
        "noise prediction the clean data have no variance, with data prediction a large one (the hard case of each; "
        "the other one is solved exactly). Above 1 the run collapses, whatever the network: on the uniform lambda grid "
        "the second-order SDE scheme with noise prediction below NFE 19, data prediction never.",
        stability.draw,
    ),
    "study": Figure(
        "Which solver at which number of evaluations",
        "Mean over tasks and images for each network. Lines: all schemes on the uniform lambda grid without clamp; "
        "black rings: the best setting found by LPIPS, over all grids and with clamp. Right: what clamping and the "
        "grids change in LPIPS, on average over the settings that were measured both ways (below 0 is better).",
        study.draw,
    ),
    "front": Figure(
        "Quality against time",
        "Every setting that was tried on the given images; the line is the front: settings that no setting with as few "
        "evaluations beats. The ring is the choice: the cheapest on the front that is not measurably worse than the "
        "best one.",
        front.draw,
    ),
}
