"""Training generators within a mask: cast shadows and white holes."""

import numpy as np

from ..degradations import holes as plain
from ..degradations.common import Image, clipped
from .common import log_uniform, mixed_from


def _cast_shadow(image: Image, rng: np.random.Generator) -> Image:
    darkness, share = rng.uniform(0.2, 0.92), rng.uniform(0.05, 0.7)
    softness, shift = log_uniform(rng, 0.5, 14), rng.uniform(-0.3, 1.2)
    return plain.shadowed(image, rng, darkness=darkness, share=share, softness=softness, shift=shift)


def _flat_shadow(image: Image, rng: np.random.Generator) -> Image:
    """A factor for each colour within the mask, in display values."""
    height, width = image.shape[:2]
    mask = plain.shadow_mask(height, width, rng, rng.uniform(0.05, 0.7), log_uniform(rng, 0.5, 8))
    left = (rng.uniform(0.25, 0.8) * (1 + rng.normal(0, 0.05, 3))).astype(np.float32)
    return clipped(image * (1 - mask[..., None] * (1 - left)))


def shadowed(image: Image, rng: np.random.Generator) -> Image:
    """Light and deep, sharp and soft."""
    return mixed_from(image, rng, ((0.35, plain.shadowed), (0.4, _cast_shadow), (0.25, _flat_shadow)))


def _drawn_holes(image: Image, rng: np.random.Generator) -> Image:
    """Rectangles, discs, scribbles and letters."""
    import cv2

    height, width = image.shape[:2]
    side = min(height, width)
    mask = np.zeros((height, width), np.uint8)
    kind = rng.choice(["boxes", "scribbles", "letters", "points"])
    for _ in range(int(rng.integers(1, 14))):
        x, y = int(rng.uniform(0, width)), int(rng.uniform(0, height))
        if kind == "boxes":
            across, down = (int(side * rng.uniform(0.04, 0.35)) for _ in range(2))
            cv2.rectangle(mask, (x, y), (x + across, y + down), 255, -1)
        elif kind == "scribbles":
            points = np.cumsum(rng.normal(0, 0.09 * side, (12, 2)), 0) + np.array([x, y])
            cv2.polylines(
                mask, [np.round(points).astype(np.int32)], False, 255, max(1, int(rng.uniform(1, 0.05 * side)))
            )
        elif kind == "letters":
            text = "".join(rng.choice(list("abcdefghijkmnoprstuvwxyzABDEGHKMR0123456789"), 12))
            cv2.putText(
                mask, text, (x - 60, y), int(rng.integers(0, 8)), rng.uniform(0.4, 1.6), 255, int(rng.integers(1, 4))
            )
        else:
            cv2.circle(mask, (x, y), max(1, int(side * rng.uniform(0.01, 0.12))), 255, -1)
    if cv2.countNonZero(mask) > 0.65 * mask.size:
        return plain.uncompleted(image, rng)
    keep = (mask == 0).astype(np.float32)[..., None]
    return np.asarray(image * keep + (1 - keep), np.float32)


def uncompleted(image: Image, rng: np.random.Generator) -> Image:
    """White holes of many shapes."""
    return mixed_from(image, rng, ((0.6, plain.uncompleted), (0.4, _drawn_holes)))
