"""Quality of restored images: of each pair (PSNR, SSIM, LPIPS) and of whole sets (FID, KID); a row of METRICS each."""

from ..rows import METRICS, Metric
from .distribution import fid, kid
from .perceptual import LPIPS, InceptionFeatures
from .pixel import luma, psnr, psnr_y, ssim, ssim_y
from .scorer import INDICATIVE_FID_BELOW, SET_METRICS, Scorer, make_features, make_scorer, set_scores
from .weights import MissingWeights, WrongWeights, find_weights

__all__ = [
    "INDICATIVE_FID_BELOW",
    "LPIPS",
    "METRICS",
    "SET_METRICS",
    "InceptionFeatures",
    "Metric",
    "MissingWeights",
    "Scorer",
    "WrongWeights",
    "fid",
    "find_weights",
    "kid",
    "luma",
    "make_features",
    "make_scorer",
    "psnr",
    "psnr_y",
    "set_scores",
    "ssim",
    "ssim_y",
]
