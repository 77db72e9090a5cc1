"""What a checkpoint recommends: the solver that suits its network, and how careful to be with photos that look clean.

`save_checkpoint` stores it in the file's metadata, and restore.py, the Python API and the web page use it by default.
"""

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ..solvers import Solver

NONE = "none"  # the class of images that are not degraded
# Changes, as a PSNR between input and result in dB, are limited to this range.
LEAST_CHANGE, GREATEST_CHANGE = 60.0, 5.0
# Probabilities closer to 0 or 1 than this count as this close.
_CERTAIN = 1e-4


@dataclass(frozen=True, kw_only=True)
class CarefulRule:
    """How much of a restoration is applied: all of it to what is clearly degraded, nothing to what looks clean.

    The strength, clipped to [0, 1], is

        bias - none * log(p / (1 - p)) - change * D / 10

    p is the probability that the image is not degraded, D the change that a restoration at full strength makes, as a
    PSNR in dB. An image is thus left alone where the network recognises nothing and would change little.
    """

    bias: float
    none: float = 0.0
    change: float = 0.0

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1000:
                raise ValueError(f"{each.name}: expected a number from -1000 to 1000, got {value!r}")
            if each.name != "bias" and value < 0:
                raise ValueError(f"{each.name}: expected 0 or more, got {value!r}")

    def strength(self, none: float, change: float) -> float:
        """The strength for the probability of no degradation, and a change in dB."""
        return min(max(self.score(none, change), 0.0), 1.0)

    def score(self, none: float, change: float) -> float:
        """The strength before it is clipped."""
        p = min(max(none, _CERTAIN), 1 - _CERTAIN)
        decibels = min(max(change, GREATEST_CHANGE), LEAST_CHANGE)
        return self.bias - self.none * math.log(p / (1 - p)) - self.change * decibels / 10

    def bounds(self, none: float) -> tuple[float, float]:
        """The least and the greatest strength that a change of any size can have."""
        return self.strength(none, LEAST_CHANGE), self.strength(none, GREATEST_CHANGE)


@dataclass(frozen=True)
class Recommended:
    """The solver, and the rule of careful restoration; None where the checkpoint has no opinion."""

    solver: Solver | None = None
    careful: CarefulRule | None = None

    def to_json(self) -> str:
        """As it is stored: without what is a default."""
        value: dict[str, Any] = {}
        if self.solver is not None:
            value["solver"] = given(self.solver)
        if self.careful is not None:
            value["careful"] = asdict(self.careful)
        return json.dumps(value)


def given(solver: Solver) -> dict[str, Any]:
    """The arguments of a solver that are not its defaults; algorithm and number of evaluations always."""
    always = ("algorithm", "num_sample_steps")
    return {
        each.name: getattr(solver, each.name)
        for each in fields(solver)
        if each.name in always or getattr(solver, each.name) != each.default
    }


def from_json(text: str) -> Recommended:
    """What `to_json` wrote; raises ValueError with the reason for anything else."""
    try:
        value = json.loads(text)
        known: dict[str, type[Solver] | type[CarefulRule]] = {"solver": Solver, "careful": CarefulRule}
        _check_keys(value, known)
        return Recommended(**{key: _made(key, known[key], value[key]) for key in value})
    except RecursionError:
        raise ValueError("recommended: nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"recommended: {error}") from None


def _made(key: str, kind: type[Solver] | type[CarefulRule], arguments: Any) -> Any:
    try:
        _check_keys(arguments, [each.name for each in fields(kind)])
        return kind(**arguments)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{key}: {error}") from None


def _check_keys(value: Any, known: Collection[str]) -> None:
    if not isinstance(value, Mapping) or set(value) - set(known):
        raise ValueError(f"expected some of {', '.join(known)}")
