"""The published training objective: states, steps and losses."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from codes.prediction import convert
from codes.sde import MeanRevertingSDE
from codes.training.published import matching_loss, optimal_step_mean, optimal_step_std, reverse_step_mean

from .arrays import load_group, relative_error
from .case import Case

_SDE = re.compile(r"\((?P<sigma>[^,]+),(?P<T>\d+),(?P<schedule>\w+),(?P<eps>[^,)]+)\)")
# Near t = 1 the published float32 tables are off by 6e-5 (see `float32_tolerance`) and divide by a small sigma.
_TOLERANCES = {"f64": 1e-10, "f32": 5e-4}


def cases(reference: Path) -> Iterator[Case]:
    """Every array of training.npz, float64 and float32."""
    arrays, manifest = load_group(reference, "training")
    match = _SDE.search(manifest["sde"].replace(" ", ""))
    if match is None:
        raise ValueError(f"training.manifest.json: cannot read the schedule from {manifest['sde']!r}")
    sde, irsde = (
        MeanRevertingSDE(
            max_sigma=float(match["sigma"]),
            T=int(match["T"]),
            schedule=match["schedule"],  # type: ignore[arg-type]
            eps=float(match["eps"]),
            convention=convention,
        )
        for convention in ("daclip", "irsde")
    )
    for tag, dtype in (("f64", torch.float64), ("f32", torch.float32)):
        ours = _compute(sde, arrays, dtype)
        for name, value in ours.items():
            key = f"{tag}/{name}"
            if key in arrays:
                theirs = arrays[key]
                error = relative_error(value.double().reshape(theirs.shape), theirs, float(np.abs(theirs).max()))
                yield Case(key, error, _TOLERANCES[tag])
    key = "irsde_repo_f64/reverse_optimum_step"
    if key in arrays:
        x0, mu, _, t, _ = _inputs(arrays, torch.float64)
        # The state is DA-CLIP's in both: only the step differs.
        x = sde.marginal(x0, mu, t, torch.from_numpy(arrays["in/noise"]))
        yield Case(key, relative_error(optimal_step_mean(irsde, x, x0, mu, t), arrays[key], 1.0), 1e-10)


def _inputs(arrays: dict[str, np.ndarray], dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    x0, mu, noise, predicted = (
        torch.from_numpy(arrays[f"in/{name}"]).to(dtype) for name in ("x0", "mu", "noise", "predicted_noise")
    )
    return x0, mu, noise, torch.from_numpy(arrays["in/timesteps"]).flatten(), predicted


def _compute(sde: MeanRevertingSDE, arrays: dict[str, np.ndarray], dtype: torch.dtype) -> dict[str, Tensor]:
    """Our counterparts of the published arrays."""
    x0, mu, noise, t, predicted = _inputs(arrays, dtype)
    x = sde.marginal(x0, mu, t, noise)
    mean, optimal = reverse_step_mean(sde, x, mu, t, predicted), optimal_step_mean(sde, x, x0, mu, t)
    alpha = torch.from_numpy(sde.alpha(t.numpy())).to(dtype)
    sigma = torch.from_numpy(sde.sigma(t.numpy())).to(dtype)

    def each(values: Tensor, source: str, target: str) -> Tensor:
        """A conversion with a time for each image."""
        return torch.stack(
            [
                convert(y, state, m, sde.point(float(time)), source=source, target=target, sigma_inf=sde.sigma_inf)
                for y, state, m, time in zip(values, x, mu, t, strict=True)
            ]
        )

    result = {
        "noisy_states": x,
        "mu_bar": sde.marginal(x0, mu, t, torch.zeros_like(x0)),
        "sigma_bar": sigma,
        "weights": alpha,
        "score": each(predicted, "noise", "score"),
        "get_init_state_from_noise": each(predicted, "noise", "data"),
        "get_real_noise": each(x0, "data", "noise"),
        "get_real_score": each(x0, "data", "score"),
        "reverse_sde_step_mean": mean,
        "reverse_optimum_step": optimal,
        "reverse_optimum_std": optimal_step_std(sde, t, x).flatten(),
    }
    for kind in ("l1", "l2"):
        loss = matching_loss(mean, optimal, kind)
        weighted = matching_loss(mean, optimal, kind, alpha)
        # The published code asks for a weighted loss without passing weights: the option has no effect.
        result |= {f"loss_{kind}": loss, f"loss_{kind}_is_weighted_as_called": loss}
        result[f"loss_{kind}_weighted_with_sde_weights"] = weighted
    for key in arrays:
        match = re.fullmatch(r"f64/(posterior_step_t(\d+)_mean_std)", key)
        if match is not None:
            result[match[1]] = optimal_step_std(sde, torch.tensor([int(match[2])]), x[:1]).flatten()
    return result
