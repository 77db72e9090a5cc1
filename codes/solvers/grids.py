"""Time grids: where the network is evaluated.

A grid for N evaluations has N + 1 points, from the start (t = T, or lambda_min) to t = 0; the network sees all but
the last. Points are exact: alpha and sigma come from one Theta. Where lambda is infinite at t = 0 (convention
'irsde'), grids in lambda are laid out towards a finite end instead; the last step still leads to t = 0.

A grid is a function `(sde, start, nfe, solver, tau) -> the first nfe points`, beginning with `start`; t = 0 follows
them. Its row is in registry.py.
"""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from ..names import OptionValueError, check_choice
from ..sde import Array, MeanRevertingSDE, Point
from .options import Solver
from .registry import GRIDS, SOLVERS, resolve

# Interior points for 2 to 4 evaluations (docs/numerics.md, "Grids"), found for sigma_inf = 50/255 and the cosine
# schedule, whose lambda runs from -3.669 to 6.111. Other schedules use their shares of the lambda range.
_LAMBDA_RANGE = (-3.6690643266615, 6.1114351703282)
_OPTIMISED = {2: (0.51,), 3: (-0.29, 2.33), 4: (-0.48, 1.33, 3.25)}


def make_grid(sde: MeanRevertingSDE, solver: Solver, *, tau: float, default: str | None = None) -> tuple[Point, ...]:
    """The N + 1 points of the solver's time_schedule; where it has none of `default`, else of the algorithm's own."""
    schedule = solver.time_schedule or default or SOLVERS[solver.algorithm].grid
    nfe = solver.num_sample_steps
    if isinstance(schedule, str):
        check_choice("time_schedule", schedule, GRIDS)
        row = GRIDS[schedule]
        if row.sizes and nfe not in row.sizes:
            *most, last = map(str, row.sizes)
            raise OptionValueError(
                "time_schedule",
                f"time_schedule {schedule!r} has grids for {', '.join(most)} and {last} steps, got {nfe}; use 'auto'",
            )
        start = sde.start
        if solver.start_lambda > start.lambda_:
            start = sde.point_from_lambda(solver.start_lambda)
        points = (*resolve(row.layout)(sde, start, nfe, solver, tau), sde.point(0.0))
    else:
        if not all(0 <= t <= sde.T for t in schedule):
            raise OptionValueError("time_schedule", f"time_schedule has times outside [0, {sde.T}]: {schedule}")
        points = tuple(sde.point(t) for t in schedule)
    name = schedule if isinstance(schedule, str) else "as given"
    if not sde.reverts and points[0].t < sde.start.t - 1e-9:
        text = (
            f"time_schedule {name!r} starts at t = {points[0].t:g}, after the noise of the image, t = {sde.start.t:g}"
        )
        raise OptionValueError("time_schedule", text)
    check_monotone(points, name)
    return points


def check_monotone(points: tuple[Point, ...], name: str) -> None:
    """Raise unless time falls and lambda rises from point to point."""
    for s, t in pairwise(points):
        if not (t.t < s.t and t.lambda_ > s.lambda_):
            raise OptionValueError(
                "time_schedule",
                f"time_schedule {name!r} with {len(points) - 1} steps is not monotone: t = {s.t:g} is followed by "
                f"t = {t.t:g}",
            )


def auto(sde: MeanRevertingSDE, start: Point, nfe: int, solver: Solver, tau: float) -> list[Point]:
    """The best known grid for the number of evaluations."""
    layout = optimised if nfe in _OPTIMISED else sinh
    return layout(sde, start, nfe, solver, tau)


def linspace(sde: MeanRevertingSDE, start: Point, nfe: int, solver: Solver, tau: float) -> list[Point]:
    """Uniform in t. Hits the integers, where the networks were trained, when nfe divides T."""
    times = np.linspace(start.t, 0.0, nfe + 1)
    return [start, *(sde.point(t) for t in times[1:-1])]


def late(sde: MeanRevertingSDE, start: Point, nfe: int, solver: Solver, tau: float) -> list[Point]:
    """Uniform in the last fifth of the time, whose states hardly say more than the degraded image, then to t = 0.

    For networks whose first estimate is their best: later ones take its errors, which the states hold, for evidence.
    """
    times = start.t * (1 - np.arange(nfe) / (5 * nfe))
    return [start, *(sde.point(t) for t in times[1:])]


def leading(sde: MeanRevertingSDE, start: Point, nfe: int, solver: Solver, tau: float) -> list[Point]:
    """Whole strides counted from the end, the last evaluation at timestep_offset (at least 1).

    Differs from the published code, whose grid ends on t = 0 twice when the offset is 0 and counts one step more.
    """
    stride = int(start.t) // nfe
    last = max(solver.timestep_offset, 1.0)
    return [sde.point(last + i * stride) for i in reversed(range(nfe))]


def trailing(sde: MeanRevertingSDE, start: Point, nfe: int, solver: Solver, tau: float) -> list[Point]:
    """Whole strides counted from the start.

    Differs from the published code, whose grid stops above t = 0 and so returns a noisy image; with the missing last
    step it is the uniform grid.
    """
    return linspace(sde, start, nfe, solver, tau)


def karras_t(sde: MeanRevertingSDE, start: Point, nfe: int, solver: Solver, tau: float) -> list[Point]:
    """Uniform in t^(1/rho) from the start to t = 1, then to 0.

    Differs from the published code, which stops at t = 1.
    """
    ramp = np.linspace(start.t ** (1 / solver.rho), 1.0, nfe)
    return [start, *(sde.point(t) for t in ramp[1:] ** solver.rho)]


def _in_lambda(
    sde: MeanRevertingSDE, start: Point, nfe: int, spread: Callable[[float, float, int], Array]
) -> list[Point]:
    """The first nfe points of `spread(lambda_start, lambda_end, nfe)`; the end itself is the caller's t = 0."""
    return [
        start,
        *(sde.point_from_lambda(value) for value in spread(start.lambda_, sde.lambda_end, nfe)[1:-1]),
    ]


def linear_lambda(sde: MeanRevertingSDE, start: Point, nfe: int, solver: Solver, tau: float) -> list[Point]:
    """Uniform in lambda: the paper's choice. From 20 evaluations on some are at t < 1, below the training range."""
    return _in_lambda(sde, start, nfe, lambda low, high, n: np.linspace(low, high, n + 1))


def karras_n(sde: MeanRevertingSDE, start: Point, nfe: int, solver: Solver, tau: float) -> list[Point]:
    """Uniform in (sigma/alpha)^(1/rho): Karras et al. (2022), Eq. (5)."""

    def spread(low: float, high: float, n: int) -> Array:
        ramp = np.linspace(math.exp(-low / solver.rho), math.exp(-high / solver.rho), n + 1)
        return -solver.rho * np.log(ramp)

    return _in_lambda(sde, start, nfe, spread)


def sinh(sde: MeanRevertingSDE, start: Point, nfe: int, solver: Solver, tau: float) -> list[Point]:
    """lambda = c + w sinh(.), dense around c, where the details of an image are decided; no evaluation below t = 1.

    The constants, one pair for tau < 1 and one for tau = 1, minimise a network-free surrogate error (docs/numerics.md).
    """
    if tau < 1:
        centre, width = min(max(0.5 * nfe - 0.5, 1.0), 3.5), 2.8
    else:
        centre, width = 3.5, 2.0

    def spread(low: float, high: float, n: int) -> Array:
        ends = math.asinh((low - centre) / width), math.asinh((high - centre) / width)
        return centre + width * np.sinh(np.linspace(*ends, n + 1))

    points = _in_lambda(sde, start, nfe, spread)
    lambda_1 = float(sde.lambda_(1.0))
    if points[-1].lambda_ <= lambda_1 or nfe == 1 or start.lambda_ >= lambda_1:
        return points
    lambdas = spread(start.lambda_, lambda_1, nfe - 1)
    return [start, *(sde.point_from_lambda(value) for value in lambdas[1:-1]), sde.point(1.0)]


def optimised(sde: MeanRevertingSDE, start: Point, nfe: int, solver: Solver, tau: float) -> list[Point]:
    """The optimised grids for 2 to 4 evaluations, stretched to the lambda range of this schedule."""
    low, high = _LAMBDA_RANGE
    shares = (np.asarray([low, *_OPTIMISED[nfe], high]) - low) / (high - low)
    return _in_lambda(sde, start, nfe, lambda first, last, n: first + (last - first) * shares)
