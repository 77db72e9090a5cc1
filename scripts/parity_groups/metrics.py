"""PSNR, SSIM and conversions of the published code; LPIPS and Inception features of calibration images."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from codes.metrics import LPIPS, InceptionFeatures, MissingWeights, luma, psnr, psnr_y, ssim, ssim_y

from .arrays import load_group, relative_error, runs
from .case import Case

_METRICS: dict[str, Callable[..., float]] = {"psnr": psnr, "ssim": ssim, "psnr_y": psnr_y, "ssim_y": ssim_y}
# The published code gives the same whether it gets 8-bit images or floats, so one function of ours stands for both.
_METRIC = re.compile(r"(?P<name>psnr_y|ssim_y|psnr|ssim)(_uint8in|_crop(?P<crop>\d+))?")
# Cb and Cr of R, G, B; only the published code has them, we need Y alone.
_CHROMA = np.array([[-37.797, -74.203, 112.0], [112.0, -93.786, -18.214]])


def cases(reference: Path) -> Iterator[Case]:
    """Everything in metrics.npz to 1e-10, and in perceptual/calibration.npz, where there is one, to 1e-4."""
    arrays, _ = load_group(reference, "metrics")
    for key, theirs in arrays.items():
        group, _, name = key.rpartition("/")
        if name in ("a", "b") or name.startswith("in_"):
            continue
        ours: ArrayLike | None
        if name.startswith("out_"):
            ours = _converted(name, next(arrays[f"{group}/{k}"] for k in _names(arrays, group) if k.startswith("in_")))
        elif (match := _METRIC.fullmatch(name)) is not None:
            if np.isnan(theirs):
                yield Case(key, 0.0, 0.0, skipped="smaller than the window: the published result is not a number")
                continue
            a, b = (_rgb(arrays[f"{group}/{k}"]) for k in ("a", "b"))
            ours = _METRICS[match["name"]](a, b, crop_border=int(match["crop"] or 0))
        else:
            ours = _colours(name, arrays[f"{group}/a"])
        if ours is None:
            yield Case(f"{key} (unknown key)", float("inf"), 0.0)
        else:
            yield Case(key, relative_error(ours, theirs), 1e-10)
    path = reference / "perceptual" / "calibration.npz"
    if path.is_file():
        yield from _perceptual(path)


def _names(arrays: dict[str, np.ndarray], group: str) -> list[str]:
    return [key.removeprefix(f"{group}/") for key in arrays if key.startswith(f"{group}/")]


def _rgb(image: np.ndarray) -> np.ndarray:
    """Ours is RGB, the reference BGR."""
    return image[:, :, ::-1] if image.ndim == 3 else image


def _colours(name: str, bgr: np.ndarray) -> np.ndarray | None:
    """Published conversions to YCbCr. 8-bit ones are rounded; floating-point ones are over 255."""
    match name:
        case "y_a_times255":
            return luma(_rgb(bgr))
        case "bgr2ycbcr_u8_y":
            return luma(_rgb(bgr)).round()
        case "rgb2ycbcr_u8_y":
            return luma(bgr).round()  # the published function was given the same array
        case "bgr2ycbcr_u8_full":
            return _ycbcr(bgr).round()
        case "bgr2ycbcr_f64_full":
            return _ycbcr(bgr) / 255
    return None


def _ycbcr(bgr: np.ndarray) -> np.ndarray:
    rgb = _rgb(bgr)
    return np.dstack([luma(rgb), rgb @ _CHROMA.T / 255 + 128])


def _converted(name: str, values: np.ndarray) -> np.ndarray | None:
    """The published conversions between images, BGR bytes (H, W, 3), and tensors, RGB in [0, 1] (3, H, W)."""
    if name == "out_hwc_bgr":
        # Their squeeze takes a height or width of 1 for a missing one and leaves such an image as it is.
        values = values.squeeze()
        if values.ndim == 3:
            values = values.transpose(1, 2, 0)[:, :, ::-1]
        return (values.clip(0, 1) * np.float32(255)).round()
    if name == "out_chw_rgb":
        return np.asarray(values[:, :, ::-1].transpose(2, 0, 1).astype(np.float32) / np.float32(255))
    return None


def _perceptual(path: Path) -> Iterator[Case]:
    """Distances of pairs and features of images; what needs weights that are missing is skipped."""
    with np.load(path) as archive:
        arrays = {key: archive[key] for key in archive.files}
    prefix = f"{path.parent.name}/"

    def compare(keys: list[str], load: Callable[[], Any], ours: Callable[[Any, str], np.ndarray]) -> Iterator[Case]:
        try:
            network = load() if keys else None
        except MissingWeights as error:
            yield from (Case(prefix + key, 0.0, 0.0, skipped=str(error)) for key in keys)
            return
        for key in keys:
            yield Case(prefix + key, relative_error(ours(network, key), arrays[key], 1.0), 1e-4)

    def pair(network: LPIPS, key: str) -> np.ndarray:
        group = key.rpartition("/")[0]
        return network.forward(arrays[f"{group}/a"], arrays[f"{group}/b"])

    def features(network: InceptionFeatures, key: str) -> np.ndarray:
        return network.forward(arrays[f"{key.rpartition('/')[0]}/images"])

    yield from compare([f"{key}/lpips_alex" for key in runs(arrays, "lpips_alex")], LPIPS, pair)
    yield from compare([f"{key}/features" for key in runs(arrays, "features")], InceptionFeatures, features)
    for key in runs(arrays, "lpips_vgg"):
        yield Case(f"{prefix}{key}/lpips_vgg", 0.0, 0.0, skipped="LPIPS is computed with AlexNet only")
