"""The choice of a solver: the one definition of its options.

Every option is a field of `Solver` with its type, default, range and description. Option files (`sde.algorithm` and
`sampler`), their reference in options/README.md and the signature of the diffusers scheduler follow from these fields.
The names are those of the published option files, and ours. No torch is imported here.
"""

# ruff: noqa: RUF009

import inspect
import math
from collections.abc import Collection
from dataclasses import KW_ONLY, MISSING, dataclass, field, fields
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ..defaults import MOST_EVALUATIONS, NFE
from ..names import OptionValueError, Prediction, check_choice
from .registry import GRIDS, SOLVERS


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option of `Solver`.

    types      types of its values, without None: int, float, bool, str (one of `words`) or a tuple of floats
    text       description that makes sense by itself
    unset      what applies where None is the default
    words      the words it takes
    low, high  the least and the greatest number; `above` is a lower bound that is itself no value
    listed     description of a value that is a list of numbers
    label      what precedes a value in the label of a solver; the name by default
    ours       whether the published code lacks it, so that `compat: official` refuses it
    """

    name: str
    types: tuple[Any, ...]
    default: Any
    text: str
    unset: str = ""
    words: Collection[str] = ()
    low: float | None = None
    above: float | None = None
    high: float | None = None
    listed: str = ""
    label: str | None = None
    ours: bool = False

    def check(self, value: Any) -> None:
        """Raise OptionValueError for a value of another type, an unknown word or a number out of range."""
        if value is None and self.default is None:
            return
        if isinstance(value, tuple) and self.listed:
            for number in value:
                if isinstance(number, bool) or not isinstance(number, Real) or not self._within(number):
                    raise self._error(f"have numbers from {self.low} to {self.high}", number)
        elif self.words:
            check_choice(self.name, value, self.words)
        elif bool in self.types:
            if not isinstance(value, bool):
                raise self._error("be true or false" + (f" or {self.listed}" if self.listed else ""), value)
        elif isinstance(value, bool) or not isinstance(value, Integral if int in self.types else Real):
            raise self._error("be an integer" if int in self.types else "be a number", value)
        elif not self._within(value):
            raise self._error(self._range(), value)

    def _within(self, value: Any) -> bool:  # not as a float: 10**400 is none
        above = -math.inf if self.above is None else self.above
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        return bool(value > above and low <= value <= high)

    def _range(self) -> str:
        if self.high is not None:
            ends = f"[{self.low}" if self.above is None else f"({self.above}"
            return f"be from {self.low} to {self.high}" if int in self.types else f"lie in {ends}, {self.high}]"
        if self.low is not None:
            return "be 0 or positive" if self.low == 0 else f"be at least {self.low}"
        return "be positive" if self.above == 0 else "be finite"

    def _error(self, expected: str, value: Any) -> OptionValueError:
        return OptionValueError(self.name, f"{self.name} must {expected}, got {value!r}")


@dataclass(frozen=True)
class Threshold:
    """Dynamic thresholding of the data prediction: the `ratio` quantile of its magnitude, at most `maximum`.

    The rule is made for images in [-1, 1]. `published` applies it as the published code does, to images in [0, 1].
    """

    ratio: float
    maximum: float
    published: bool = False


def option(default: Any, text: str, **facts: Any) -> Any:
    """A field of `Solver`; `facts` are fields of `Option`."""
    return field(default=default, metadata={"text": text, **facts})


@dataclass(frozen=True)
class Solver:
    """An algorithm with its options; None stands for the algorithm's own default.

    `Solver(options["sde"]["algorithm"], **options["sampler"])` takes the blocks of a published option file.
    """

    algorithm: str = option(MISSING, "the solver", words=SOLVERS, label="")
    num_sample_steps: int = option(NFE, "network evaluations (NFE)", low=1, high=MOST_EVALUATIONS, label="nfe")
    _: KW_ONLY
    solver_type: Literal["sde", "ode"] | None = option(
        None,
        "short for `tau` 1 (`sde`) or 0 (`ode`)",
        unset="`sde` (`heun`: `ode`; `mrsampler-pc`: see `tau`)",
        label="",
    )
    parameterization: Literal["data", "noise"] = option(
        "data",
        "prediction that the scheme extrapolates, whatever the network predicts; `noise` is unstable below 19 "
        "evaluations",
        label="",
    )
    order: int | None = option(None, "order of the scheme; another name for `predictor`", unset="2", low=1, high=3)
    fit_target: Prediction | None = option(
        None, "what the network predicts", unset="the checkpoint's, else `noise`", label="fit-"
    )
    lambda_min: float | None = option(
        None,
        "log signal-to-noise ratio before which sampling does not start",
        unset="start at t = T",
        label="lambda",
        low=-100,
        high=100,
    )
    time_schedule: str | tuple[float, ...] | None = option(
        None,
        "grid of the times at which the network is evaluated, by name or as the times themselves",
        words=GRIDS,
        low=0,
        high=100_000,
        listed="the list of N + 1 descending times",
        label="",
    )
    timestep_offset: float = option(
        0.0, "time of the last evaluation on the grid `leading` (at least 1)", low=0, high=100_000, label="offset"
    )
    rho: float = option(7.0, "exponent of the grids `karras-n` and `karras-t`", above=0, high=1_000)
    thresholding: bool = option(False, "dynamic thresholding of the data prediction")
    threshold_ratio: float = option(
        0.995,
        "quantile of the data prediction's magnitude used by dynamic thresholding",
        above=0,
        high=1,
        label="ratio",
    )
    threshold_max: float = option(1.5, "largest threshold of dynamic thresholding", low=1, high=1_000, label="max")
    denoise_last: bool = option(
        False, "end with the data prediction at the last evaluation instead of a step to t = 0", label="denoise"
    )
    predictor: int | None = option(
        None, "number of predictions that a step extrapolates from", unset="2 (`mrsampler`: order)", low=1, high=3,
        ours=True,
    )  # fmt: skip
    corrector: int | None = option(
        None, "number of earlier predictions that the corrector uses; 0: no corrector", unset="2 (`mrsampler`: 0)",
        low=0, high=3, ours=True,
    )  # fmt: skip
    gate: float | None = option(
        None, "largest amplification of the network's error by older predictions that is allowed; 0: no limit",
        unset="3 (`mrsampler`: 0)", low=0, high=1_000, ours=True,
    )  # fmt: skip
    tau: float | None = option(
        None, "stochasticity, from 0 (ODE) to 1 (SDE)",
        unset="0.3 below 15 evaluations, else 1 (`mrsampler`: 1)", low=0, high=1, ours=True,
    )  # fmt: skip
    clamp: bool | tuple[float, float] | None = option(
        None, "clip the data prediction to [0, 1], or to a given range", unset="true (`mrsampler`: false)",
        low=-1_000, high=1_000, listed="[low, high]", ours=True,
    )  # fmt: skip
    last_order: int | None = option(
        None, "order of the last step; 0: like the others", unset="1 below 15 evaluations, else 0 (`mrsampler`: 0)",
        low=0, high=3, label="last", ours=True,
    )  # fmt: skip
    mode: Literal["sample", "mmse"] = option(
        "sample",
        "kind of result: `sample` is a likely image; `mmse` takes few first-order steps and stays near the posterior "
        "mean: best PSNR, less detail",
        label="",
        ours=True,
    )
    compat: Literal["official"] | None = option(
        None, "`official`: compute exactly what the published code computes, mistakes included", unset="none", label=""
    )

    def __post_init__(self) -> None:
        for name, known in OPTIONS.items():
            if isinstance(value := getattr(self, name), list):  # as JSON and YAML have it
                object.__setattr__(self, name, value := tuple(value))
            known.check(value)
        times, steps = self.time_schedule, self.num_sample_steps
        if isinstance(times, tuple) and len(times) != steps + 1:
            raise OptionValueError(
                "time_schedule", f"time_schedule: {steps} steps need {steps + 1} times, got {len(times)}"
            )
        if self.order is not None and self.predictor is not None and self.order != self.predictor:
            raise OptionValueError(
                "order", f"order and predictor mean the same, got order {self.order}, predictor {self.predictor}"
            )
        if self.tau is not None and self.solver_type is not None and self.tau != self.tau_of_solver_type:
            raise OptionValueError(
                "solver_type",
                f"solver_type {self.solver_type!r} means tau {self.tau_of_solver_type}, got tau {self.tau}",
            )
        if isinstance(self.clamp, tuple) and not (len(self.clamp) == 2 and self.clamp[0] < self.clamp[1]):
            raise OptionValueError("clamp", f"clamp must be true, false or (low, high), got {self.clamp}")
        if self.compat is None and self.parameterization == "noise":
            for name in ("clamp", "thresholding"):
                if getattr(self, name):
                    text = f"{name} acts on the data prediction: it needs parameterization 'data'"
                    raise OptionValueError(name, text)

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


def _options() -> dict[str, Option]:
    """The fields of `Solver` as options; the words of a Literal are read from its type."""
    found, hints = {}, get_type_hints(Solver)
    for each in fields(Solver):
        facts, hint = dict(each.metadata), hints[each.name]
        members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        types = [kind for kind in members if kind is not NoneType]
        for i, kind in enumerate(types):
            if get_origin(kind) is Literal:
                types[i], facts["words"] = str, get_args(kind)
        found[each.name] = Option(name=each.name, types=tuple(types), default=each.default, **facts)
    return found


OPTIONS: dict[str, Option] = _options()

# What `help(Solver)` shows.
Solver.__doc__ = f"{inspect.getdoc(Solver)}\n\n" + "\n".join(
    f"{name:18} {known.text}" + (f" ({', '.join(known.words)})" if known.words else "")
    for name, known in OPTIONS.items()
)
