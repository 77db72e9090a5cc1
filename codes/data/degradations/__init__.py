"""Degradations that make test sets from clean images: one pure function each, one row each in DEGRADATIONS.

Each function takes an image (H, W, 3), float32 RGB in [0, 1], and a generator, and returns a degraded image of the same
kind. Strengths are keywords. Those that are not given are drawn from the generator, within ranges like those of the
published sets. They are drawn even where they are given, so that giving one strength leaves the others unchanged.
"""

import inspect

import numpy as np
import torch
from torch import Tensor

from ...names import check_choice, unknown
from ...rows import DEGRADATIONS, load
from .common import Image
from .published import Degrade, enlarged, gaussian_noise, mask_inpainting, masked, super_resolution

__all__ = [
    "DEGRADATIONS",
    "LEAST",
    "Degrade",
    "TooSmall",
    "degrade",
    "enlarged",
    "gaussian_noise",
    "mask_inpainting",
    "masked",
    "super_resolution",
    "tensor_degradation",
]

LEAST = 32  # pixels of the shorter side of an image that these functions degrade


class TooSmall(ValueError):
    """An image that is too small to be degraded; the message lacks the name of its file."""


def degrade(name: str, image: Image, rng: np.random.Generator | int, **strength: object) -> Image:
    """Degrade an image by the name of the degradation; an integer instead of a generator is a seed."""
    check_choice("degradation", name, DEGRADATIONS)
    function = load(DEGRADATIONS[name].function)
    keywords = list(inspect.signature(function).parameters)[2:]
    for keyword in strength:
        if keyword not in keywords:
            raise unknown(f"strength of {name!r}", keyword, keywords)
    if image.ndim != 3 or image.shape[2] != 3:
        raise ValueError(f"an image (H, W, 3) is needed, got {image.shape}")
    if min(image.shape[:2]) < LEAST:
        size = f"{image.shape[1]}x{image.shape[0]}"
        raise TooSmall(f"{size} is too small to be degraded ({name}), at least {LEAST}x{LEAST} pixels are needed")
    generator = np.random.default_rng(rng) if isinstance(rng, int) else rng
    degraded: Image = function(np.ascontiguousarray(image, np.float32), generator, **strength)
    return degraded


def tensor_degradation(name: str, **strength: object) -> Degrade:
    """A degradation for tensors (3, H, W), as the evaluation and the training use it."""
    check_choice("degradation", name, DEGRADATIONS)

    def apply(image: Tensor, rng: np.random.Generator) -> Tensor:
        degraded = degrade(name, image.permute(1, 2, 0).cpu().numpy(), rng, **strength)
        return torch.from_numpy(np.ascontiguousarray(degraded.transpose(2, 0, 1))).to(image.device)

    return apply
