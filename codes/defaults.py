"""Default network, solver and number of evaluations: the one place for these choices."""

from collections.abc import Mapping
from typing import Any, Final

# The network that comes with the project. What it recommends goes before the solver below.
WEIGHTS: Final = "pretrained/mr-universal.safetensors"

NFE: Final = 8  # network evaluations for each image

# Arguments of `codes.Solver`: MR Sampler-1, which is posterior sampling with correct strides. The more accurate solvers
# follow an imperfect network's errors more closely too; docs/solvers.md has the measurements, and a test compares.
SOLVER: Final[Mapping[str, Any]] = {"algorithm": "mrsampler", "order": 1, "clamp": True}
