"""A plan: everything a sampler does, as a table of numbers computed once in float64.

One step goes from the state x at one point of the grid to the next:

    x_next = a x + b mu + sum_j c_j m_j + d z

with the predictions m_0 (newest), m_1, ... and fresh Gaussian noise z. Euler, posterior sampling, Heun and all
algorithms of the paper are rows of this form; `sample` runs any of them.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from torch import Tensor

from ..sde import MeanRevertingSDE, Point, linear_combination
from .options import Solver, Threshold


@dataclass(frozen=True, kw_only=True)
class Row:
    """The coefficients of one linear update, as plain floats.

    c[0] belongs to the newest prediction. `d_prev` is the weight of the noise drawn before `d`'s: a corrector
    repeats a step with the same noise.
    """

    a: float
    b: float
    c: tuple[float, ...]
    d: float = 0.0
    d_prev: float = 0.0

    def __call__(
        self, x: Tensor, mu: Tensor, history: tuple[Tensor, ...], z: Tensor | None, z_prev: Tensor | None
    ) -> Tensor:
        """x_next; pure. z and z_prev may be None where their weights are 0."""
        terms = [(self.a, x), (self.b, mu), *zip(self.c, history)]
        if z is not None:
            terms.append((self.d, z))
        if z_prev is not None:
            terms.append((self.d_prev, z_prev))
        return linear_combination(terms)


@dataclass(frozen=True)
class Step:
    """One network evaluation at `point` and what follows from it.

    correct   replaces the state at `point` by a better one, from the state one step earlier and all predictions
              including the new one
    advance   leads from the state at `point` to the next one
    order     how many predictions `advance` uses (for information)
    """

    point: Point
    advance: Row | None
    correct: Row | None = None
    order: int = 1


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Steps in the order they are made, and what the loop needs besides."""

    sde: MeanRevertingSDE
    steps: tuple[Step, ...]
    end: Point
    parameterization: str
    start_sigma: float
    clamp: tuple[float, float] | None = None
    threshold: Threshold | None = None

    @property
    def nfe(self) -> int:
        """Network evaluations that running the plan takes."""
        return len(self.steps)

    @property
    def times(self) -> tuple[float, ...]:
        """The times at which the network is evaluated."""
        return tuple(step.point.t for step in self.steps)

    @cached_property
    def depth(self) -> int:
        """How many predictions must be kept."""
        rows = [row for step in self.steps for row in (step.advance, step.correct) if row is not None]
        return max(len(row.c) for row in rows)


class PlannedSolver(NamedTuple):
    """A solver under a label, such as those of an option file, with its plan on one schedule."""

    label: str
    solver: Solver
    plan: Plan
