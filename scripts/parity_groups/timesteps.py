"""The published time grids, with the coefficients at their points."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from codes.sde import MeanRevertingSDE
from codes.solvers.official import published_times
from codes.solvers.options import Solver

from .arrays import float32_tolerance, load_group, relative_error, runs
from .case import Case

_KEY = re.compile(
    r"(?P<dtype>f64|f32)/(?P<schedule>\w+)/sigma(?P<sigma>[^/]+)/T(?P<T>\d+)/lmin(?P<lambda_min>[^/]+)"
    r"/(?P<time_schedule>[\w-]+)/nfe(?P<nfe>\d+)"
)


def cases(reference: Path) -> Iterator[Case]:
    """times, alphas, sigmas and lambdas of every grid in timesteps.npz."""
    arrays, manifest = load_group(reference, "timesteps")
    for key in runs(arrays, "timesteps"):
        match = _KEY.fullmatch(key)
        if match is None:
            yield Case(f"{key} (unknown key)", float("inf"), 0.0)
            continue
        sde = MeanRevertingSDE(
            max_sigma=float(match["sigma"]),
            T=int(match["T"]),
            schedule=match["schedule"],  # type: ignore[arg-type]
            eps=float(manifest["eps"]),
            interpolation="official",
        )
        solver = Solver(
            "mrsampler",
            int(match["nfe"]),
            time_schedule=match["time_schedule"],
            lambda_min=float(match["lambda_min"]),
            rho=float(manifest["rho"]),
            timestep_offset=float(manifest["timestep_offset"]),
        )
        times = published_times(sde, solver)
        tolerance = 1e-10 if match["dtype"] == "f64" else float32_tolerance(sde, 1e-3)
        yield Case(f"{key}/timesteps", relative_error(times, arrays[f"{key}/timesteps"], 1.0), tolerance)
        # The coefficients are compared at the recorded times: sigma's slope near t = 0 would magnify their rounding.
        recorded = np.asarray(arrays[f"{key}/timesteps"], np.float64)
        for name, values in (
            ("alphas", sde.alpha(recorded)),
            ("sigmas", sde.sigma(recorded)),
            ("lambdas", sde.lambda_(recorded)),
        ):
            floor = 1.0 if match["dtype"] == "f32" else 0.0
            yield Case(f"{key}/{name}", relative_error(values, arrays[f"{key}/{name}"], floor), tolerance)
