"""Schedule arrays at integer times: theta, Theta, g, sigma, alpha, lambda, dt."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from codes.sde import MeanRevertingSDE

from .arrays import float32_tolerance, load_group, relative_error
from .case import Case

_KEY = re.compile(
    r"(?P<convention>daclip|irsde)/(?P<dtype>f64|f32)/(?P<schedule>\w+)/sigma(?P<sigma>[^/]+)/T(?P<T>\d+)"
    r"/eps(?P<eps>[^/]+)/(sample_T(?P<sample_T>\d+)/)?(?P<array>\w+)"
)


def cases(reference: Path) -> Iterator[Case]:
    """Every array of schedules.npz against `MeanRevertingSDE`; float32 relative to the array's largest entry."""
    arrays, _ = load_group(reference, "schedules")
    for key, theirs in arrays.items():
        match = _KEY.fullmatch(key)
        if match is None:
            yield Case(f"{key} (unknown key)", float("inf"), 0.0)
            continue
        T = int(match["sample_T"] or match["T"])
        sde = MeanRevertingSDE(
            max_sigma=float(match["sigma"]),
            T=T,
            schedule=match["schedule"],  # type: ignore[arg-type]
            eps=float(match["eps"]),
            convention=match["convention"],  # type: ignore[arg-type]
        )
        ours = _array(match["array"], sde, int(match["T"]))
        if match["dtype"] == "f64":
            yield Case(key, relative_error(ours, theirs), 1e-10)
        else:
            largest = float(np.abs(theirs[np.isfinite(theirs)]).max())
            yield Case(key, relative_error(ours, theirs, largest), float32_tolerance(sde, 1e-5))


def _array(name: str, sde: MeanRevertingSDE, training_T: int) -> ArrayLike:
    """Our counterpart of a published array."""
    t = np.arange(sde.T + 1)
    match name:
        case "thetas":
            return sde.theta_table
        case "thetas_cumsum":
            return sde.Theta_table
        case "dt":
            return sde.dt
        case "sigmas":
            return sde.g(t)
        case "sigma_bars":
            return sde.sigma(t)
        case "alpha":
            return sde.alpha(t)
        case "lambda":
            return sde.lambda_(t)
        case "sample_scale":
            return training_T / sde.T
    raise ValueError(f"schedules.npz: unknown array {name!r}")
