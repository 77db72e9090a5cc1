"""Default network, solver and number of evaluations, and the bounds of what can be asked for: in one place."""

from collections.abc import Mapping
from typing import Any, Final

# The network that comes with the project. What it recommends goes before the solver below.
WEIGHTS: Final = "pretrained/mr-universal.safetensors"

NFE: Final = 8  # network evaluations for each image

# Arguments of `codes.Solver`: MR Sampler-1, which is posterior sampling with correct strides. The more accurate solvers
# follow an imperfect network's errors more closely too; docs/solvers.md has the measurements, and a test compares.
SOLVER: Final[Mapping[str, Any]] = {"algorithm": "mrsampler", "order": 1, "clamp": True}

# The same for option files, command lines and the Python interface.
MOST_EVALUATIONS: Final = 10_000  # far more than any solver gains from
MOST_SAMPLES: Final = 1_000
LARGEST_SEED: Final = 2**63 - 1
