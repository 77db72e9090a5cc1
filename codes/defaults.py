"""How an image is restored where nothing is said: the one place for these choices."""

from collections.abc import Mapping
from typing import Any, Final

NFE: Final = 8  # network evaluations per image

# Arguments of `codes.Solver`. docs/results/study/study.md has the measurements behind them.
SOLVER: Final[Mapping[str, Any]] = {"algorithm": "mrsampler-pc"}
