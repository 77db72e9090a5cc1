"""Whole sampling runs with closed-form models and recorded noise."""

import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from codes.names import scalar_time
from codes.sde import MeanRevertingSDE
from codes.solvers import Solver, make_plan, sample
from codes.solvers.official import TIME_SCHEDULES

from .arrays import load_group, relative_error, runs
from .case import Case

Model = Callable[[Tensor, Tensor, float], Tensor]

_SDE = re.compile(r"max_sigma=(?P<sigma>[^,)]+),T=(?P<T>\d+),schedule=(?P<schedule>\w+),eps=(?P<eps>[^,)]+)")
_SDE_IN_KEY = re.compile(r"(?P<schedule>\w+)-sigma(?P<sigma>[^/-]+)-T(?P<T>\d+)-eps(?P<eps>[^/]+)")
_COMBINATION = re.compile(r"(?P<type>ode|sde)-(?P<parameterization>noise|data)-(?P<order>\d)")
_BASELINES = {"reverse_sde": "sde", "reverse_posterior": "posterior", "reverse_ode": "ode"}
_GAUSS_EXTRAS = ("denoise_last", "sde")
# What the published code was given where neither key nor manifest says it.
_THRESHOLDING = {"threshold_ratio": 0.9, "threshold_max": 1.5}


@scalar_time
def toy(x: Tensor, mu: Tensor, t: float) -> Tensor:
    """A smooth function that predicts nothing in particular."""
    return 0.3 * torch.tanh(x - mu) + 0.1 * math.sin(t / 10) * x


def gauss(sde: MeanRevertingSDE, mean: Tensor, std: float, fit_target: str) -> Model:
    """The exact predictor for x0 ~ N(mean, std^2), with Theta interpolated linearly between integers."""

    @scalar_time
    def predict(x: Tensor, mu: Tensor, t: float) -> Tensor:
        alpha = math.exp(-float(np.interp(t, np.arange(sde.T + 1), sde.Theta_table)) * sde.dt)
        sigma = sde.sigma_inf * math.sqrt(1 - alpha**2)
        m = mean.to(x)
        eps = sigma * (x - mu - alpha * (m - mu)) / (alpha**2 * std**2 + sigma**2)
        if fit_target == "noise":
            return eps
        x0 = (x - sigma * eps - (1 - alpha) * mu) / alpha
        return x0 if fit_target == "data" else (mu - x0) * sigma / sde.sigma_inf + sde.sigma_inf * alpha * eps

    return predict


def cases(reference: Path) -> Iterator[Case]:
    """Every run of trajectories.npz with `compat: official`: states to 1e-10, order sequence and times exactly.

    Runs with fewer evaluations than their order are skipped: the published code malfunctions there (it repeats a step
    or fails), and ours refuses them.
    """
    arrays, manifest = load_group(reference, "trajectories")
    for key in runs(arrays, "states"):
        yield from _run(key, arrays, manifest)
    for key in runs(arrays, "x0"):
        yield from _irsde_run(key, arrays, manifest)


def _describe(key: str, manifest: dict[str, Any]) -> tuple[MeanRevertingSDE, Solver, str, str]:
    """What a key stands for: the schedule, the solver, the model's name and what it predicts."""
    group, *parts = key.split("/")
    in_key = _SDE_IN_KEY.search(key)
    match = in_key or _SDE.search(manifest["sde"])
    if match is None:
        raise ValueError(f"{key}: no schedule in the key, nor in the manifest's 'sde': {manifest['sde']!r}")
    sde = MeanRevertingSDE(
        max_sigma=float(match["sigma"]),
        T=int(match["T"]),
        schedule=match["schedule"],  # type: ignore[arg-type]
        eps=float(match["eps"]),
    )
    nfe = int(re.search(r"/(?:nfe|N)(\d+)", key)[1])  # type: ignore[index]
    if group == "base":
        return sde, Solver(_BASELINES[parts[1]], nfe, compat="official"), parts[0], "noise"
    if group == "heun":
        return sde, Solver("heun", nfe, solver_type=parts[1], compat="official"), parts[0], "noise"  # type: ignore[arg-type]
    combination = _COMBINATION.search(key)
    assert combination is not None, key
    schedule = next((part for part in parts if part in TIME_SCHEDULES), "linspace")
    in_key_lambda = re.search(r"lmin(-?[\d.]+)", key)
    lambda_min = float(in_key_lambda[1] if in_key_lambda else re.search(r"-?[\d.]+", manifest["lambda_min"])[0])  # type: ignore[index]
    extra = parts[0] if group == "extra" else ""
    solver = Solver(
        "mrsampler",
        nfe,
        solver_type=combination["type"],  # type: ignore[arg-type]
        parameterization=combination["parameterization"],  # type: ignore[arg-type]
        order=int(combination["order"]),
        lambda_min=lambda_min,
        time_schedule=schedule,
        denoise_last=extra == "denoise_last",
        thresholding=extra == "thresholding",
        **{name: float(manifest.get(name, value)) for name, value in _THRESHOLDING.items()},  # type: ignore[arg-type]
        compat="official",
    )
    if group == "mr":
        return sde, solver, parts[0], parts[2]
    return sde, solver, "gauss" if extra in _GAUSS_EXTRAS else "toy", "noise"


def _model(name: str, sde: MeanRevertingSDE, arrays: dict[str, np.ndarray], fit_target: str) -> Model:
    if name == "toy":
        return toy
    return gauss(sde, torch.from_numpy(arrays["in/gauss_m"]), float(arrays["in/gauss_s"]), fit_target)


def _run(key: str, arrays: dict[str, np.ndarray], manifest: dict[str, Any]) -> Iterator[Case]:
    sde, solver, model_name, fit_target = _describe(key, manifest)
    if solver.order is not None and solver.num_sample_steps < solver.order:
        yield Case(key, 0.0, 0.0, skipped="fewer evaluations than the order: the published run malfunctions")
        return
    plan = make_plan(sde, solver)
    theirs = arrays[f"{key}/states"]
    if f"{key}/t_calls" in arrays:
        yield Case(f"{key}/t_calls", relative_error(plan.times, arrays[f"{key}/t_calls"], 1.0), 1e-10)
    if f"{key}/orders" in arrays:
        recorded = arrays[f"{key}/orders"]  # without the last step where that is a data prediction
        yield Case(f"{key}/orders", relative_error([s.order for s in plan.steps][: len(recorded)], recorded), 0.0)
    model = _model(model_name, sde, arrays, fit_target)

    def run(dtype: torch.dtype) -> np.ndarray:
        output = sample(
            model,
            sde,
            torch.from_numpy(arrays["in/mu"]).to(dtype),
            plan,
            fit_target=fit_target,
            noise=torch.from_numpy(arrays["in/noise"]).to(dtype),
            x_init=torch.from_numpy(theirs[0]).to(dtype),
            return_trajectory=True,
        )
        # A Heun step takes two evaluations, and the reference has the states after whole steps.
        kept = [0, *(i for i, step in enumerate(plan.steps, 1) if step.correct or not _is_first_half(plan.steps, i))]
        return torch.stack([output.states[i] for i in kept]).double().numpy()

    ours = run(torch.float64)
    # With denoise_last the reference has the final state, clipped, under `sample`.
    compared = ours[: len(theirs)] if solver.denoise_last else ours
    yield Case(f"{key}/states", relative_error(compared, theirs, 1.0), 1e-10)
    if f"{key}/sample" in arrays:
        yield Case(f"{key}/sample", relative_error(ours[-1].clip(0, 1), arrays[f"{key}/sample"], 1.0), 1e-10)
    if f"{key}/x0_f32" in arrays:
        # Against float64: the recorded float32 run has larger rounding errors than ours, up to 2e-4, since it computes
        # its coefficients in float32 too.
        yield Case(
            f"{key}/float32", relative_error(run(torch.float32)[-1], theirs[-1], 1.0), _float32_tolerance(solver)
        )


def _is_first_half(steps: tuple[Any, ...], i: int) -> bool:
    """Whether the i-th step (from 1) is completed by a corrector that does not advance."""
    return i < len(steps) and steps[i].correct is not None and steps[i].advance is None


def _float32_tolerance(solver: Solver) -> float:
    """For a float32 run against the float64 reference, relative to max(1, |x|)."""
    stable = solver.algorithm == "mrsampler" and (solver.parameterization == "data" or solver.solver_type == "ode")
    return 2e-5 if stable else 5e-4


def _irsde_run(key: str, arrays: dict[str, np.ndarray], manifest: dict[str, Any]) -> Iterator[Case]:
    """image-restoration-sde's own samplers: another convention of the schedule, only the final state recorded."""
    _, model_name, method, _ = key.split("/")
    match = _SDE.search(manifest["sde"])
    assert match is not None
    sde = MeanRevertingSDE(
        max_sigma=float(match["sigma"]),
        T=int(match["T"]),
        schedule=match["schedule"],  # type: ignore[arg-type]
        eps=float(match["eps"]),
        convention="irsde",
    )
    nfe = int(re.search(r"/N(\d+)", key)[1])  # type: ignore[index]
    output = sample(
        _model(model_name, sde, arrays, "noise"),
        sde,
        torch.from_numpy(arrays["in/mu"]),
        Solver(_BASELINES[method], nfe, compat="official"),
        fit_target="noise",
        noise=torch.from_numpy(arrays["in/noise"]),
        x_init=torch.from_numpy(arrays["in/x_init"]),
    )
    yield Case(key, relative_error(output.sample, arrays[f"{key}/x0"], 1.0), 1e-10)
