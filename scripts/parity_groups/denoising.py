"""The denoising process: tables, start times, and runs of the ODE and the SDE with a closed-form network."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from codes.names import scalar_time
from codes.sde import DenoisingSDE
from codes.solvers import Solver, sample

from .arrays import float32_tolerance, load_group, relative_error
from .case import Case

_TABLES: dict[str, Callable[[DenoisingSDE, ArrayLike], ArrayLike]] = {
    "thetas": lambda sde, t: sde.theta_table,
    "thetas_cumsum": lambda sde, t: sde.Theta_table,
    "sigmas": lambda sde, t: sde.g(t),
    "sigma_bars": lambda sde, t: sde.sigma(t),
    "dt": lambda sde, t: sde.dt,
}
_KIND = re.compile(r"tanh\(a\*\(x-0\.5\)\+b\*t/T\)")


def cases(reference: Path) -> Iterator[Case]:
    """Every case of denoising.npz with `compat: official`, which was recorded in float32; start times exactly."""
    arrays, manifest = load_group(reference, "denoising")
    for case in manifest:
        name = case["case"]
        sde = DenoisingSDE(
            max_sigma=case["max_sigma"], T=case["T"], schedule=case["schedule"], noise_level=case["sigma"]
        )
        for table, ours in _TABLES.items():
            theirs = arrays[f"{name}/{table}"]
            largest = float(np.abs(theirs).max())
            error = relative_error(ours(sde, np.arange(sde.T + 1)), theirs, largest)
            yield Case(f"{name}/{table}", error, float32_tolerance(sde, 1e-5))
        yield Case(f"{name}/start", abs(sde.published_start - case["start"]), 0.0)
        for algorithm in ("ode", "sde"):
            yield _run(f"{name}/{algorithm}", algorithm, sde, case, arrays)


def _run(key: str, algorithm: str, sde: DenoisingSDE, case: dict[str, Any], arrays: dict[str, np.ndarray]) -> Case:
    if not _KIND.fullmatch(case["network"]["kind"]):
        return Case(f"{key} (unknown network)", float("inf"), 0.0)
    a, b = case["network"]["a"], case["network"]["b"]

    @scalar_time
    def network(x: Tensor, mu: Tensor, t: float) -> Tensor:
        return torch.tanh(a * (x - 0.5) + b * t / sde.T)

    output = sample(
        network,
        sde,
        torch.from_numpy(arrays[f"{case['case']}/lq"]),
        Solver(algorithm, case["start"], compat="official"),
        fit_target="noise",
        noise=torch.from_numpy(arrays[f"{case['case']}/noise"]),
        return_trajectory=True,
        mu_range=None,
    )
    return Case(f"{key}/states", relative_error(torch.stack(output.states), arrays[key], 1.0), 2e-5)
