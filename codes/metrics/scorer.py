"""Scores of restored images: metrics of each image, and of whole sets of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from ..rows import METRICS, load
from .perceptual import InceptionFeatures
from .weights import MissingWeights

Image = NDArray[np.uint8]  # (H, W, 3)

SET_METRICS = tuple(name for name, row in METRICS.items() if row.per == "set")
# FID depends on the number of images; below this it may rank results of one set, but says little by itself.
INDICATIVE_FID_BELOW = 500


@dataclass(frozen=True)
class Scorer:
    """Per-image metrics of a pair of 8-bit images; None for what cannot be computed.

    `networks` are the metrics with weights, loaded and ready to be called; `make_scorer` loads them.
    """

    names: tuple[str, ...]
    crop_border: int = 0
    networks: Mapping[str, Callable[[Image, Image], float]] = field(default_factory=dict)

    def __call__(self, restored: Image, clean: Image) -> dict[str, float | None]:
        """Every metric by name."""
        return {name: self._value(name, restored, clean) for name in self.names}

    @property
    def not_loaded(self) -> tuple[str, ...]:
        """The per-image metrics whose weights are not loaded, whether they are among the names or not."""
        rows = (row for row in METRICS.values() if row.per == "image" and row.needs_weights)
        return tuple(row.name for row in rows if row.name not in self.networks)

    def _value(self, name: str, restored: Image, clean: Image) -> float | None:
        row = METRICS[name]
        border = self.crop_border if row.crop else 0
        if name in self.not_loaded or min(clean.shape[:2]) - 2 * border < row.smallest_side:
            return None
        function = self.networks[name] if row.needs_weights else load(row.function)
        return float(function(_inside(restored, border), _inside(clean, border)))


def _inside(image: Image, border: int) -> Image:
    return image[border : image.shape[0] - border, border : image.shape[1] - border]


def make_scorer(names: Sequence[str], crop_border: int, device: torch.device) -> tuple[Scorer, list[str]]:
    """A scorer of the per-image metrics among `names`, and a note for each whose weights are missing."""
    rows = [METRICS[name] for name in names if METRICS[name].per == "image"]
    networks, notes = {}, []
    for row in rows:
        if row.needs_weights:
            try:
                networks[row.name] = load(row.function)().to(device)
            except MissingWeights as error:
                notes.append(f"{row.label} is n/a: {error}")
    return Scorer(tuple(row.name for row in rows), crop_border, networks), notes


def make_features(device: torch.device) -> tuple[InceptionFeatures | None, list[str]]:
    """The network whose features the metrics of sets compare, or None and a note if its weights are missing."""
    try:
        return InceptionFeatures().to(device), []
    except MissingWeights as error:
        labels = " and ".join(METRICS[name].label for name in SET_METRICS)
        return None, [f"{labels} are n/a: {error}"]


def set_scores(names: Sequence[str], restored: ArrayLike, clean: ArrayLike) -> dict[str, float]:
    """Metrics of whole sets by name, from the features (N, D) of the restored and of the clean images."""
    return {name: float(load(METRICS[name].function)(restored, clean)) for name in names}
