"""Degradations to train on: several generators for each task, of strengths from hardly visible to severe.

`degradations` makes test sets: each task in one way, with strengths like those of the published sets. A network that
is trained on those alone takes whatever looks a little like them for degraded, and changes it. Here each task is drawn
from several generators that share nothing but the name, weak ones included; some images have two degradations, and
some have none and must stay as they are.

Every generator takes an image (H, W, 3), float32 RGB in [0, 1], and a random generator, and returns a degraded one.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ...names import TASKS, check_choice
from ...rows import DEGRADATIONS, load
from ..degradations.common import LUMA, Image, Map, clipped
from .camera import grainy, through_jpeg, well_exposed
from .common import Generator, log_uniform

NONE = "none"
# The classes that a network can recognise: the ten published degradations, and no degradation.
KINDS: tuple[str, ...] = (*TASKS, NONE)

# Degraded images closer than this to the clean one count as clean (PSNR in dB).
_AS_GOOD_AS_CLEAN = 42.0

# What follows another degradation in a photograph: the sensor's noise, then the file's compression.
_SECOND: tuple[tuple[str, Generator], ...] = (
    ("noisy", lambda image, rng: grainy(image, rng, log_uniform(rng, 3, 25))),
    ("jpeg-compressed", lambda image, rng: through_jpeg(image, rng, int(rng.integers(15, 70)))),
)


def generator_of(name: str) -> Generator:
    """The training generator of a degradation, the one of test sets where its row names no other."""
    if name == NONE:
        return lambda image, rng: image
    check_choice("degradation", name, DEGRADATIONS)
    row = DEGRADATIONS[name]
    generator: Generator = load(row.varied or row.function)
    return generator


def _regraded(image: Image, rng: np.random.Generator) -> Image:
    """Another exposure, contrast and saturation: dark and pale photographs are clean too."""
    import cv2

    gamma = log_uniform(rng, 0.7, 1.5)
    result = np.asarray(cv2.pow(image, gamma), np.float32)
    grey = (result @ LUMA)[..., None]
    colours = 0.0 if rng.uniform() < 0.12 else rng.uniform(0.5, 1.25)
    return clipped(np.asarray(grey + np.float32(colours) * (result - grey), np.float32))


def varied_pair(name: str, image: Image, rng: np.random.Generator, mixed: float = 0.0) -> tuple[Image, Image, Map]:
    """A clean image, a degraded one, and the degradations of the latter: shares of KINDS that sum to 1.

    name: a degradation, or 'none'; mixed: how often a second degradation follows. The clean image is the given one,
    regraded in half of the cases, and brightened where the degradation is too little light. A degradation outside
    KINDS has no share.
    """
    image = _regraded(image, rng) if rng.uniform() < 0.5 else image
    if name == "low-light":
        image = well_exposed(image, rng)
    degraded = generator_of(name)(image, rng)
    kinds = [name]
    if rng.uniform() < mixed and name not in (NONE, "noisy", "jpeg-compressed"):
        second, generator = _SECOND[int(rng.uniform() < 0.5)]
        degraded = generator(degraded, rng)
        kinds.append(second)
    error = float(np.mean((degraded - image) ** 2))
    if error < 10 ** (-_AS_GOOD_AS_CLEAN / 10):
        kinds = [NONE]
    shares = np.zeros(len(KINDS), np.float32)
    for kind in (kind for kind in kinds if kind in KINDS):
        shares[KINDS.index(kind)] += 1 / len(kinds)
    return image, degraded, shares


def tensor_pair(
    name: str, mixed: float = 0.0
) -> Callable[[Tensor, np.random.Generator], tuple[Tensor, Tensor, Tensor]]:
    """`varied_pair` for tensors (3, H, W), as the training uses it."""

    def apply(image: Tensor, rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
        pixels = np.ascontiguousarray(image.permute(1, 2, 0).numpy(), np.float32)
        clean, degraded, shares = varied_pair(name, pixels, rng, mixed)
        clean, degraded = (np.ascontiguousarray(x.transpose(2, 0, 1)) for x in (clean, degraded))
        return torch.from_numpy(clean), torch.from_numpy(degraded), torch.from_numpy(shares)

    return apply
