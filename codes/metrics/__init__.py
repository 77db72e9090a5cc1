"""How good restored images are: each pair (PSNR, SSIM, LPIPS) and a whole set of them (FID, KID)."""

from dataclasses import dataclass
from typing import Literal

from .distribution import fid, kid
from .perceptual import LPIPS, InceptionFeatures
from .pixel import luma, psnr, psnr_y, ssim, ssim_y
from .weights import MissingWeights, WeightsName, WrongWeights, find_weights

__all__ = [
    "INDICATIVE_FID_BELOW",
    "LPIPS",
    "METRICS",
    "InceptionFeatures",
    "Metric",
    "MissingWeights",
    "WrongWeights",
    "fid",
    "find_weights",
    "kid",
    "luma",
    "psnr",
    "psnr_y",
    "ssim",
    "ssim_y",
]


@dataclass(frozen=True)
class Metric:
    """What a table has to know about a metric."""

    name: str
    label: str
    lower_is_better: bool
    per: Literal["image", "set"]
    needs_weights: WeightsName | None
    digits: int  # after the decimal point


METRICS = {
    "psnr": Metric("psnr", "PSNR", False, "image", None, 2),
    "ssim": Metric("ssim", "SSIM", False, "image", None, 4),
    "psnr_y": Metric("psnr_y", "PSNR-Y", False, "image", None, 2),
    "ssim_y": Metric("ssim_y", "SSIM-Y", False, "image", None, 4),
    "lpips": Metric("lpips", "LPIPS", True, "image", "lpips", 4),
    "fid": Metric("fid", "FID", True, "set", "fid", 2),
    "kid": Metric("kid", "KID", True, "set", "fid", 5),
}

# FID depends on the number of images; below this it may rank results of one set, but says little by itself.
INDICATIVE_FID_BELOW = 500
