"""Default solver and number of evaluations: the one place for these choices."""

from collections.abc import Mapping
from typing import Any, Final

NFE: Final = 8  # network evaluations for each image

# Arguments of `codes.Solver`: MR Sampler-1, which is posterior sampling with correct strides. The more accurate solvers
# follow an imperfect network's errors more closely too; the README (Which solver) has the measurements.
SOLVER: Final[Mapping[str, Any]] = {"algorithm": "mrsampler", "order": 1, "clamp": True}
