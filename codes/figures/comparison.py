"""Images side by side, each with an enlarged detail: the paper's figures 1 and 6."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .style import Image, canvas, save, show


@dataclass(frozen=True)
class ComparisonRow:
    """Versions (K, H, W, 3) of one image, the clean one last; each with a caption above and a note (a PSNR) below."""

    title: str
    captions: tuple[str, ...]
    notes: tuple[str, ...]
    images: Image


def detailed_part(image: Image, side: int) -> tuple[int, int]:
    """(top, left) of the square with the most detail: the largest sum of squared differences of neighbours."""
    grey = image.astype(np.float64).mean(axis=2)
    energy = np.zeros_like(grey)
    energy[:-1] += np.diff(grey, axis=0) ** 2
    energy[:, :-1] += np.diff(grey, axis=1) ** 2
    total = np.pad(energy, ((1, 0), (1, 0))).cumsum(axis=0).cumsum(axis=1)
    sums = total[side:, side:] - total[:-side, side:] - total[side:, :-side] + total[:-side, :-side]
    top, left = np.unravel_index(int(sums.argmax()), sums.shape)
    return int(top), int(left)


def _cut(image: Image, corner: tuple[int, int], side: int) -> NDArray[np.uint8]:
    top, left = corner
    return np.ascontiguousarray(image[top : top + side, left : left + side])


def draw(rows: Sequence[ComparisonRow], stem: Path, zoom: int = 4) -> tuple[Path, Path]:
    """Draw two lines per row: the images, and below them the most detailed part, `zoom` times enlarged."""
    from matplotlib.patches import Rectangle

    if not rows:
        raise ValueError("nothing to compare")
    columns = max(len(row.images) for row in rows)
    with canvas(0.35 + 1.42 * columns, 3.05 * len(rows)) as figure:
        figure.set_layout_engine("constrained", h_pad=0.015, w_pad=0.015, hspace=0, wspace=0)
        axes = figure.subplots(2 * len(rows), columns, squeeze=False)
        for i, row in enumerate(rows):
            side = max(8, min(row.images.shape[1:3]) // zoom)
            corner = detailed_part(row.images[-1], side)
            for j in range(columns):
                whole, part = axes[2 * i, j], axes[2 * i + 1, j]
                if j >= len(row.images):
                    whole.set_visible(False)
                    part.set_visible(False)
                    continue
                show(whole, row.images[j], row.captions[j])
                for color, width in (("black", 2.4), ("white", 1.2)):  # visible on any image
                    place = corner[1] - 0.5, corner[0] - 0.5
                    whole.add_patch(Rectangle(place, side, side, fill=False, ec=color, lw=width))
                show(part, _cut(row.images[j], corner, side), below=row.notes[j])
            axes[2 * i, 0].set_ylabel(row.title, fontsize=9, fontweight="bold")
        return save(figure, stem, dpi=85)
