"""Computes the data of the figures: the functions that the rows of FIGURES name, and the runs behind them.

Each function takes one case per task of its row and returns the items of each file that the row stores.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.images import to_uint8
from ..exact import Mixture
from ..metrics import psnr
from ..names import scalar_time
from ..sde import MeanRevertingSDE
from ..solvers import SampleOutput, Solver, make_plan, sample
from ..solvers.sampling import Network
from .comparison import ComparisonRow
from .convergence import ConvergenceRun, convergence_ratio
from .stability import SCHEMES, Gain, Scheme
from .style import Image
from .trajectories import Pair, Trajectory

TRAJECTORIES = (
    ("Posterior", 100, Solver("posterior", 100, compat="official")),
    ("Posterior", 10, Solver("posterior", 10, compat="official")),
    ("Euler", 10, Solver("sde", 10, compat="official")),
    ("MR Sampler-1", 10, Solver("mrsampler", 10, order=1)),
    ("MR Sampler-2", 10, Solver("mrsampler", 10, order=2)),
    ("mrsampler-pc", 10, Solver("mrsampler-pc", 10)),
)
COMPARISON = (
    ("posterior (100)", Solver("posterior", 100, compat="official")),
    ("posterior (10)", Solver("posterior", 10, compat="official")),
    ("MR Sampler (10)", Solver("mrsampler", 10, order=2)),
    ("MR Sampler (5)", Solver("mrsampler", 5, order=2)),
)
CONVERGENCE_NFES = (5, 10, 20, 50)
STABILITY_STEPS = (25, 30, 38, 50, 68, 100, 160)
_CONVERGENCE = (("data", "sde"), ("noise", "sde"), ("noise", "ode"))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A network and one image to restore: `lq` is (1, 3, H, W), `gt`, the clean one, (3, H, W)."""

    network: Network
    sde: MeanRevertingSDE
    fit_target: str
    lq: Tensor
    gt: Tensor
    seed: int
    recommended: Solver | None = None  # what the checkpoint recommends

    @torch.inference_mode()
    def run(self, solver: Solver) -> SampleOutput:
        """Restore the image; the output includes all states and predictions."""
        generator = torch.Generator().manual_seed(self.seed)
        return sample(
            self.network,
            self.sde,
            self.lq,
            solver,
            fit_target=self.fit_target,
            generator=[generator],
            return_trajectory=True,
        )

    def psnr(self, image: Image) -> float:
        """PSNR against the clean image."""
        return psnr(image, to_uint8(self.gt))


def _channels_last(tensors: Sequence[Tensor]) -> NDArray[np.float32]:
    return np.stack([x[0].permute(1, 2, 0).float().cpu().numpy() for x in tensors])


def trajectories(cases: Mapping[str, Case]) -> tuple[list[Trajectory], list[Pair]]:
    """Runs of several methods from the same start, and the degraded and clean image."""
    (case,) = cases.values()
    runs = [
        Trajectory(name, nfe, _channels_last(case.run(solver).states).astype(np.float16))
        for name, nfe, solver in TRAJECTORIES
    ]
    return runs, [Pair(to_uint8(case.lq[0]), to_uint8(case.gt))]


def convergence(cases: Mapping[str, Case]) -> tuple[list[ConvergenceRun]]:
    """Second-order runs on the uniform lambda grid, with their convergence ratios."""
    (case,) = cases.values()
    runs = []
    for nfe in CONVERGENCE_NFES:
        for parameterization, solver_type in _CONVERGENCE:
            solver = Solver("mrsampler", nfe, solver_type=solver_type, parameterization=parameterization, order=2)  # type: ignore[arg-type]
            plan = make_plan(case.sde, solver)
            lambdas = [*(step.point.lambda_ for step in plan.steps), plan.end.lambda_]
            output = case.run(solver)
            predictions = _channels_last(output.predictions)
            centred = None
            if parameterization == "data":
                centred = convergence_ratio(predictions - _channels_last([case.lq]), lambdas)
            image = to_uint8(output.sample[0])
            ratios = convergence_ratio(predictions, lambdas)
            runs.append(
                ConvergenceRun(
                    nfe=nfe,
                    parameterization=parameterization,
                    solver_type=solver_type,
                    ratios=ratios,
                    image=image,
                    psnr=case.psnr(image),
                    centred=centred,
                )
            )
    return (runs,)


def comparisons(cases: Mapping[str, Case]) -> tuple[list[ComparisonRow]]:
    """One row per task: the degraded image, each method, the clean image."""
    return ([_comparison(case, task) for task, case in cases.items()],)


def _comparison(case: Case, title: str) -> ComparisonRow:
    own = case.recommended
    columns = [*COMPARISON, *([] if own is None else [(f"recommended ({own.nfe})", own)])]
    images = [to_uint8(case.lq[0]), *(to_uint8(case.run(solver).sample[0]) for _, solver in columns)]
    notes = tuple(f"{case.psnr(image):.1f} dB" for image in images)
    captions = ("degraded", *(name for name, _ in columns), "clean")
    return ComparisonRow(title, captions, (*notes, ""), np.stack([*images, to_uint8(case.gt)]))


# A schedule with a lambda range of 70 instead of 10: enough equal steps, even of length 3, for a gain to settle.
_LONG = MeanRevertingSDE(eps=1e-30)
_BROAD = 1e40  # standard deviation of the broad data


def measured_gain(scheme: Scheme, steps: int) -> Gain:
    """Growth per step of an error in the network's first prediction, measured on the scheme's exact problem.

    The problem is linear and the run starts at its mean, without noise, so the final state is the error alone.
    """
    variance = 0.0 if scheme.data == "narrow" else _BROAD**2
    problem = Mixture(
        name=scheme.data, weights=np.ones(1), means=np.zeros((1, 1)), variances=np.full((1, 1), variance), sde=_LONG
    )
    noise_prediction = scheme.parameterization == "noise"

    @scalar_time
    def network(x: Tensor, mu: Tensor, t: float) -> Tensor:
        alpha, sigma = float(_LONG.alpha(t)), float(_LONG.sigma(t))
        data = problem.data(x - mu, alpha, sigma)
        if t == _LONG.T:
            data = data + sigma / alpha  # the same error in both kinds of prediction: -1 in the noise
        return (x - mu - alpha * data) / sigma if noise_prediction else data + mu

    solver = Solver(
        "mrsampler",
        steps,
        parameterization="noise" if noise_prediction else "data",
        order=scheme.order,
        tau=scheme.tau,
    )
    plan = make_plan(_LONG, solver)
    mu = torch.zeros(1, 1, dtype=torch.float64)
    output = sample(
        network, _LONG, mu, plan, fit_target=scheme.parameterization, noise=[mu] * (steps + 1), return_trajectory=True
    )
    points = [*(step.point for step in plan.steps), plan.end]
    scale = [point.sigma if scheme.data == "narrow" else point.alpha for point in points]
    size = [abs(float(x)) / s for x, s in zip(output.states, scale, strict=True)]
    half = len(size) // 2
    gain = math.exp((math.log(size[-1]) - math.log(size[half])) / (len(size) - 1 - half))
    h = (points[-1].lambda_ - points[0].lambda_) / steps
    return Gain(**asdict(scheme), h=h, gain=gain)


def stability(cases: Mapping[str, Case]) -> tuple[list[Gain]]:
    """Measured gains of all schemes; needs no image."""
    return ([measured_gain(scheme, number) for scheme in SCHEMES for number in STABILITY_STEPS],)
