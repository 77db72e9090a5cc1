"""A picture of pictures: rows of images under headings."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .resizing import shrunk

Image = NDArray[np.uint8]

_MARGIN = 4
_FONT = 0.42


def fit(image: Image, cell: int) -> Image:
    """An image scaled down to at most `cell` pixels a side (never up), on a white square."""
    image = shrunk(image, cell)
    canvas = np.full((cell, cell, 3), 255, np.uint8)
    top, left = (cell - image.shape[0]) // 2, (cell - image.shape[1]) // 2
    canvas[top : top + image.shape[0], left : left + image.shape[1]] = image
    return canvas


def contact_sheet(
    headings: Sequence[str], rows: Sequence[Sequence[Image | None]], captions: Sequence[Sequence[str]], cell: int = 224
) -> Image:
    """A sheet with a heading for each column, and a caption under each image; None leaves a cell empty."""
    import cv2

    line = 18
    step_x, step_y = cell + _MARGIN, cell + line + _MARGIN
    sheet = np.full((line + _MARGIN + len(rows) * step_y, len(headings) * step_x + _MARGIN, 3), 255, np.uint8)

    def write(text: str, x: int, y: int) -> None:
        (width, _), _ = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, _FONT, 1)
        size = _FONT * min(1.0, (cell - 4) / max(width, 1))  # long labels shrink instead of running together
        cv2.putText(sheet, text, (x, y), cv2.FONT_HERSHEY_SIMPLEX, size, (0, 0, 0), 1, cv2.LINE_AA)

    for j, heading in enumerate(headings):
        write(heading, _MARGIN + j * step_x + 2, line - 4)
    for i, (row, texts) in enumerate(zip(rows, captions, strict=True)):
        top = line + _MARGIN + i * step_y
        for j, (image, text) in enumerate(zip(row, texts, strict=True)):
            left = _MARGIN + j * step_x
            if image is not None:
                sheet[top : top + cell, left : left + cell] = fit(image, cell)
            write(text, left + 2, top + cell + line - 5)
    return sheet


def side_by_side(images: Sequence[Image]) -> Image:
    """Images of equal height beside each other, as they are, with a white line between them."""
    line = np.full((len(images[0]), _MARGIN, 3), 255, np.uint8)
    return np.hstack([part for image in images for part in (line, image)][1:])
