"""One comparison with reference data."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """What was compared, how far off we are and how far off we may be; or why it was not compared."""

    name: str
    error: float
    tolerance: float
    skipped: str = ""

    @property
    def failed(self) -> bool:
        # `not <=` rather than `>`: a NaN error fails.
        return not self.skipped and not self.error <= self.tolerance
