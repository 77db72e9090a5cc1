"""NIQE and BRISQUE: how natural an image looks, without a clean one to compare with.

Both divide the local contrast out of the grey image, which leaves natural images nearly Gaussian, fit generalised
Gaussian distributions to what is left and to the products of its neighbours, at full and at half size, and judge these
36 features: NIQE by the distance to those of good photos (Mittal et al., IEEE Signal Processing Letters 20(3), 2013),
BRISQUE by a regression on opinions (Mittal et al., IEEE Transactions on Image Processing 21(12), 2012). Parameters and
values are those of the authors' programs, as in pyiqa. Images are uint8 arrays (H, W, 3); NaN stands for no value.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..rows import METRICS
from .weights import FOLDER, WeightsName, check_weights, find_weights

Image = NDArray[np.uint8]
Floats = NDArray[np.float64]

_GREY = np.array([0.299, 0.587, 0.114])
_NEIGHBOURS = ((0, 1), (1, 0), (1, 1), (1, -1))
_BLOCK = METRICS["niqe"].smallest_side
# Least and greatest value of BRISQUE's features in the data of its regression.
_RANGES = np.array(
    [0.338, 10, 0.017204, 0.806612, 0.236, 1.642, -0.123884, 0.20293, 0.000155, 0.712298, 0.001122, 0.470257,
     0.244, 1.641, -0.123586, 0.179083, 0.000152, 0.710456, 0.000975, 0.470984, 0.249, 1.555, -0.135687, 0.100858,
     0.000174, 0.684173, 0.000913, 0.534174, 0.258, 1.561, -0.143408, 0.100486, 0.000179, 0.685696, 0.000888, 0.536508,
     0.471, 3.264, 0.012809, 0.703171, 0.218, 1.046, -0.094876, 0.187459, 1.5e-5, 0.442057, 0.001272, 0.40803,
     0.222, 1.042, -0.115772, 0.162604, 1.6e-5, 0.444362, 0.001374, 0.40243, 0.227, 0.996, -0.117188, 0.098323,
     3e-5, 0.531903, 0.001122, 0.369589, 0.228, 0.99, -0.12243, 0.098658, 2.8e-5, 0.530092, 0.001118, 0.370399]
).reshape(36, 2)  # fmt: skip


class NIQE:
    """Distance of an image's features from those of good photos; small is good, 3 to 5 are usual for photos."""

    def __init__(self, folder: Path = FOLDER) -> None:
        found = _parameters("niqe", folder)
        self._mean, self._covariance = found["mean"], found["covariance"]

    def __call__(self, image: Image) -> float:
        """The value of an image; NaN where fewer than two of its blocks of 96 pixels have any texture."""
        import cv2

        grey = _grey(image)
        rows, columns = (length // _BLOCK for length in grey.shape)
        grey = grey[: rows * _BLOCK, : columns * _BLOCK]
        features = []
        for size, values in ((_BLOCK, grey), (_BLOCK // 2, _half(grey))):
            blocks = _contrast(values, cv2.BORDER_REPLICATE).reshape(rows, size, columns, size).swapaxes(1, 2)
            features.append(_niqe_features(blocks.reshape(-1, size, size)))
        table = np.concatenate(features, axis=1)
        whole = table[~np.isnan(table).any(axis=1)]
        if len(whole) < 2:
            return float("nan")
        difference = np.nanmean(table, axis=0) - self._mean
        covariance = (self._covariance + np.cov(whole, rowvar=False)) / 2
        return float(np.sqrt(difference @ np.linalg.pinv(covariance) @ difference))


class BRISQUE:
    """The opinion of people as a regression predicts it: near 0 for good images, near 100 for bad ones."""

    def __init__(self, folder: Path = FOLDER) -> None:
        found = _parameters("brisque", folder)
        self._vectors, self._factors = found["vectors"], found["factors"]
        self._gamma, self._offset = float(found["gamma"][0]), float(found["offset"][0])

    def __call__(self, image: Image) -> float:
        """The value of an image; NaN if it has no texture."""
        import cv2

        grey = _grey(image)
        found = [_brisque_features(_contrast(values, cv2.BORDER_CONSTANT)) for values in (grey, _half(grey))]
        lowest, highest = _RANGES.T
        features = 2 * (np.concatenate(found) - lowest) / (highest - lowest) - 1
        distances = np.sum((self._vectors - features) ** 2, axis=1)
        return float(self._factors @ np.exp(-self._gamma * distances) + self._offset)


def _parameters(name: WeightsName, folder: Path) -> dict[str, Floats]:
    from safetensors.numpy import load_file

    path = find_weights(name, folder)
    check_weights(path)
    return load_file(path)


def _grey(image: Image) -> Floats:
    """Rounded to whole numbers, as in the 8-bit grey images that the authors' programs read."""
    return np.asarray(np.rint(image.astype(np.float64) @ _GREY))


def _contrast(values: Floats, border: int) -> Floats:
    """The deviation from the local mean, in local standard deviations."""
    import cv2

    def blur(x: Floats) -> Any:
        return cv2.GaussianBlur(x, (7, 7), 7 / 6, borderType=border)

    mean = blur(values)
    return np.asarray((values - mean) / (np.sqrt(np.abs(blur(values * values) - mean * mean)) + 1))


def _half(values: Floats) -> Floats:
    """Half as large, by the bicubic filter of Matlab's imresize."""
    import cv2

    x = np.abs(np.arange(-3.5, 4)) / 2
    near, far = 1.5 * x**3 - 2.5 * x**2 + 1, -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
    kernel = np.where(x <= 1, near, far)
    kernel /= kernel.sum()
    filtered = cv2.sepFilter2D(values, cv2.CV_64F, kernel, kernel, anchor=(3, 3), borderType=cv2.BORDER_REFLECT)
    return np.asarray(filtered[::2, ::2])


def _niqe_features(blocks: Floats) -> Floats:
    """The 18 features of each block, (N, side, side) to (N, 18)."""
    shape, left, right = _fit(blocks)
    features = [shape, (left + right) / 2]
    for shift in _NEIGHBOURS:
        shape, left, right = _fit(blocks * np.roll(blocks, shift, axis=(1, 2)))
        features += [shape, _mean(shape, left, right), left, right]
    return np.stack(features, axis=1)


def _brisque_features(values: Floats) -> Floats:
    """The 18 features of an image, (H, W) to (18,)."""
    blocks = values[None]
    square = np.mean(blocks**2)
    shape = _nearest_shape(np.mean(np.abs(blocks)) ** 2 / square if square else np.nan)
    features = [shape, square]
    for shift in _NEIGHBOURS:
        shape, left, right = (part[0] for part in _fit(blocks * np.roll(blocks, shift, axis=(1, 2))))
        unit = _width(shape) ** 2
        features += [shape, _mean(shape, left, right), left**2 / unit, right**2 / unit]
    return np.array(features)


# ---- generalised Gaussian distributions


def _fit(blocks: Floats) -> tuple[Floats, Floats, Floats]:
    """Shape and left and right width of the asymmetric distribution of each block's values."""
    squares = blocks**2
    with np.errstate(invalid="ignore", divide="ignore"):  # blocks without texture have no distribution
        left, right = (
            np.sqrt((squares * side).sum(axis=(1, 2)) / side.sum(axis=(1, 2))) for side in (blocks < 0, blocks > 0)
        )
        ratio = left / right
        flatness = np.abs(blocks).mean(axis=(1, 2)) ** 2 / squares.mean(axis=(1, 2))
    shape = _nearest_shape(flatness * (ratio**3 + 1) * (ratio + 1) / (ratio**2 + 1) ** 2)
    return shape, left * _width(shape), right * _width(shape)


def _nearest_shape(flatness: Any) -> Any:
    """The shape, in steps of 0.001 from 0.2 to 10, whose squared mean magnitude over mean square is nearest."""
    from scipy.special import gammaln

    shapes = np.arange(0.2, 10.001, 0.001)
    known = np.exp(2 * gammaln(2 / shapes) - gammaln(1 / shapes) - gammaln(3 / shapes))
    # One after the other: all differences at once would take a gigabyte for a large photo.
    found = [shapes[np.argmin(np.abs(known - value))] for value in np.ravel(flatness)]
    return np.reshape(found, np.shape(flatness))


def _width(shape: Any) -> Any:
    """The width of the distribution of this shape whose standard deviation is 1."""
    from scipy.special import gammaln

    return np.exp((gammaln(1 / shape) - gammaln(3 / shape)) / 2)


def _mean(shape: Any, left: Any, right: Any) -> Any:
    from scipy.special import gammaln

    return (right - left) * np.exp(gammaln(2 / shape) - gammaln(1 / shape))
