"""What theory and exactly solvable problems lead to expect, and whether it came out in the stored results.

Every verdict is computed from the cells: a number is compared with a reference within the same results, by rules that
are stated in the report. Nothing here is tuned to a model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..names import TASKS
from .results import Results

COLLAPSE, DEGRADED = 3.0, 1.0  # dB below the reference
RULE = (
    f"A method *collapses* at an NFE where its PSNR is at least {COLLAPSE:g} dB below its reference and its LPIPS is "
    f"worse; it *degrades* where that is {DEGRADED:g} to {COLLAPSE:g} dB, and *holds* otherwise. PSNR rewards few "
    "steps a little (they blur), so a collapse in PSNR is never one of taste."
)


@dataclass(frozen=True)
class Observation:
    """A method at an NFE against its reference."""

    method: str
    nfe: int
    psnr: float
    psnr_change: float
    lpips: float | None
    lpips_change: float | None

    @property
    def state(self) -> str:
        """holds, degrades or collapses."""
        worse = self.lpips_change is None or self.lpips_change > 0
        if self.psnr_change <= -COLLAPSE and worse:
            return "collapses"
        return "degrades" if self.psnr_change <= -DEGRADED else "holds"


@dataclass(frozen=True)
class Expectation:
    """One sentence of theory, the cells that decide it, and how."""

    text: str
    why: str  # where it comes from
    otherwise: str  # what it would mean if it did not come out
    tasks: tuple[str, ...]
    checks: tuple[tuple[str, tuple[int, ...], int], ...]  # method, NFEs, NFE of its reference
    holds: Callable[[Sequence[Observation]], bool]


@dataclass(frozen=True)
class Verdict:
    """An expectation and what was observed; `came_out` is None where cells are missing."""

    expectation: Expectation
    observations: tuple[Observation, ...]
    missing: int
    came_out: bool | None


def _states(allowed: dict[tuple[str, int], tuple[str, ...]]) -> Callable[[Sequence[Observation]], bool]:
    def decide(observations: Sequence[Observation]) -> bool:
        return all(one.state in allowed[one.method, one.nfe] for one in observations)

    return decide


def _all(methods: Sequence[str], nfes: Sequence[int], *states: str) -> dict[tuple[str, int], tuple[str, ...]]:
    return {(method, nfe): states for method in methods for nfe in nfes}


_FEWER = (20, 10, 5)
EXPECTATIONS = (
    Expectation(
        "Posterior sampling and Euler with the published stride collapse below 50 evaluations.",
        "The published code takes strided times but single-step coefficients: with N of 100 evaluations it covers "
        "about N/100 of the reverse time and stops near the noisy input (`codes/solvers/official.py`).",
        "The schedule or the stride is not the published one: check `compat: official` and T.",
        TASKS,
        tuple((method, _FEWER, 100) for method in ("posterior-official", "euler-official")),
        _states(_all(("posterior-official", "euler-official"), _FEWER, "collapses")),
    ),
    Expectation(
        "Posterior sampling with correct strides does not collapse.",
        "It is MR Sampler-1 on another time grid, exactly (`test_fact_7_posterior_sampling_is_sde_d_1`).",
        "The network is much worse at the times of the strided grid than at others.",
        TASKS,
        (("posterior", (50, *_FEWER), 100),),
        _states(_all(("posterior",), (50, *_FEWER), "holds", "degrades")),
    ),
    Expectation(
        "Euler with correct strides does not collapse.",
        "Its error is that of a first-order explicit scheme: on exactly solvable problems it grows by a factor 1.05 at "
        "50 evaluations, 1.15 at 20, 1.4 at 10 and 1.9 at 5.",
        "An explicit Euler step leaves noise behind that the last steps cannot remove; at 5 evaluations this alone can "
        "cost more than 3 dB against its own result at 100 where the network restores well. That is inaccuracy, "
        "not the published collapse: compare the two Euler rows at the same NFE.",
        TASKS,
        (("euler", (50, *_FEWER), 100),),
        _states(_all(("euler",), (50, *_FEWER), "holds", "degrades")),
    ),
    Expectation(
        "Noise prediction collapses at 5 and 10 evaluations and not at 50.",
        "The second-order SDE scheme is linearly unstable for steps h > 0.537 in lambda, i.e. below 19 evaluations on "
        "a uniform grid, with the exact score too (`test_fact_17_noise_prediction_is_unstable_for_large_steps`, "
        "`test_fact_19_noise_prediction_collapses_with_the_exact_score`).",
        "The reference is data prediction at 50 evaluations; if noise prediction is below it at 50, the network's "
        "error, not the instability, is seen.",
        ("rainy",),
        (("mr-2-noise", (50, 10, 5), -50),),
        _states({**_all(("mr-2-noise",), (10, 5), "collapses"), **_all(("mr-2-noise",), (50,), "holds", "degrades")}),
    ),
    Expectation(
        "MR Sampler-2 collapses or degrades at 2 evaluations.",
        "At t = T an error of the noise prediction is amplified 39 times in the data prediction, and the second step "
        "extrapolates it with weight -0.9 (`test_fact_20_two_evaluations_with_an_imperfect_network`).",
        "The network's error at t = T is far below 0.02, which makes the amplified error harmless.",
        TASKS,
        (("mr-2", (2,), 20),),
        _states(_all(("mr-2",), (2,), "collapses", "degrades")),
    ),
    Expectation(
        "mrsampler-pc does not collapse at 2 evaluations.",
        "Its gate refuses the amplified prediction as history, and the data prediction is clamped to the image range "
        "(`test_pc_does_not_collapse_from_2_to_100_evaluations`).",
        "The network's error at the single middle time is large.",
        TASKS,
        (("pc", (2,), 20),),
        _states(_all(("pc",), (2,), "holds", "degrades")),
    ),
)


def judge(expectation: Expectation, results: Results) -> Verdict:
    """Compare the cells of an expectation with their references, as means over its tasks."""
    observations, missing = [], 0
    for method, nfes, reference in expectation.checks:
        # A negative reference is that of data prediction.
        anchor, anchor_nfe = (method, reference) if reference > 0 else ("mr-2", -reference)
        for nfe in nfes:
            psnr, base = (
                results.mean(expectation.tasks, *which, "psnr") for which in ((method, nfe), (anchor, anchor_nfe))
            )
            lpips, base_lpips = (
                results.mean(expectation.tasks, *which, "lpips") for which in ((method, nfe), (anchor, anchor_nfe))
            )
            if psnr is None or base is None:
                missing += 1
                continue
            change = None if lpips is None or base_lpips is None else lpips - base_lpips
            observations.append(Observation(method, nfe, psnr, psnr - base, lpips, change))
    came_out = None if missing else expectation.holds(observations)
    return Verdict(expectation, tuple(observations), missing, came_out)


def verdicts(results: Results) -> list[Verdict]:
    """All expectations, judged."""
    return [judge(expectation, results) for expectation in EXPECTATIONS]
