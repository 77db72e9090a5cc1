"""Scores of restored images: metrics of each image, and of whole sets of them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from ..rows import METRICS, load
from .perceptual import InceptionFeatures
from .weights import MissingWeights, find_weights

Image = NDArray[np.uint8]  # (H, W, 3)

SET_METRICS = tuple(name for name, row in METRICS.items() if row.per == "set")
# FID depends on the number of images; below this it may rank results of one set, but says little by itself.
INDICATIVE_FID_BELOW = 500


@dataclass(frozen=True)
class Scorer:
    """Per-image metrics of an 8-bit image, compared with a clean one if there is any; None for what cannot be computed.

    `networks` are the metrics with weights, loaded and ready to be called; `make_scorer` loads them.
    """

    names: tuple[str, ...]
    crop_border: int = 0
    networks: Mapping[str, Callable[..., float]] = field(default_factory=dict)

    def __call__(self, restored: Image, clean: Image | None = None) -> dict[str, float | None]:
        """Every metric by name; without a clean image those that need none."""
        names = self.names if clean is not None else self.without_clean
        return {name: self._value(name, restored, clean) for name in names}

    @property
    def without_clean(self) -> tuple[str, ...]:
        """The metrics that need no clean image."""
        return tuple(name for name in self.names if not METRICS[name].needs_clean)

    @property
    def not_loaded(self) -> tuple[str, ...]:
        """The metrics whose weights are not loaded."""
        return tuple(name for name in self.names if METRICS[name].needs_weights and name not in self.networks)

    def _value(self, name: str, restored: Image, clean: Image | None) -> float | None:
        row = METRICS[name]
        border = self.crop_border if row.crop else 0
        images = [restored, clean] if row.needs_clean and clean is not None else [restored]
        if name in self.not_loaded or min(images[-1].shape[:2]) - 2 * border < row.smallest_side:
            return None
        function = self.networks[name] if row.needs_weights else load(row.function)
        value = float(function(*(_inside(image, border) for image in images)))
        return None if math.isnan(value) else value


def _inside(image: Image, border: int) -> Image:
    return image[border : image.shape[0] - border, border : image.shape[1] - border]


def names_for(names: Sequence[str], *, clean: bool, unpaired: bool) -> tuple[tuple[str, ...], list[str]]:
    """The metrics of a run, and notes on those that it lacks.

    Images without clean ones (`unpaired`) are judged by the metrics that need none, if their parameters are there and
    `names` has no such metric. In a run without any `clean` image, these replace the others.
    """
    if not unpaired or not names or any(not METRICS[name].needs_clean for name in names):
        return tuple(names), []
    added, notes = [], []
    for row in METRICS.values():
        if not row.needs_clean and row.needs_weights:
            try:
                find_weights(row.needs_weights)
                added.append(row.name)
            except MissingWeights as error:
                notes.append(f"{row.label}, which needs no clean images, is left out: {error}")
    return (*(names if clean or not added else ()), *added), notes


def make_scorer(names: Sequence[str], crop_border: int, device: torch.device) -> tuple[Scorer, list[str]]:
    """A scorer of the per-image metrics among `names`, and a note for each whose weights are missing."""
    rows = [METRICS[name] for name in names if METRICS[name].per == "image"]
    networks, notes = {}, []
    for row in rows:
        if row.needs_weights:
            try:
                network = load(row.function)()
                networks[row.name] = network.to(device) if isinstance(network, torch.nn.Module) else network
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
