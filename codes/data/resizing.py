"""Making images smaller: by cutting, or by averaging areas, what the pixels of a smaller image would have seen."""

import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]  # (H, W, 3)


def scaled(image: Image, scale: float) -> Image:
    """An image `scale` times as large; as it is from 1 on."""
    import cv2

    if scale >= 1:
        return image
    height, width = (max(1, round(length * scale)) for length in image.shape[:2])
    return np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA), np.uint8)


def shrunk(image: Image, side: int) -> Image:
    """An image scaled down to at most `side` pixels a side, never up."""
    return scaled(image, side / max(image.shape[:2]))


def middle(image: Image, side: int) -> Image:
    """The middle of an image, at most `side` pixels high and wide."""
    top, left = (max(length - side, 0) // 2 for length in image.shape[:2])
    return np.ascontiguousarray(image[top : top + side, left : left + side])
