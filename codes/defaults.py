"""How an image is restored where nothing is said: the one place for these choices."""

from typing import Final

ALGORITHM: Final = "mrsampler-pc"
NFE: Final = 8  # network evaluations per image
