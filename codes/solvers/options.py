"""The choice of a solver: the published option names, and ours."""

import math
from dataclasses import dataclass
from typing import Literal

from ..defaults import NFE
from ..names import check_choice
from ..prediction import PREDICTIONS
from .plan import Threshold

ALGORITHMS = ("mrsampler", "mrsampler-pc", "posterior", "sde", "ode", "heun")
TIME_SCHEDULES = (
    "auto",
    "linear-lambda",
    "linspace",
    "leading",
    "trailing",
    "karras-n",
    "karras-t",
    "sinh",
    "optimised",
)

Algorithm = Literal["mrsampler", "mrsampler-pc", "posterior", "sde", "ode", "heun"]


@dataclass(frozen=True)
class Solver:
    """An algorithm with its options; None stands for the algorithm's own default.

    `Solver(options["sde"]["algorithm"], **options["sampler"])` takes a published option file as it is.

    algorithm          'mrsampler' (the paper's Algorithms 1-8), 'mrsampler-pc' (predictor-corrector, gated),
                       'posterior', 'sde' (Euler-Maruyama), 'ode' (Euler on the probability-flow ODE), 'heun'
    num_sample_steps   number of network evaluations (NFE)
    solver_type        'sde' or 'ode'; short for tau = 1 or 0
    parameterization   'data' or 'noise': what the scheme extrapolates, whatever the network predicts
    order              1, 2 or 3 for mrsampler; the same thing as `predictor`
    fit_target         what the network predicts: 'noise', 'data', 'velocity' or 'score'
    lambda_min         start no earlier than this log signal-to-noise ratio; None starts at t = T
    time_schedule      name of a grid, or the N + 1 descending times themselves
    timestep_offset    time of the last evaluation of 'leading'
    rho                exponent of the Karras grids
    thresholding       dynamic thresholding of the data prediction, with threshold_ratio and threshold_max
    denoise_last       end with the data prediction at the last time but one instead of a step to t = 0

    predictor, corrector   how many predictions each extrapolates from (0: no corrector)
    gate               largest allowed amplification of the network's error by older predictions; 0 switches it off
    tau                stochasticity: 0 is the ODE, 1 the SDE, anything between is as valid
    clamp              clip the data prediction to the image range: true, false or (low, high)
    last_order         order of the last step; 0 leaves it as it is
    mode               'sample', or 'mmse': few first-order steps, which stay near the posterior mean and so have
                       the best PSNR (and less detail)
    compat             'official' reproduces the published code exactly, its mistakes included
    """

    algorithm: Algorithm
    num_sample_steps: int = NFE
    solver_type: Literal["sde", "ode"] | None = None
    parameterization: Literal["data", "noise"] = "data"
    order: int | None = None
    fit_target: Literal["noise", "data", "velocity", "score"] | None = None
    lambda_min: float | None = None
    time_schedule: str | tuple[float, ...] | None = None
    timestep_offset: float = 0.0
    rho: float = 7.0
    thresholding: bool = False
    threshold_ratio: float = 0.995
    threshold_max: float = 1.5
    denoise_last: bool = False
    predictor: int | None = None
    corrector: int | None = None
    gate: float | None = None
    tau: float | None = None
    clamp: bool | tuple[float, float] | None = None
    last_order: int | None = None
    mode: Literal["sample", "mmse"] = "sample"
    compat: Literal["official"] | None = None

    def __post_init__(self) -> None:
        check_choice("algorithm", self.algorithm, ALGORITHMS)
        check_choice("parameterization", self.parameterization, ("data", "noise"))
        check_choice("mode", self.mode, ("sample", "mmse"))
        if self.solver_type is not None:
            check_choice("solver_type", self.solver_type, ("sde", "ode"))
        if self.fit_target is not None:
            check_choice("fit_target", self.fit_target, PREDICTIONS)
        if self.compat is not None:
            check_choice("compat", self.compat, ("official",))
        if isinstance(self.time_schedule, str):
            check_choice("time_schedule", self.time_schedule, TIME_SCHEDULES)
        elif self.time_schedule is not None and len(self.time_schedule) != self.num_sample_steps + 1:
            raise ValueError(
                f"time_schedule: {self.num_sample_steps} steps need {self.num_sample_steps + 1} times, "
                f"got {len(self.time_schedule)}"
            )
        if self.num_sample_steps < 1:
            raise ValueError(f"num_sample_steps must be at least 1, got {self.num_sample_steps}")
        for name, low, high in (
            ("order", 1, 3),
            ("predictor", 1, 3),
            ("corrector", 0, 3),
            ("last_order", 0, 3),
        ):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ValueError(f"{name} must be from {low} to {high}, got {value}")
        if self.order is not None and self.predictor is not None and self.order != self.predictor:
            raise ValueError(f"order and predictor mean the same, got order {self.order}, predictor {self.predictor}")
        if self.tau is not None and not 0 <= self.tau <= 1:
            raise ValueError(f"tau must lie in [0, 1], got {self.tau}")
        if self.tau is not None and self.solver_type is not None and self.tau != self.tau_of_solver_type:
            raise ValueError(
                f"solver_type {self.solver_type!r} means tau {self.tau_of_solver_type}, got tau {self.tau}"
            )
        if self.gate is not None and not self.gate >= 0:
            raise ValueError(f"gate must be 0 (off) or positive, got {self.gate}")
        if not self.rho > 0:
            raise ValueError(f"rho must be positive, got {self.rho}")
        if not 0 < self.threshold_ratio <= 1:
            raise ValueError(f"threshold_ratio must lie in (0, 1], got {self.threshold_ratio}")
        if not self.threshold_max >= 1:
            raise ValueError(f"threshold_max must be at least 1, got {self.threshold_max}")
        if isinstance(self.clamp, tuple) and not (len(self.clamp) == 2 and self.clamp[0] < self.clamp[1]):
            raise ValueError(f"clamp must be true, false or (low, high), got {self.clamp}")
        if self.compat is None and self.parameterization == "noise":
            for name in ("clamp", "thresholding"):
                if getattr(self, name):
                    raise ValueError(f"{name} acts on the data prediction: it needs parameterization 'data'")

    @property
    def nfe(self) -> int:
        """Number of network evaluations."""
        return self.num_sample_steps

    @property
    def tau_of_solver_type(self) -> float | None:
        """The stochasticity that `solver_type` stands for."""
        return None if self.solver_type is None else {"sde": 1.0, "ode": 0.0}[self.solver_type]

    @property
    def clamp_range(self) -> tuple[float, float] | None:
        """`clamp` as a range; true means the image range [0, 1]."""
        if isinstance(self.clamp, tuple):
            return self.clamp
        return (0.0, 1.0) if self.clamp else None

    @property
    def threshold(self) -> Threshold | None:
        """The thresholding options, None where it is off."""
        if not self.thresholding:
            return None
        return Threshold(self.threshold_ratio, self.threshold_max, published=self.compat == "official")

    @property
    def start_lambda(self) -> float:
        """`lambda_min`, with None as no bound."""
        return -math.inf if self.lambda_min is None else self.lambda_min
