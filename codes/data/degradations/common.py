"""What several degradations are made of: light, blur, clouds, blobs."""

import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.float32]  # (H, W, 3)
Map = NDArray[np.float32]  # (H, W)
Floats = NDArray[np.float64]

GAMMA = 2.2
LUMA = np.array([0.299, 0.587, 0.114], np.float32)


def drawn(given: float | None, value: float) -> float:
    return float(value) if given is None else float(given)


def clipped(image: Image) -> Image:
    return np.clip(image, 0, 1, out=image).astype(np.float32, copy=False)


def linear(image: Image) -> Image:
    """Light instead of display values; OpenCV's power is four times faster than numpy's."""
    import cv2

    return np.asarray(cv2.pow(image, GAMMA), np.float32)


def displayed(light: Image) -> Image:
    import cv2

    return np.asarray(cv2.pow(np.maximum(light, 0), 1 / GAMMA), np.float32)


def blurred(image: NDArray[np.float32], sigma: float) -> NDArray[np.float32]:
    import cv2

    if sigma < 0.05:
        return image
    return np.asarray(cv2.GaussianBlur(image, (0, 0), sigma, borderType=cv2.BORDER_REFLECT_101), np.float32)


def smoothstep(value: NDArray[np.float32], low: float, high: float) -> NDArray[np.float32]:
    """0 below `low`, 1 above `high` (or the other way round), smooth between."""
    x = np.clip((value - low) / (high - low), 0, 1)
    return np.asarray(x * x * (3 - 2 * x), np.float32)


def unit_of(height: int, width: int) -> float:
    """The size of things such as drops and flakes: 1 for images up to 256x256, growing slowly above.

    A patch of 128x128 then looks like a part of an image of 256x256, and a large photograph has no tiny drops only.
    """
    return max(1.0, float(np.sqrt(min(height, width) / 256)))


def clouds(rng: np.random.Generator, height: int, width: int, scale: float, octaves: int = 4) -> Map:
    """Fractal noise with mean 0 and spread about 1; `scale` is the size of its largest features in pixels."""
    import cv2

    total = np.zeros((height, width), np.float32)
    for octave in range(octaves):
        cell = scale / 2**octave
        if cell < 1:
            break
        rows, columns = int(height / cell) + 4, int(width / cell) + 4
        grid = rng.standard_normal((rows, columns), dtype=np.float32) * 2.0**-octave
        left, top = rng.uniform(1, 2, 2)
        # Where each pixel lies on the grid: an affine map, interpolated smoothly.
        matrix = np.array([[1 / cell, 0, left], [0, 1 / cell, top]], np.float32)
        flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
        total += cv2.warpAffine(grid, matrix, (width, height), flags=flags, borderMode=cv2.BORDER_REFLECT_101)
    return total


def ramp(height: int, width: int, angle: float) -> Map:
    """-1 to 1 across the image along a direction (0: to the right, pi/2: downwards)."""
    y, x = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j].astype(np.float32)
    return np.asarray((np.cos(angle) * x + np.sin(angle) * y) / (abs(np.cos(angle)) + abs(np.sin(angle))), np.float32)


def outline_of(dx: NDArray[np.float32], dy: NDArray[np.float32], bumps: Floats, phases: Floats) -> NDArray[np.float32]:
    """The radius of an irregular blob by direction, about 1."""
    theta = np.arctan2(dy, dx)
    total = np.ones_like(theta)
    for k, (bump, phase) in enumerate(zip(bumps, phases)):
        total += np.float32(bump) * np.cos((k + 2) * theta + np.float32(phase))
    return total
