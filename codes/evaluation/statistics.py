"""Means with their standard errors, and the one rule that says whether a difference is one. Needs no torch."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

ERRORS = 2  # a difference within so many standard errors is called none
RULE = "A difference within two standard errors is called none."


@dataclass(frozen=True)
class Estimate:
    """A mean, its standard error (None where a single value leaves it unknown), and the number of values."""

    mean: float
    error: float | None
    count: int

    @property
    def differs(self) -> bool | None:
        """Whether the mean is a difference, by `RULE`; None where the standard error is not known.

        >>> Estimate(0.3, 0.2, 9).differs, Estimate(-0.5, 0.2, 9).differs, Estimate(0.5, None, 1).differs
        (False, True, None)
        """
        if self.error is None:
            return None
        return abs(self.mean) > ERRORS * self.error

    def sign(self, lower_is_better: bool) -> str:
        """What the mean of `one - other` says about the one: better, worse, none, or unknown."""
        if self.differs is None:
            return "unknown"
        if not self.differs:
            return "none"
        return "better" if (self.mean < 0) == lower_is_better else "worse"

    def text(self, digits: int, sign: str = "+") -> str:
        """The mean with its standard error, where that is known; with an empty `sign` no + precedes it.

        >>> Estimate(0.25, 0.125, 9).text(2), Estimate(0.25, None, 1).text(2, "")
        ('+0.25 ± 0.12', '0.25')
        """
        error = "" if self.error is None else f" ± {self.error:.{digits}f}"
        return f"{self.mean:{sign}.{digits}f}{error}"


def estimate(values: Sequence[float]) -> Estimate | None:
    """Mean and standard error of independent values; None without any.

    >>> estimate([1.0, 2.0, 3.0, 6.0])
    Estimate(mean=3.0, error=1.0801234497346435, count=4)
    """
    if not values:
        return None
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return Estimate(mean, None, 1)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    return Estimate(mean, math.sqrt(variance / count), count)


def paired(one: Mapping[str, float], other: Mapping[str, float]) -> Estimate | None:
    """The mean of `one - other` over the images that both have.

    >>> paired({"a": 2.0, "b": 4.0, "c": 9.0}, {"a": 1.0, "b": 3.0})
    Estimate(mean=1.0, error=0.0, count=2)
    """
    return estimate([one[name] - other[name] for name in sorted(one) if name in other])


def pooled(parts: Iterable[Estimate | None]) -> Estimate | None:
    """The mean of independent means, with equal weights; None unless all are known.

    >>> pooled([Estimate(1.0, 0.3, 5), Estimate(2.0, 0.4, 7)])
    Estimate(mean=1.5, error=0.25, count=12)
    """
    known: list[Estimate] = []
    for part in parts:
        if part is None:
            return None
        known.append(part)
    if not known:
        return None
    errors = [part.error for part in known if part.error is not None]
    error = math.sqrt(math.fsum(each**2 for each in errors)) / len(known) if len(errors) == len(known) else None
    return Estimate(math.fsum(part.mean for part in known) / len(known), error, sum(part.count for part in known))
