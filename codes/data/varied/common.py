"""What several training generators are made of."""

from collections.abc import Callable, Sequence

import numpy as np

from ..degradations.common import Image, Map

Generator = Callable[[Image, np.random.Generator], Image]


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def mixed_from(image: Image, rng: np.random.Generator, choices: Sequence[tuple[float, Generator]]) -> Image:
    """What one of several generators makes; the numbers are how often each is drawn."""
    shares = np.cumsum([share for share, _ in choices])
    index = min(int(np.searchsorted(shares, rng.uniform() * shares[-1], side="right")), len(choices) - 1)
    return choices[index][1](image, rng)


def line_kernel(length: float, angle: float, width: float = 0.5) -> Map:
    half = int(np.ceil(length / 2 + 2 * width)) + 1
    y, x = np.mgrid[-half : half + 1, -half : half + 1].astype(np.float32)
    along, across = np.cos(angle) * x + np.sin(angle) * y, -np.sin(angle) * x + np.cos(angle) * y
    inside = np.clip(length / 2 + 0.5 - np.abs(along), 0, 1)
    return np.asarray(inside * np.exp(-0.5 * (across / width) ** 2), np.float32)
