"""The published rules for degrading images on the fly: denoising, super-resolution, inpainting."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..images import read_image
from ..pairs import find_images

Degrade = Callable[[Tensor, np.random.Generator], Tensor]


def gaussian_noise(sigma: float = 25) -> Degrade:
    """The published rule for denoising on the fly: x + (sigma/255) n, not clipped."""

    def apply(image: Tensor, rng: np.random.Generator) -> Tensor:
        noise = torch.from_numpy(rng.standard_normal(tuple(image.shape), dtype=np.float32))
        return image + (sigma / 255) * noise.to(image.device)

    return apply


def super_resolution(scale: int = 4) -> Degrade:
    """The published rule for super-resolution: shrunk by `scale` and enlarged again, both bicubic; draws nothing."""
    if scale < 1:
        raise ValueError(f"scale must be at least 1, got {scale}")

    def apply(image: Tensor, rng: np.random.Generator) -> Tensor:
        height, width = image.shape[-2:]
        small = (max(1, height // scale), max(1, width // scale))
        resize = torch.nn.functional.interpolate
        shrunk = resize(image[None], size=small, mode="bicubic", align_corners=False, antialias=True).clamp(0, 1)
        return resize(shrunk, size=(height, width), mode="bicubic", align_corners=False)[0]

    return apply


def enlarged(image: Tensor, scale: int) -> Tensor:
    """A small image at the size to be restored, as the published super-resolution prepares it: bicubic."""
    resize = torch.nn.functional.interpolate
    return resize(image[None], scale_factor=scale, mode="bicubic", align_corners=False)[0]


def masked(image: Tensor, mask_file: Path) -> Tensor:
    """The published rule for inpainting: m x + (1 - m) with the mask m of a file (black is a hole)."""
    mask = read_image(mask_file)[None, :1]
    keep = torch.nn.functional.interpolate(mask, size=image.shape[-2:], mode="nearest")[0].to(image.device)
    return keep * image + (1 - keep)


def mask_inpainting(mask_root: str | Path) -> Degrade:
    """Inpainting with a random mask of a folder for each image, as in the published training."""
    paths = list(find_images(Path(mask_root)).values())

    def apply(image: Tensor, rng: np.random.Generator) -> Tensor:
        return masked(image, paths[int(rng.integers(len(paths)))])

    return apply
