"""What `precision: auto` stands for: bf16 where it is fast and keeps the results, float32 everywhere else."""

import logging
import os
from dataclasses import dataclass, fields
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..runtime.processor import has_bf16, remembered
from .predictor import half_precision_problem, predictor

log = logging.getLogger(__name__)

SWITCH = "MR_SAMPLER_AUTO"  # in the environment: `fp32` is what `auto` then stands for, on every machine
# What bf16 may change on a set of images, on average, and in a single prediction where no images were measured.
MOST_PSNR, MOST_LPIPS, MOST_RELATIVE = 0.02, 0.001, 1e-2
_SIDE, _TIMES = 64, (1.0, 0.5, 0.1)


@dataclass(frozen=True)
class Bf16Change:
    """What bf16 changed in restorations, on average over a set of images: PSNR in dB, and LPIPS."""

    psnr: float
    lpips: float

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1000:
                raise ValueError(f"{each.name}: expected a number from -1000 to 1000, got {value!r}")

    @property
    def small(self) -> bool:
        """Whether the results count as kept."""
        return abs(self.psnr) <= MOST_PSNR and abs(self.lpips) <= MOST_LPIPS

    def __str__(self) -> str:
        return f"{self.psnr:+.4f} dB PSNR, {self.lpips:+.5f} LPIPS"


def automatic(
    network: nn.Module, device: torch.device, T: float, measured: Bf16Change | None = None, source: str = ""
) -> str:
    """The precision that `auto` stands for, fp32 or bf16.

    T          the last time of the network's schedule
    measured   what the checkpoint records: it decides, else a trial of the network does
    source     the file of the weights: what a trial found is remembered with it
    """
    if os.environ.get(SWITCH) == "fp32":
        return "fp32"
    if device.type != "cpu":
        return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"
    if not has_bf16() or (measured is not None and not measured.small):
        return "fp32"
    problem = half_precision_problem("bf16")
    if problem:
        log.info("precision: fp32, because this processor announces bf16 without having it: %s", problem)
        return "fp32"
    if measured is not None:
        return "bf16"
    error = _error(network, T, source)
    if error > MOST_RELATIVE:
        log.info("precision: fp32, because bf16 would change predictions of this network by %.2g", error)
    return "bf16" if error <= MOST_RELATIVE else "fp32"


def _error(network: nn.Module, T: float, source: str) -> float:
    try:
        state = Path(source).stat()
    except OSError:
        return relative_error(network, T)
    question = f"bf16 {source} {state.st_size} {state.st_mtime_ns} {type(network).__name__} {T}"
    return remembered(question, lambda: relative_error(network, T))


def relative_error(network: nn.Module, T: float) -> float:
    """How much bf16 changes predictions for a made-up image, at worst of three times; infinite where it cannot run.

    Both in root mean square, as a share of the prediction.
    """
    generator = torch.Generator().manual_seed(0)
    takes_mu = getattr(network, "takes_mu", True)
    channels = getattr(network, "in_channels", 6 if takes_mu else 3) // (2 if takes_mu else 1)
    coarse = torch.rand(1, channels, 8, 8, generator=generator)
    mu = F.interpolate(coarse, (_SIDE, _SIDE), mode="bicubic").clamp(0, 1)
    mu = (mu + 0.05 * torch.randn(mu.shape, generator=generator)).clamp(0, 1)
    x = mu + 0.2 * torch.randn(mu.shape, generator=generator)
    width = getattr(network, "context_dim", 0)
    text: Tensor | None
    image: Tensor | None
    text, image = F.normalize(torch.randn(2, 1, max(width, 1), generator=generator), dim=2)
    if not (width and getattr(network, "takes_text_context", True)):
        text = None
    if not (width and getattr(network, "takes_image_context", True)):
        image = None
    try:
        exact, half = (
            predictor(network, degraded=mu, text_context=text, image_context=image, precision=each)
            for each in ("fp32", "bf16")
        )
        worst = max(_distance(half(x, mu, share * T), exact(x, mu, share * T)) for share in _TIMES)
    except (RuntimeError, TypeError, ValueError) as error:  # a network of its own kind
        log.debug("precision: no trial: %s", error)
        return float("inf")
    return worst


def _distance(a: Tensor, b: Tensor) -> float:
    share = float((a - b).double().norm() / b.double().norm())
    return share if share == share else float("inf")
