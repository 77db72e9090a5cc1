"""The mean-reverting SDE of IR-SDE, Refusion and DA-CLIP, and the denoising process of denoising-sde.

    dx = theta_t (mu - x) dt + g_t dw,      g_t^2 = 2 sigma_inf^2 theta_t                              Eqs. (6), (8)
    x_t = alpha_t x0 + (1 - alpha_t) mu + sigma_t z,   z ~ N(0, I)                                     Eq. (7)
    alpha_t = exp(-Theta(t) dt),  sigma_t = sigma_inf sqrt(1 - alpha_t^2),  lambda_t = log(alpha_t / sigma_t)

Time runs from 0 (clean) to T (degraded image plus noise). The published code defines theta only at integers, by a
table whose cumulative sum is Theta. `MeanRevertingSDE` continues Theta to real t: in closed form for the three
published schedules, as a spline for a custom table. alpha, sigma and lambda all follow from the one Theta, so that
alpha^2 + (sigma / sigma_inf)^2 = 1 holds at every t. `sigma` is always the marginal standard deviation (the published
code's `sigma_bar`), `g` the diffusion coefficient (its `sigma`).

`DenoisingSDE` is the same schedule without reversion: x_t = x0 + sigma_t z. Its alpha is 1, so every solver applies to
it as it is, with weight 0 for mu.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from .names import OptionValueError, check_choice, check_schedule_numbers

Array = NDArray[np.float64]

SCHEDULES = ("cosine", "linear", "constant", "custom")
CONVENTIONS = ("daclip", "irsde")
INTERPOLATIONS = ("exact", "official")

_COSINE_OFFSET = 0.008
_REAL = (int, float, np.integer, np.floating)


@dataclass(frozen=True)
class Point:
    """A time with the coefficients of the marginal there, as plain floats."""

    t: float
    alpha: float
    sigma: float
    lambda_: float


@dataclass(frozen=True, kw_only=True)
class MeanRevertingSDE:
    """A schedule; immutable, hashable, computed in float64.

    max_sigma      sigma_inf. A value of 1 or more is in 8-bit units (50 means 50/255, and 1 means 1/255),
                   a smaller one is in image units [0, 1]: the rule of the published option files.
    T              number of training steps, at most 100,000; times are 0..T
    schedule       'cosine', 'linear', 'constant', or 'custom' with `thetas`
    eps            alpha at t = T
    convention     'daclip' (also the MR Sampler code): Theta(0) = theta_0, so sigma_0 > 0;
                   'irsde' (IR-SDE and Refusion): theta_0 is subtracted, so sigma_0 = 0 and lambda_0 is infinite
    thetas         theta at t = 0..T for schedule 'custom'
    interpolation  'exact', or 'official': alpha, sigma and lambda from three tables, each interpolated linearly
                   on its own, as in the published code. Off the integers these contradict each other
                   (lambda is not log(alpha/sigma), by up to 0.05), which leaves an error that no number of
                   steps removes; it exists to reproduce the published results.
    """

    max_sigma: float = 50.0
    T: int = 100
    schedule: Literal["cosine", "linear", "constant", "custom"] = "cosine"
    eps: float = 0.005
    convention: Literal["daclip", "irsde"] = "daclip"
    thetas: tuple[float, ...] | None = None
    interpolation: Literal["exact", "official"] = "exact"

    reverts: ClassVar[bool] = True  # whether the mean of the state moves towards mu

    def __post_init__(self) -> None:
        check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("convention", self.convention, CONVENTIONS)
        check_choice("interpolation", self.interpolation, INTERPOLATIONS)
        for name in ("T", "max_sigma", "eps"):  # those of NumPy become plain ones, which files can record
            if isinstance(value := getattr(self, name), np.generic):
                object.__setattr__(self, name, value.item())
        check_schedule_numbers("", T=self.T, max_sigma=self.max_sigma, eps=self.eps)
        if (self.schedule == "custom") != (self.thetas is not None):
            raise OptionValueError("schedule", "schedule 'custom' and thetas go together")
        if self.thetas is not None:
            if not isinstance(self.thetas, Sequence | np.ndarray):
                raise OptionValueError("thetas", f"thetas: expected T + 1 numbers, got {self.thetas!r}")
            if len(self.thetas) != self.T + 1:
                raise OptionValueError(
                    "thetas", f"thetas needs T + 1 = {self.T + 1} entries (t = 0..T), got {len(self.thetas)}"
                )
            thetas: Sequence[Any] = self.thetas
            bad = [theta for theta in thetas if not (isinstance(theta, _REAL) and 0 < theta < math.inf)]
            if bad:
                raise OptionValueError("thetas", f"thetas: expected numbers, positive and finite, got {bad[0]!r}")

    # ---- Theta and the tables at integer times

    @property
    def sigma_inf(self) -> float:
        """Stationary standard deviation, in image units [0, 1]."""
        return self.max_sigma / 255 if self.max_sigma >= 1 else self.max_sigma

    @cached_property
    def theta_table(self) -> Array:
        """theta at t = 0..T, as published."""
        if self.thetas is not None:
            return np.asarray(self.thetas, np.float64)
        if self.schedule == "cosine":
            a_half, b = self._cosine_angles
            k = np.arange(1, self.T + 2)
            # 1 - cos^2(phi_k) / cos^2(phi_0), written without cancellation.
            return np.asarray(np.sin(k * a_half) * np.sin(k * a_half + b) / math.cos(b / 2) ** 2)
        if self.schedule == "linear":
            scale = 1000 / (self.T + 1)
            return np.linspace(scale * 1e-4, scale * 0.02, self.T + 1)
        return np.ones(self.T + 1)

    @cached_property
    def Theta_table(self) -> Array:
        """Theta at t = 0..T: the cumulative sum of theta, less theta_0 in the 'irsde' convention."""
        total = np.cumsum(self.theta_table)
        return total - self._Theta_start

    @cached_property
    def dt(self) -> float:
        """The length of one time step; it makes alpha(T) equal to `eps`."""
        return -math.log(self.eps) / float(self.Theta_table[-1])

    @property
    def _Theta_start(self) -> float:
        return float(self.theta_table[0]) if self.convention == "irsde" else 0.0

    @property
    def _cosine_angles(self) -> tuple[float, float]:
        """(A/2, B) with theta_t = 1 - cos^2((t+1) A/2 + B/2) / cos^2(B/2)."""
        stretch = 1 + _COSINE_OFFSET
        return math.pi / (2 * (self.T + 2) * stretch), math.pi * _COSINE_OFFSET / stretch

    @cached_property
    def _spline(self) -> Callable[..., Array]:
        """Theta of a custom table. The known knot (-1, 0) makes it 4x more accurate near t = 0."""
        from scipy.interpolate import CubicSpline, PchipInterpolator  # nothing else here needs scipy

        knots = np.arange(-1, self.T + 1)
        values = np.concatenate([[0.0], np.cumsum(self.theta_table)])
        if len(knots) >= 4:
            spline = CubicSpline(knots, values)
            fine = np.linspace(-1, self.T, 32 * (self.T + 1) + 1)
            if np.all(spline(fine, 1) > 0):
                return spline  # type: ignore[no-any-return]
        # A rough table can make the cubic spline overshoot; this one is less accurate but always monotone.
        return PchipInterpolator(knots, values)  # type: ignore[no-any-return]

    def Theta(self, t: ArrayLike) -> Array:
        """The integral of theta up to any real t in [0, T], in units of dt; equals `Theta_table` at integers."""
        m = np.asarray(t, np.float64) + 1
        if self.schedule == "cosine":
            # Sum of theta_0..theta_t in closed form, arranged so that nothing cancels for small t.
            a_half, b = self._cosine_angles
            r = np.sin(m * a_half) / math.sin(a_half)
            angle = (m + 1) * a_half / 2
            total = ((m - r) * math.cos(b) + 2 * r * np.sin(angle + b) * np.sin(angle)) / (2 * math.cos(b / 2) ** 2)
        elif self.schedule == "linear":
            first, second = self.theta_table[:2]
            total = m * first + (second - first) * m * (m - 1) / 2
        elif self.schedule == "constant":
            total = m
        else:
            total = self._spline(m - 1)
        return np.asarray(total - self._Theta_start, np.float64)

    # ---- alpha, sigma, lambda

    def log_alpha(self, t: ArrayLike) -> Array:
        """log alpha at real t."""
        return -self.Theta(t) * self.dt

    def alpha(self, t: ArrayLike) -> Array:
        """Weight of the clean image at real t."""
        if self.interpolation == "official":
            return self._interpolate(t, self._alpha_table)
        return np.exp(self.log_alpha(t))

    def sigma(self, t: ArrayLike) -> Array:
        """Marginal standard deviation at real t."""
        if self.interpolation == "official":
            return self._interpolate(t, self._sigma_table)
        return self._sigma_of(self.log_alpha(t))

    def lambda_(self, t: ArrayLike) -> Array:
        """log(alpha / sigma) at real t; decreasing."""
        if self.interpolation == "official":
            return self._interpolate(t, self._lambda_table)
        return self._lambda_of(self.log_alpha(t))

    @property
    def lambda_end(self) -> float:
        """Where grids in lambda end: lambda at t = 0; in 'irsde', where that is infinite, the value of 'daclip'."""
        return float(self._lambda_of(np.asarray(-self.theta_table[0] * self.dt)))

    def g(self, t: ArrayLike) -> Array:
        """Diffusion coefficient, sigma_inf sqrt(2 theta), with theta interpolated linearly between integers."""
        return self.sigma_inf * np.sqrt(2 * self._interpolate(t, self.theta_table))

    def _sigma_of(self, log_alpha: Array) -> Array:
        return np.asarray(self.sigma_inf * np.sqrt(-np.expm1(2 * log_alpha)))

    def _lambda_of(self, log_alpha: Array) -> Array:
        with np.errstate(divide="ignore"):  # irsde: sigma_0 = 0, lambda_0 = inf
            return np.asarray(log_alpha - np.log(self._sigma_of(log_alpha)))

    @cached_property
    def _alpha_table(self) -> Array:
        return np.exp(-self.Theta_table * self.dt)

    @cached_property
    def _sigma_table(self) -> Array:
        return self._sigma_of(-self.Theta_table * self.dt)

    @cached_property
    def _lambda_table(self) -> Array:
        return self._lambda_of(-self.Theta_table * self.dt)

    def _interpolate(self, t: ArrayLike, table: Array) -> Array:
        return np.asarray(np.interp(np.asarray(t, np.float64), np.arange(self.T + 1), table))

    # ---- from lambda

    def alpha_from_lambda(self, lambda_: ArrayLike) -> Array:
        """alpha from lambda alone, whatever the schedule."""
        snr = 2 * (np.asarray(lambda_, np.float64) + math.log(self.sigma_inf))
        return np.exp(-0.5 * np.logaddexp(0, -snr))

    def sigma_from_lambda(self, lambda_: ArrayLike) -> Array:
        """sigma from lambda alone, whatever the schedule."""
        snr = 2 * (np.asarray(lambda_, np.float64) + math.log(self.sigma_inf))
        return np.asarray(self.sigma_inf * np.exp(-0.5 * np.logaddexp(0, snr)))

    def t_from_lambda(self, lambda_: float) -> float:
        """The time with this lambda; values outside the schedule give the nearer end."""
        if self.interpolation == "official":
            return float(np.interp(lambda_, self._lambda_table[::-1], np.arange(self.T, -1.0, -1.0)))
        snr = 2 * (lambda_ + math.log(self.sigma_inf))
        return self._t_from_Theta(0.5 * float(np.logaddexp(0, -snr)) / self.dt)

    def _t_from_Theta(self, target: float) -> float:
        if target >= float(self.Theta(self.T)):
            return float(self.T)
        if target <= float(self.Theta(0.0)):
            return 0.0
        return root(lambda t: float(self.Theta(t)) - target, 0.0, float(self.T))

    # ---- points of a grid

    @property
    def start(self) -> Point:
        """Where the reverse process begins: t = T."""
        return self.point(self.T)

    def start_sigma(self, first: Point) -> float:
        """Standard deviation of the start around mu: sigma_inf at t = T, the marginal one for a later start."""
        return self.sigma_inf if first.t >= self.T else first.sigma

    def point(self, t: float) -> Point:
        """The coefficients at a time."""
        return Point(float(t), float(self.alpha(t)), float(self.sigma(t)), float(self.lambda_(t)))

    def point_from_lambda(self, lambda_: float) -> Point:
        """The coefficients at a log signal-to-noise ratio: alpha and sigma need no inversion, only t does."""
        t = self.t_from_lambda(lambda_)
        if self.interpolation == "official":
            return self.point(t)
        return Point(
            t,
            float(self.alpha_from_lambda(lambda_)),
            float(self.sigma_from_lambda(lambda_)),
            float(lambda_),
        )

    # ---- from one point to another

    def euler_terms(self, s: Point, t: Point) -> tuple[float, float]:
        """(the integral of theta, half the integral of g^2) over a stride back from s to t."""
        drift = math.log(t.alpha) - math.log(s.alpha)
        return drift, self.sigma_inf**2 * drift

    def transition_variance(self, s: Point, t: Point) -> float:
        """Variance of the state at s given the one at t, which is before s."""
        return self.sigma_inf**2 * -math.expm1(2 * (math.log(s.alpha) - math.log(t.alpha)))

    # ---- tensors

    def marginal(self, x0: Tensor, mu: Tensor, t: float | Tensor, noise: Tensor) -> Tensor:
        """x_t given x0: Eq. (7). `t` is one time or a 1-D tensor with a time for each image."""
        if isinstance(t, Tensor):
            if t.shape != (len(x0),):
                raise ValueError(f"t must be a number or have shape ({len(x0)},), got {tuple(t.shape)}")
            times = t.detach().cpu().numpy()
            alpha, sigma = (
                torch.as_tensor(values).to(x0).view(-1, *[1] * (x0.ndim - 1))
                for values in (self.alpha(times), self.sigma(times))
            )
            return alpha * x0 + (1 - alpha) * mu + sigma * noise
        alpha_t = float(self.alpha(t))
        return linear_combination([(alpha_t, x0), (1 - alpha_t, mu), (float(self.sigma(t)), noise)])

    def prior(self, mu: Tensor, noise: Tensor) -> Tensor:
        """The start of every reverse run: mu + sigma_inf z."""
        return linear_combination([(1.0, mu), (self.sigma_inf, noise)])

    def forward(self, x0: Tensor, mu: Tensor, times: Sequence[float], noise: Sequence[Tensor]) -> list[Tensor]:
        """Simulate the forward SDE from x0 at t = 0 through increasing `times`; returns the states there.

        Exact in distribution for any spacing: each stretch uses the transition density of the linear SDE.
        """
        path = []
        x, before = x0, 0.0
        log_alpha_before = 0.0  # x0 is the clean image, even if Theta(0) > 0
        for t, z in zip(times, noise, strict=True):
            if not (before <= t <= self.T):
                raise ValueError(f"times must increase within [0, {self.T}], got {t} after {before}")
            log_alpha = float(self.log_alpha(t))
            decay = math.exp(log_alpha - log_alpha_before)
            spread = self.sigma_inf * math.sqrt(-math.expm1(2 * (log_alpha - log_alpha_before)))
            x = linear_combination([(decay, x), (1 - decay, mu), (spread, z)])
            path.append(x)
            before, log_alpha_before = t, log_alpha
        return path


@dataclass(frozen=True, kw_only=True)
class DenoisingSDE(MeanRevertingSDE):
    """The process of denoising-sde: x_t = x0 + sigma_t z. The mean does not move, and the network takes no mu.

    The schedule is that of 'irsde' with another eps. A reverse run begins with the noisy image itself, at the time
    when sigma_t is the standard deviation of its noise.

    noise_level   standard deviation of the noise to be removed, in 8-bit units
    """

    eps: float = 0.04
    convention: Literal["daclip", "irsde"] = "irsde"
    noise_level: float = 50.0

    reverts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        level: Any = self.noise_level
        if isinstance(level, bool) or not isinstance(level, _REAL) or not 0 < level / 255 <= self.sigma_inf:
            most = f"max_sigma, {self.sigma_inf * 255:g}"
            raise OptionValueError(
                "noise_level", f"noise must be above 0 and at most {most}, to be removed, got {level!r}"
            )

    def alpha(self, t: ArrayLike) -> Array:
        """1 at every t."""
        return np.ones_like(np.asarray(t, np.float64))

    def _lambda_of(self, log_alpha: Array) -> Array:
        with np.errstate(divide="ignore"):
            return np.asarray(-np.log(self._sigma_of(log_alpha)))

    def alpha_from_lambda(self, lambda_: ArrayLike) -> Array:
        """1 at every lambda."""
        return np.ones_like(np.asarray(lambda_, np.float64))

    def sigma_from_lambda(self, lambda_: ArrayLike) -> Array:
        """exp(-lambda)."""
        return np.exp(-np.asarray(lambda_, np.float64))

    def t_from_lambda(self, lambda_: float) -> float:
        """The time with this lambda; values outside the schedule give the nearer end."""
        if self.interpolation == "official":
            return super().t_from_lambda(lambda_)
        ratio = math.exp(-2 * lambda_) / self.sigma_inf**2
        return self._t_from_Theta(math.inf if ratio >= 1 else -0.5 * math.log1p(-ratio) / self.dt)

    @property
    def start(self) -> Point:
        """The time at which the process has the noise of the image."""
        highest = float(self.sigma(self.T))
        return self.point(self.T) if self.noise_level / 255 >= highest else self.point_from_lambda(self._start_lambda)

    @property
    def _start_lambda(self) -> float:
        return -math.log(self.noise_level / 255)

    @property
    def published_start(self) -> int:
        """The published start: the integer time nearest to it in Theta."""
        share = (self.noise_level / 255 / self.sigma_inf) ** 2
        target = -math.log(1 - share + 1e-6) / (2 * self.dt)
        return int(np.abs(self.Theta_table - target).argmin())

    def start_sigma(self, first: Point) -> float:
        """0: the noisy image is the start."""
        return 0.0

    def euler_terms(self, s: Point, t: Point) -> tuple[float, float]:
        """(0, half the integral of g^2) over a stride back from s to t."""
        return 0.0, self.transition_variance(s, t) / 2

    def transition_variance(self, s: Point, t: Point) -> float:
        """Variance of the state at s given the one at t, which is before s."""
        return s.sigma**2 - t.sigma**2

    def prior(self, mu: Tensor, noise: Tensor) -> Tensor:
        """The start of every reverse run: the noisy image."""
        return mu.clone()

    def forward(self, x0: Tensor, mu: Tensor, times: Sequence[float], noise: Sequence[Tensor]) -> list[Tensor]:
        """Simulate the forward process from x0 at t = 0 through increasing `times`; returns the states there."""
        path, x, before = [], x0, self.point(0.0)
        for t, z in zip(times, noise, strict=True):
            if not (before.t <= t <= self.T):
                raise ValueError(f"times must increase within [0, {self.T}], got {t} after {before.t:g}")
            point = self.point(t)
            x = linear_combination([(1.0, x), (math.sqrt(self.transition_variance(point, before)), z)])
            path.append(x)
            before = point
        return path


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """The zero of an increasing function with a sign change between `low` and `high`, to 1e-13 or rounding.

    Regula falsi after Illinois: an end that stays twice counts half, so that both ends close in.

    >>> abs(root(lambda x: x * x - 2, 0.0, 2.0) - math.sqrt(2)) < 1e-15
    True
    """
    below, above = function(low), function(high)
    side = 0
    for _ in range(200):
        middle = high - above * (high - low) / (above - below)
        value = function(middle)
        if value == 0 or not low < middle < high:
            return middle
        if value < 0:
            near, low, below = middle - low, middle, value
            above *= 0.5 if side < 0 else 1
            side = -1
        else:
            near, high, above = high - middle, middle, value
            below *= 0.5 if side > 0 else 1
            side = 1
        if near < 1e-13 or high - low < 1e-13:
            return middle
    return middle


def linear_combination(terms: list[tuple[float, Tensor]]) -> Tensor:
    """`sum of w * tensor` with Python-float weights: one pass over memory per term, one new tensor in all.

    Terms with weight 0 cost nothing. Mixed dtypes are promoted by the first term, so put the state first.
    """
    live = [(w, tensor) for w, tensor in terms if w != 0.0]
    if not live:
        return torch.zeros_like(terms[0][1])
    (w0, first), *rest = live
    out = first * w0
    for w, tensor in rest:
        out.add_(tensor, alpha=w)
    return out
