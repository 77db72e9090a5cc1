"""What the network says about each claim of the paper: a status by a stated rule, the measurements, and their row.

The status is about our earlier verdict in docs/CLAIMS.md: supported, changed or withdrawn by these results, or not
decided where cells are missing. Claims that rest on algebra or exact problems are decided by tests, whatever a network
does.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ..names import TASKS
from .catalogue import METHODS, PAPER_NFES, RECOMMENDED
from .findings import COLUMNS, EXPECTATIONS, fewest, judge, order_counts
from .results import Results

SUPPORTED, CHANGED, WITHDRAWN, OPEN = "supported", "changed", "withdrawn", "not decided"
LPIPS, PSNR = COLUMNS["lpips"].digits, COLUMNS["psnr"].digits


@dataclass(frozen=True)
class Measured:
    """The status of a verdict, and the measurements in a sentence or two."""

    status: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of the paper.

    rule      when the network supports, changes or withdraws our verdict
    rests     the sections of the report that it rests on; '' for exact claims, which tests decide
    measure   f(results); None for exact claims
    """

    number: int
    text: str
    verdict: str
    rests: str = ""
    rule: str = ""
    measure: Callable[[Results], Measured] | None = None


_MISSING = Measured(OPEN, "Cells are missing.")


def _listed(texts: list[str]) -> str:
    """
    >>> _listed(["a", "b", "c"]), _listed(["a"])
    ('a, b and c', 'a')
    """
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def _speed(results: Results) -> Measured:
    if results.mean(TASKS, "posterior-official", 100, "lpips") is None:
        return _MISSING
    methods = ("mr-1", "mr-2", "posterior", "pc", RECOMMENDED, "posterior-official")
    found = {method: fewest(results, method) for method in methods}
    texts = [
        f"{METHODS[method].title} {'never' if each is None else each[0]}"
        + ("" if each is None else f" ({each[1].text(LPIPS)})")
        for method, each in found.items()
    ]
    least = min((each[0] for name, each in found.items() if each and name in ("mr-1", "mr-2")), default=101)
    status = SUPPORTED if least <= 10 else CHANGED if least <= 50 else WITHDRAWN
    return Measured(
        status,
        "The fewest evaluations down to which every number of them is as good in LPIPS as posterior sampling with 100 "
        f"(within 5 %), and the difference to it: {'; '.join(texts)}. With correct strides, 5 are the fewest that "
        "posterior sampling was run with.",
    )


def _strides(results: Results) -> Measured:
    judged = [judge(expectation, results)[1] for expectation in EXPECTATIONS[:3]]
    if None in judged:
        return _MISSING
    texts = []
    for method in ("posterior-official", "posterior", "euler-official", "euler"):
        gaps = [(nfe, results.difference(TASKS, (method, nfe), (method, 100), "psnr")) for nfe in (20, 10, 5)]
        values = _listed([f"{gap.text(PSNR)} at {nfe}" for nfe, gap in gaps if gap is not None])
        texts.append(f"{METHODS[method].title} {values}")
    status = SUPPORTED if judged[0] and judged[1] else WITHDRAWN if not judged[0] else CHANGED
    return Measured(status, f"Change of PSNR in dB against 100 evaluations: {'; '.join(texts)}.")


def _order(results: Results) -> Measured:
    gaps = {nfe: results.difference(TASKS, ("mr-2", nfe), ("mr-1", nfe), "lpips") for nfe in PAPER_NFES}
    if None in gaps.values():
        return _MISSING
    signs = {nfe: gap.sign(True) for nfe, gap in gaps.items() if gap is not None}
    better = [nfe for nfe, sign in signs.items() if sign == "better"]
    counts = order_counts(results, COLUMNS["lpips"])
    status = SUPPORTED if not better else WITHDRAWN if len(better) == len(signs) else CHANGED
    values = [f"{gap.text(LPIPS)} at {nfe} ({signs[nfe]})" for nfe, gap in gaps.items() if gap is not None]
    return Measured(
        status,
        f"Mean LPIPS of MR Sampler-2 minus that of MR Sampler-1: {_listed(values)}. Row by row, of "
        f"{sum(counts.values())} in the ten tables, order 1 is better in {counts['better']}, order 2 in "
        f"{counts['worse']}, neither in {counts['none']}.",
    )


def _parameterization(results: Results) -> Measured:
    came_out = judge(EXPECTATIONS[3], results)[1]
    if came_out is None:
        return _MISSING
    gaps = [(nfe, results.difference(["rainy"], ("mr-2-noise", nfe), ("mr-2", nfe), "psnr")) for nfe in PAPER_NFES[1:]]
    values = _listed([f"{gap.text(PSNR)} at {nfe}" for nfe, gap in gaps if gap is not None])
    text = f"Rainy, PSNR in dB of noise prediction minus data prediction: {values}."
    return Measured(SUPPORTED if came_out else CHANGED, text)


def _stochasticity(results: Results) -> Measured:
    gaps = {
        nfe: results.difference(["uncompleted"], ("mr-2", nfe), ("mr-2-ode", nfe), "lpips") for nfe in PAPER_NFES[1:]
    }
    if None in gaps.values():
        return _MISSING
    signs = {nfe: gap.sign(True) for nfe, gap in gaps.items() if gap is not None}
    many, few = {signs[50], signs[20]}, {signs[10], signs[5]}
    if "better" in many and "worse" in few and "worse" not in many and "better" not in few:
        status = SUPPORTED
    else:
        status = WITHDRAWN if "worse" in many and "better" in few else CHANGED
    values = [f"{gap.text(LPIPS)} at {nfe} ({signs[nfe]})" for nfe, gap in gaps.items() if gap is not None]
    return Measured(status, f"Inpainting, LPIPS of the SDE minus that of the ODE, MR Sampler-2: {_listed(values)}.")


def _evaluations(results: Results) -> Measured:
    judged = [judge(expectation, results)[1] for expectation in EXPECTATIONS[4:6]]
    gaps = {
        nfe: results.difference(TASKS, (RECOMMENDED, nfe), (RECOMMENDED, 1), "lpips")
        for nfe in sorted(METHODS[RECOMMENDED].nfes)
        if nfe > 1
    }
    if None in judged or None in gaps.values():
        return _MISSING
    drop = {method: results.difference(TASKS, (method, 2), (method, 20), "psnr") for method in ("mr-2", "pc")}
    values = _listed([f"{METHODS[m].title} {gap.text(PSNR)}" for m, gap in drop.items() if gap is not None])
    better = [str(nfe) for nfe, gap in gaps.items() if gap is not None and gap.sign(True) == "better"]
    more = (
        f"more evaluations are better in LPIPS at {_listed(better)}" if better else "no number of evaluations is better"
    )
    text = (
        f"Change of PSNR in dB from 20 evaluations to 2: {values}. With the recommended solver {more} than one "
        "(*How many evaluations*)."
    )
    return Measured(SUPPORTED if all(judged) else CHANGED, text)


CLAIMS = (
    Claim(
        number=1,
        text="restoration is 10 to 20 times faster without loss",
        verdict="holds against the published baseline; the baseline has a mistake",
        rests="Speed-up",
        rule="supported if MR Sampler-1 or -2 is as good with 10 evaluations or fewer, withdrawn if with none up to 50",
        measure=_speed,
    ),
    Claim(
        number=2,
        text="posterior sampling and Euler do not converge with 50 evaluations",
        verdict="holds for the published code, not for the methods",
        rests="Expected by theory",
        rule="supported if the published strides collapse and posterior sampling with correct ones does not, withdrawn "
        "if the published ones do not collapse",
        measure=_strides,
    ),
    Claim(
        number=3,
        text="MR Sampler is a new sampler beside posterior sampling",
        verdict="its first order *is* posterior sampling with correct strides",
    ),
    Claim(
        number=4,
        text="second order improves on first",
        verdict="in accuracy yes; in the paper's metrics mostly not",
        rests="First against second order",
        rule="supported if order 2 is better in mean LPIPS at none of the paper's NFEs, withdrawn if at every one",
        measure=_order,
    ),
    Claim(
        number=5,
        text="data prediction is stable, noise prediction is not",
        verdict="holds",
        rests="Ablation: noise against data prediction",
        rule="supported if noise prediction collapses at 5 and 10 evaluations and not at 50",
        measure=_parameterization,
    ),
    Claim(
        number=6,
        text="noise prediction fails because the network's Taylor series diverges",
        verdict="does not hold: it is a linear instability of the scheme",
    ),
    Claim(
        number=7,
        text="SDE is better with many evaluations, ODE with few",
        verdict="holds in its tables and in theory; something in between can be better than both",
        rests="Ablation: ODE against SDE",
        rule="supported if the SDE is better at 50 or 20 and the ODE at 10 or 5, withdrawn if the other way round",
        measure=_stochasticity,
    ),
    Claim(
        number=8,
        text="10 to 20 evaluations are the best compromise; 2 collapse",
        verdict="holds for MR Sampler-2 with noise prediction; the collapse can be avoided",
        rests="Expected by theory",
        rule="supported if MR Sampler-2 collapses or degrades at 2 evaluations and mrsampler-pc does not collapse",
        measure=_evaluations,
    ),
    Claim(
        number=9,
        text="samplers of other diffusion models cannot be applied",
        verdict="too strong: they can, after a change of variable",
    ),
    Claim(
        number=10,
        text="the algorithms have the orders they are derived with",
        verdict="holds for orders 1 and 2",
    ),
)
