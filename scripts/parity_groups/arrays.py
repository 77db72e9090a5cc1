"""Reading reference arrays and comparing with them."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from codes.sde import MeanRevertingSDE


def load_group(reference: Path, group: str) -> tuple[dict[str, np.ndarray], Any]:
    """All arrays of `<group>.npz` by key, and its manifest."""
    path = reference / f"{group}.npz"
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; --reference must name a folder with {group}.npz")
    with np.load(path) as archive:
        arrays = {key: archive[key] for key in archive.files}
    return arrays, json.loads((reference / f"{group}.manifest.json").read_text())


def relative_error(ours: ArrayLike, theirs: ArrayLike, floor: float = 0.0) -> float:
    """Largest |ours - theirs| / max(floor, |theirs|); equal infinities are equal, other shapes infinitely far."""
    a, b = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if a.shape != b.shape:
        return float("inf")
    different = a != b
    if not different.any():
        return 0.0
    a, b = a[different], b[different]
    return float(np.max(np.abs(a - b) / np.maximum(np.abs(b), max(floor, np.finfo(float).tiny))))


def float32_tolerance(sde: MeanRevertingSDE, floor: float) -> float:
    """What single precision loses in the published tables: they hold sigma_0^2 as 1 - exp(-small), rounded at 6e-8."""
    return max(floor, 2.0**-24 / -math.expm1(-2 * float(sde.theta_table[0]) * sde.dt))


def runs(arrays: dict[str, np.ndarray], leaf: str) -> Iterator[str]:
    """The keys of all runs that recorded `leaf`, without it."""
    for key in arrays:
        if key.endswith(f"/{leaf}"):
            yield key.removesuffix(f"/{leaf}")
