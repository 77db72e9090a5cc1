"""Quality of restored images; a row of METRICS each.

Of each pair (PSNR, SSIM, LPIPS), of each image alone (NIQE, BRISQUE) and of whole sets (FID, KID).
"""

from ..rows import METRICS, Metric
from .distribution import fid, kid
from .natural import BRISQUE, NIQE
from .perceptual import LPIPS, InceptionFeatures
from .pixel import luma, psnr, psnr_y, ssim, ssim_y
from .scorer import INDICATIVE_FID_BELOW, SET_METRICS, Scorer, make_features, make_scorer, names_for, set_scores
from .weights import MissingWeights, WrongWeights, find_weights

__all__ = [
    "BRISQUE",
    "INDICATIVE_FID_BELOW",
    "LPIPS",
    "METRICS",
    "NIQE",
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
    "names_for",
    "psnr",
    "psnr_y",
    "set_scores",
    "ssim",
    "ssim_y",
]
