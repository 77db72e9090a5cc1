"""Whether a published number is reproduced: the rules, which are fixed before anything is run, and their verdicts.

They apply to the paper's own network alone. Another network has other numbers, on the same images too.
"""

from dataclasses import dataclass

from ..evaluation.statistics import ERRORS, Estimate
from ..rows import Column


@dataclass(frozen=True)
class Tolerance:
    """How far a number may be from the published one: absolutely, or relative to it, whichever allows more."""

    absolute: float
    relative: float
    text: str

    def allows(self, difference: float, published: float) -> bool:
        """Whether a difference is within it."""
        return abs(difference) <= max(self.absolute, self.relative * abs(published))


# The paper has one comparison with itself: at 100 evaluations its posterior sampling and its MR Sampler-1 are the same
# scheme on two grids. They differ by up to 3.9 % in LPIPS, 0.14 dB, 0.0058 in SSIM and, but for one doubtful number,
# 10.1 % in FID. A run with other noise cannot be asked for more.
TOLERANCES = {
    "lpips": Tolerance(0.002, 0.05, "5 %"),
    "fid": Tolerance(0.5, 0.11, "11 %"),
    "psnr": Tolerance(0.15, 0.0, "0.15 dB"),
    "ssim": Tolerance(0.006, 0.0, "0.006"),
}
NOT = "not reproduced"
RULES = """\
A published number is
- *reproduced within the tolerance* if ours differs by at most 5 % in LPIPS (or 0.002, if that is more), 11 % in FID
  (or 0.5), 0.15 dB in PSNR, 0.006 in SSIM;
- *reproduced within two standard errors* if fewer images were restored than the paper has, and the difference is at
  most two standard errors of our mean over them; FID has no such verdict;
- *not reproduced* otherwise.
The tolerances are what the paper differs from itself: its posterior sampling and its MR Sampler-1 with 100 evaluations
are one scheme on two grids. Misprints are compared as printed, and not counted. A table is reproduced if at least 95 %
of its numbers are."""
ENOUGH = 0.95


def verdict(column: Column, published: float, ours: Estimate, all_images: bool) -> str:
    """What the rules say about one number; `all_images` says whether ours is of as many images as the paper's."""
    difference = ours.mean - published
    tolerance = TOLERANCES[column.name]
    if tolerance.allows(difference, published):
        return f"reproduced within {tolerance.text}"
    if not all_images and ours.error is not None and abs(difference) <= ERRORS * ours.error:
        return "reproduced within two standard errors"
    return NOT
