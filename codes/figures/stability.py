"""The gain of one step against its length h in lambda: why noise prediction collapses and data prediction does not.

Test equation: clean data of no variance (or of a very large one), whose exact prediction is linear in the state, so
that a perturbation is multiplied by the same matrix in every step. With p = (e^h - 1 - h) / h:

    noise prediction, no variance, in u = y / sigma   z = e^h - k (e^h - 1)                                    order 1
                                                      z^2 - [e^h - k (e^h - 1 + p)] z - k p = 0                order 2
    data prediction, no variance, in u = y / sigma    z = e^(-tau^2 h), as the exact solution             every order
    data prediction, large variance, in y / alpha     (z - 1)(z - q) = 0,  q = 1 - (1 - e^(-k h)) / (k h)      order 2

with k = 1 + tau^2. The gain is the largest |z|; above 1 every perturbation grows from step to step. If the
predicted quantity is constant (data without variance, noise of broad data), every scheme is exact.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .style import BLUE, GREY, ORANGE, SKY, VERMILION, canvas, save

PAPER_RANGE = 9.780499497  # lambda_0 - lambda_T of the published schedule
STEPS = np.linspace(0.04, 3.0, 400)


@dataclass(frozen=True)
class Scheme:
    """A scheme on its test equation: 'narrow' data have no variance, 'broad' data a large one."""

    parameterization: str
    order: int
    tau: float
    data: str = "narrow"


@dataclass(frozen=True, kw_only=True)
class Gain:
    """A measured gain."""

    parameterization: str
    order: int
    tau: float
    data: str
    h: float
    gain: float

    @property
    def scheme(self) -> Scheme:
        """The scheme that was measured."""
        return Scheme(self.parameterization, self.order, self.tau, self.data)


SCHEMES = tuple(
    Scheme(parameterization, order, tau, data)
    for tau in (1.0, 0.0)
    for parameterization, data in (("noise", "narrow"), ("data", "broad"))
    for order in (1, 2)
)


def exact_gain(scheme: Scheme, h: float) -> float:
    """The gain of the exact solution: how the equation itself scales a perturbation."""
    return math.exp(-(scheme.tau**2) * h) if scheme.data == "narrow" else 1.0


def theory(scheme: Scheme, h: float) -> float:
    """The gain of one step: the spectral radius of its recursion."""
    if scheme.order not in (1, 2):
        raise ValueError(f"order must be 1 or 2, got {scheme.order}")
    if (scheme.parameterization, scheme.data) in (("data", "narrow"), ("noise", "broad")):
        return exact_gain(scheme, h)
    k = 1 + scheme.tau**2
    if scheme.parameterization == "noise":
        first, weight = math.exp(h) - k * math.expm1(h), -k * (math.expm1(h) - h) / h
    else:
        first, weight = 1.0, 1 + math.expm1(-k * h) / (k * h)
    if scheme.order == 1:
        return abs(first)
    roots = np.roots([1.0, -(first + weight), weight])
    return float(np.abs(roots).max())


def critical_step(scheme: Scheme) -> float:
    """The h above which the gain exceeds 1; infinite if it never does."""
    from scipy.optimize import brentq

    over = [h for h in np.linspace(0.02, 12, 1200) if theory(scheme, h) > 1 + 1e-9]
    if not over:
        return math.inf
    first = float(over[0])
    return float(brentq(lambda h: theory(scheme, h) - 1 - 1e-9, first - 0.01, first))


def _label(scheme: Scheme) -> str:
    name = f"{scheme.parameterization} prediction, order {scheme.order}"
    limit = critical_step(scheme)
    if math.isinf(limit):
        return f"{name}: stable for every h"
    return f"{name}: stable up to h = {limit:.3g}, from NFE {math.ceil(PAPER_RANGE / limit)} on"


def draw(measured: Sequence[Gain], stem: Path) -> tuple[Path, Path]:
    """Draw a panel for the SDE and one for the ODE: theory as lines, measured runs of the solvers as markers."""
    looks = {
        ("noise", 1): (ORANGE, "s", "--"),
        ("noise", 2): (VERMILION, "D", "-"),
        ("data", 1): (SKY, "^", "--"),
        ("data", 2): (BLUE, "o", "-"),
    }
    with canvas(9.6, 4.6) as figure:
        for axis, tau in zip(figure.subplots(1, 2, sharey=True), (1.0, 0.0), strict=True):
            axis.axhspan(1, 100, color="#f6ddd2", linewidth=0, zorder=0)
            axis.text(
                0.985, 0.965, "perturbations grow", transform=axis.transAxes, ha="right", va="top", color="#8a3a10"
            )
            for scheme in (scheme for scheme in SCHEMES if scheme.tau == tau):
                color, marker, style = looks[scheme.parameterization, scheme.order]
                axis.plot(STEPS, [theory(scheme, h) for h in STEPS], style, color=color, label=_label(scheme))
                points = [(gain.h, gain.gain) for gain in measured if gain.scheme == scheme]
                if points:
                    # First-order markers are larger and lie below, because some gains coincide.
                    size, order = (9, 3) if scheme.order == 1 else (5, 4)
                    axis.plot(
                        *zip(*points, strict=True), marker, color=color, mec="black", mew=0.6, ms=size, zorder=order
                    )
            exact = [exact_gain(Scheme("noise", 1, tau), h) for h in STEPS]
            axis.plot(STEPS, exact, ":", color=GREY, label="exact, for noise prediction's test equation")
            axis.set(yscale="log", ylim=(0.05, 60), xlim=(0, 3), xlabel="step h in lambda")
            axis.set_yticks([0.1, 1, 10], ["0.1", "1", "10"])
            axis.set_title(("SDE (tau = 1)" if tau else "ODE (tau = 0)"), fontweight="bold", loc="left")
            top = axis.secondary_xaxis("top")
            nfes = [4, 5, 6, 8, 10, 15, 20, 50]
            top.set_xticks([PAPER_RANGE / nfe for nfe in nfes], [str(nfe) for nfe in nfes], fontsize=8)
            top.set_xlabel("NFE on the uniform lambda grid", fontsize=8)
            axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16))
        figure.axes[0].set_ylabel("gain of a perturbation per step")
        return save(figure, stem, dpi=100)
