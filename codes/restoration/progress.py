"""Reports on a restoration while it runs: after each evaluation, and after each tile of one."""

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from ..names import scalar_time
from ..solvers import StepInfo
from ..solvers.sampling import Network

Callback = Callable[[StepInfo], None]
Progress = Callable[[float], None]


def counted(callback: Callback | None, before: int, total: int) -> Callback | None:
    """The callback with steps counted through all samples."""
    if callback is None:
        return None
    return lambda info: callback(replace(info, step=before + info.step, steps=total))


def within(progress: Progress | None, start: float, share: float) -> Progress | None:
    """The progress of a part of the work, as progress of all of it."""
    return None if progress is None else lambda done: progress(start + share * done)


def reporting(network: Network, progress: Progress, calls: int) -> Network:
    """The network, which reports after each call how many of so many are done."""
    done = 0

    def evaluate(x: Tensor, mu: Tensor, t: float | Tensor) -> Tensor:
        nonlocal done
        prediction = network(x, mu, t)
        done += 1
        progress(min(done / calls, 1.0))
        return prediction

    return scalar_time(evaluate) if getattr(network, "takes_scalar_time", False) else evaluate
