"""The figures of the paper. Each one is a function of plain numbers and images that writes STEM.png and STEM.svg.

    FIGURES["comparison"].draw(rows, Path("results/figures/comparison"))

`collect` (the only module here that needs torch) computes their data and `stored` keeps it in files, so that a figure
can be drawn again without computing anything. To add one, write a function `draw` and add a row here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import comparison, convergence, curves, stability, trajectories


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure, and the data that it is drawn from.

    name         name of its files
    title        heading in reports
    caption      what it shows, and what it does not show
    draw         f(*arguments, stem) that writes STEM.png and STEM.svg. The arguments are the stored items, one list
                 per file; if nothing is stored, the points of all tables (`CurvePoint`)
    stored       the files in figure-data that it needs, without .npz, and the type of their items
    collect      'module:function' that computes the items of each file from the restorations of `tasks`
    tasks        tasks of which the first image is restored for the figure
    evaluations  number of network evaluations that this takes
    """

    name: str
    title: str
    caption: str
    draw: Callable[..., tuple[Path, Path]]
    stored: tuple[tuple[str, type], ...] = ()
    collect: str = ""
    tasks: tuple[str, ...] = ()
    evaluations: int = 0


FIGURES = {
    row.name: row
    for row in (
        Figure(
            name="curves",
            title="Quality against the number of evaluations",
            caption="Mean LPIPS, and FID where it was computed, of every method on every task against the number of "
            "network evaluations (NFE); "
            "lower is better, both axes are logarithmic. Dashed with hollow markers: the values printed in the "
            "paper, of its own network, where the images are the paper's. Posterior and Euler use the published code's "
            "coefficients unless the legend says correct strides: those are made for 100 steps, and with fewer the run "
            "stops before its end. FID on few images is indicative only.",
            draw=curves.draw,
        ),
        Figure(
            name="comparison",
            title="Restorations side by side",
            caption="The degraded image, restorations with their number of evaluations, and the clean image; below "
            "each the part with the most detail, enlarged, and the PSNR of the whole. Posterior sampling is the "
            "published code's, which stops early with few evaluations; recommended is the network's own solver. The "
            "first image of each task by name, from its middle. Three tasks that the embedded network restores were "
            "chosen; it leaves motion blur and drops nearly as they are, which the tables show.",
            draw=comparison.draw,
            stored=(("comparison", comparison.ComparisonRow),),
            collect="figures.collect:comparisons",
            tasks=("low-light", "rainy", "noisy"),
            evaluations=3 * 126,
        ),
        Figure(
            name="trajectories",
            title="Sampling trajectories",
            caption="States of one restoration from a common start, projected on the plane of their largest variance "
            "(left), and some of them as images (right). The number of evaluations is in brackets. With the "
            "published strides posterior sampling and Euler stop early at few evaluations; at 100 they reach "
            "the end. The plane leaves out most directions of the noise: closeness in it is "
            "necessary for closeness to the clean image, not sufficient.",
            draw=trajectories.draw,
            stored=(("trajectories", trajectories.Trajectory), ("trajectories-images", trajectories.Pair)),
            collect="figures.collect:trajectories",
            tasks=("low-light",),  # where the degraded and the clean image are far apart
            evaluations=150,
        ),
        Figure(
            name="convergence",
            title="The paper's convergence criterion",
            caption="Share of the components of the network's output with |c₀/c₁| > h at every evaluation after the "
            "first (above), and what the runs end in (below). It shows the paper's observation: noise "
            "prediction with the SDE scores low and collapses at few evaluations, data prediction scores high. "
            "It does not show the cause, and it is not a test of stability: noise prediction with the ODE drops too at "
            "few evaluations and does not collapse, and the same data predictions counted relative to mu (dotted, "
            "hollow) have another score while every sample stays the same, though a close one where a network's "
            "predictions hardly change from step to step. The collapse is a linear instability of the scheme: see the "
            "figure on stability.",
            draw=convergence.draw,
            stored=(("convergence", convergence.ConvergenceRun),),
            collect="figures.collect:convergence",
            tasks=("rainy",),  # a degraded image that is not black: relative to mu is something else there
            evaluations=255,
        ),
        Figure(
            name="stability",
            title="Gain of one step",
            caption="How much a perturbation of the state grows in one step of length h. Lines are theory, markers are "
            "measured: what becomes of an error of the first prediction when the solver runs on an exactly "
            "solvable problem. With noise prediction the clean data have no variance, with data prediction a "
            "large one (the hard case of each; the other one is solved exactly). Above 1 the run collapses, "
            "whatever the network: on the uniform lambda grid the second-order SDE scheme with noise "
            "prediction below NFE 19, data prediction never.",
            draw=stability.draw,
            stored=(("stability", stability.Gain),),
            collect="figures.collect:stability",
        ),
    )
}
