"""Common style of all figures, and reproducible files: the same numbers give the same bytes.

The palette by Okabe and Ito is safe for colour-blind readers; every line also has its own marker, so that a grey print
is readable.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

Array = NDArray[np.float64]
Image = NDArray[np.uint8]

BLACK, ORANGE, SKY, GREEN = "#000000", "#e69f00", "#56b4e9", "#009e73"
YELLOW, BLUE, VERMILION, PURPLE = "#f0e442", "#0072b2", "#d55e00", "#cc79a7"
GREY = "#777777"

_SETTINGS = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so the pictures are the same everywhere
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "svg.hashsalt": "mr-sampler",  # makes the ids in the file reproducible
    "svg.fonttype": "none",  # text stays text: smaller and searchable
    "image.interpolation": "none",
}


@dataclass(frozen=True)
class Line:
    """Colour, marker and line style of a method, the same in every figure."""

    color: str
    marker: str
    style: str = "-"

    def arguments(self) -> dict[str, Any]:
        """As keyword arguments of `Axes.plot`."""
        return {"color": self.color, "marker": self.marker, "linestyle": self.style}


METHODS = {
    "Posterior": Line(ORANGE, "s"),
    "Euler": Line(GREY, "X"),
    "MR Sampler-1": Line(SKY, "^"),
    "MR Sampler-2": Line(BLUE, "o"),
    "mrsampler-pc": Line(VERMILION, "D"),
    "Posterior, correct strides": Line(GREEN, "v"),
    "Euler, correct strides": Line(PURPLE, "P"),
    "recommended": Line(BLACK, "*"),
}
_OTHERS = (Line(BLACK, "p", "--"), Line(YELLOW, "h"), Line(GREEN, "<", "--"), Line(PURPLE, ">", "--"))


def lines_of(names: Sequence[str]) -> dict[str, Line]:
    """A line style for every name: the fixed one of a known method, else an unused one."""
    others = iter(_OTHERS * (1 + len(names) // len(_OTHERS)))
    return {name: METHODS.get(name) or next(others) for name in dict.fromkeys(names)}


@contextmanager
def canvas(width: float, height: float) -> Iterator["Canvas"]:
    """An empty figure (size in inches) in the project's style, independent of the user's settings; save it inside."""
    import matplotlib.style
    from matplotlib.figure import Figure

    with matplotlib.style.context(_SETTINGS, after_reset=True):
        yield Figure(figsize=(width, height), layout="constrained")


def save(figure: "Canvas", stem: Path, *, dpi: int = 150, few_colours: bool = False) -> tuple[Path, Path]:
    """Write STEM.png and STEM.svg, replacing existing files; equal figures give equal files.

    few_colours   256 of them in the PNG file: a third of the size where images of noise are shown
    """
    settle(figure)
    stem.parent.mkdir(parents=True, exist_ok=True)
    png, svg = (stem.with_name(stem.name + suffix) for suffix in (".png", ".svg"))
    figure.savefig(png, dpi=dpi, metadata={"Software": None})
    if few_colours:
        from PIL import Image as Pictures

        with Pictures.open(png) as picture:
            picture.convert("RGB").quantize(256, kmeans=3).save(png, optimize=True)
    figure.savefig(svg, metadata={"Date": None, "Creator": None})
    return png, svg


def settle(figure: "Canvas") -> None:
    """Lay out the figure once, and round the positions of its panels.

    The layout solver's results differ in their last digits from call to call, which would change a few
    pixels.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axis in figure.axes:
        left, bottom, width, height = (round(float(value), 4) for value in axis.get_position(original=True).bounds)
        axis.set_position((left, bottom, width, height))


def whole_numbers(axis: "Axes", values: Sequence[int]) -> None:
    """Make the x axis logarithmic, with ticks at these numbers."""
    from matplotlib.ticker import NullLocator

    axis.set_xscale("log")
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xticks(list(values), [str(value) for value in values])


def show(axis: "Axes", image: Image, title: str = "", below: str = "") -> None:
    """Show an image without ticks, with text above and below."""
    axis.imshow(image)
    axis.set(xticks=[], yticks=[])
    axis.grid(False)
    for spine in axis.spines.values():
        spine.set_visible(False)
    if title:
        axis.set_title(title, fontsize=8)
    if below:
        axis.set_xlabel(below, fontsize=7.5, labelpad=2)


def as_image(pixels: Array | NDArray[np.float32]) -> Image:
    """Clip pixels (H, W, 3) to [0, 1] and convert them to 8 bits."""
    return np.asarray((np.clip(pixels, 0, 1) * 255).round(), np.uint8)
