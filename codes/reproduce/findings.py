"""What the cells say: expectations of theory, first against second order, speed-up. In Markdown.

Every verdict compares a number with a reference within the same results, by a rule that the report states. Nothing
here is tuned to a model.
"""

from dataclasses import dataclass

from ..evaluation.tables import QUALITY, Column, markdown
from ..names import TASKS
from .catalogue import METHODS, PAPER_NFES, STANDARD, TABLE_OF_TASK, known_nfes
from .published import published
from .render import MISSING
from .results import Results

COLLAPSE, DEGRADED = 3.0, 1.0  # dB below the reference
NEAR = 1.05  # "as good as": LPIPS at most 5 % above
RULE = (
    f"A method *collapses* at an NFE where its PSNR is at least {COLLAPSE:g} dB below its reference and its LPIPS is "
    f"worse; it *degrades* where that is {DEGRADED:g} to {COLLAPSE:g} dB, and *holds* otherwise. PSNR rewards few "
    "steps a little (they blur), so a collapse in PSNR is never one of taste."
)

# ---- what theory expects


@dataclass(frozen=True)
class Check:
    """The states that a method may have at some NFEs, against a reference (method, NFE)."""

    method: str
    nfes: tuple[int, ...]
    allowed: tuple[str, ...]
    reference: tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """One sentence of theory and the cells that decide it."""

    text: str
    why: str  # the theory
    otherwise: str  # what a failure would mean
    checks: tuple[Check, ...]
    tasks: tuple[str, ...] = TASKS


_FEWER = (20, 10, 5)
_NO_COLLAPSE = ("holds", "degrades")
EXPECTATIONS = (
    Expectation(
        text="Posterior sampling and Euler with the published stride collapse below 50 evaluations.",
        why="The published code takes strided times but single-step coefficients: with N of 100 evaluations it covers "
        "about N/100 of the reverse time and stops near the noisy input (`codes/solvers/official.py`).",
        otherwise="The schedule or the stride is not the published one: check `compat: official` and T.",
        checks=tuple(
            Check(method, _FEWER, ("collapses",), (method, 100)) for method in ("posterior-official", "euler-official")
        ),
    ),
    Expectation(
        text="Posterior sampling with correct strides does not collapse.",
        why="It is MR Sampler-1 on another time grid, exactly (`test_posterior_sampling_is_the_first_order_sde_step`).",
        otherwise="The network is much worse at the times of the strided grid than at others.",
        checks=(Check("posterior", (50, *_FEWER), _NO_COLLAPSE, ("posterior", 100)),),
    ),
    Expectation(
        text="Euler with correct strides does not collapse.",
        why="Its error is that of a first-order explicit scheme: on exactly solvable problems it grows by a factor "
        "1.05 at 50 evaluations, 1.15 at 20, 1.4 at 10 and 1.9 at 5.",
        otherwise="An explicit Euler step leaves noise behind that the last steps cannot remove; at 5 evaluations this "
        "alone can cost more than 3 dB against its own result at 100 where the network restores well. That is "
        "inaccuracy, not the published collapse: compare the two Euler rows at the same NFE.",
        checks=(Check("euler", (50, *_FEWER), _NO_COLLAPSE, ("euler", 100)),),
    ),
    Expectation(
        text="Noise prediction collapses at 5 and 10 evaluations and not at 50.",
        why="The second-order SDE scheme is linearly unstable for steps h > 0.537 in lambda, i.e. below 19 evaluations "
        "on a uniform grid, with the exact score too (`test_noise_prediction_is_unstable_for_large_steps`, "
        "`test_noise_prediction_collapses_with_the_exact_score`).",
        otherwise="The reference is data prediction at 50 evaluations; if noise prediction is below it at 50, the "
        "network's error, not the instability, is seen.",
        tasks=("rainy",),
        checks=(
            Check("mr-2-noise", (50,), _NO_COLLAPSE, ("mr-2", 50)),
            Check("mr-2-noise", (10, 5), ("collapses",), ("mr-2", 50)),
        ),
    ),
    Expectation(
        text="MR Sampler-2 collapses or degrades at 2 evaluations.",
        why="At t = T an error of the noise prediction is amplified 39 times in the data prediction, and the second "
        "step extrapolates it with weight -0.9 (`test_two_evaluations_with_an_imperfect_network`).",
        otherwise="The network's error at t = T is far below 0.02, which makes the amplified error harmless.",
        checks=(Check("mr-2", (2,), ("collapses", "degrades"), ("mr-2", 20)),),
    ),
    Expectation(
        text="mrsampler-pc does not collapse at 2 evaluations.",
        why="Its gate refuses the amplified prediction as history, and the data prediction is clamped to the image "
        "range (`test_pc_does_not_collapse_from_2_to_100_evaluations`).",
        otherwise="The network's error at the single middle time is large.",
        checks=(Check("pc", (2,), _NO_COLLAPSE, ("pc", 20)),),
    ),
)


def _state(psnr_change: float, lpips_change: float | None) -> str:
    """The state of a method by `RULE`."""
    worse = lpips_change is None or lpips_change > 0
    if psnr_change <= -COLLAPSE and worse:
        return "collapses"
    return "degrades" if psnr_change <= -DEGRADED else "holds"


def judge(expectation: Expectation, results: Results) -> tuple[list[list[str]], bool | None]:
    """The cells of an expectation against their references as rows of a table, and whether it came out.

    Values are means over its tasks. The verdict is None where cells are missing.
    """

    def change(check: Check, nfe: int, metric: str) -> tuple[float | None, float | None]:
        value, base = (
            results.mean(expectation.tasks, *which, metric) for which in ((check.method, nfe), check.reference)
        )
        return value, None if value is None or base is None else value - base

    rows = []
    came_out: bool | None = True
    for check in expectation.checks:
        for nfe in check.nfes:
            psnr, psnr_change = change(check, nfe, "psnr")
            lpips, lpips_change = change(check, nfe, "lpips")
            if psnr_change is None:
                came_out = None
                continue
            state = _state(psnr_change, lpips_change)
            shown = [MISSING] * 2 if lpips_change is None else [f"{lpips:.4f}", f"{lpips_change:+.4f}"]
            rows.append([METHODS[check.method].title, str(nfe), f"{psnr:.2f}", f"{psnr_change:+.2f}", *shown, state])
            came_out = came_out and state in check.allowed
    return rows, came_out


def theory(results: Results) -> str:
    """What theory expects and whether it came out."""
    found = [judge(expectation, results) for expectation in EXPECTATIONS]
    counts = [sum(came_out is value for _, came_out in found) for value in (True, False, None)]
    summary = f"{counts[0]} of {len(found)} came out, {counts[1]} did not"
    summary += f", {counts[2]} cannot be decided yet: cells are missing" if counts[2] else ""
    verdicts = [_verdict(expected, *judged) for expected, judged in zip(EXPECTATIONS, found, strict=True)]
    parts = ["## Expected by theory\n", f"{summary}. {RULE}\n", _strength(results), *verdicts]
    return "\n".join(part for part in parts if part)


def _strength(results: Results) -> str:
    """How much the network restores at all: where that is little, a sampler that fails has little to lose."""
    best, degraded = results.mean(TASKS, "posterior", 100, "psnr"), results.input_mean(TASKS, "psnr")
    if best is None or degraded is None:
        return ""
    return (
        f"Posterior sampling with 100 evaluations gains {best - degraded:+.2f} dB over the degraded images with this "
        "network. The less that is, the less a failing sampler loses in PSNR; LPIPS then shows more.\n"
    )


def _verdict(expected: Expectation, rows: list[list[str]], came_out: bool | None) -> str:
    answers = {True: "came out", False: "**did not come out**", None: "is not decided, cells are missing"}
    where = "mean over the ten tasks" if len(expected.tasks) > 1 else ", ".join(expected.tasks)
    text = f"### {expected.text}\n\nIt {answers[came_out]} ({where}). {expected.why}\n"
    if came_out is False:
        text += f"\nWhat that may mean: {expected.otherwise}\n"
    if rows:
        text += "\n" + markdown(["method", "NFE", "PSNR", "change", "LPIPS", "change", ""], rows)
    return text


# ---- first against second order


def orders(results: Results) -> str:
    """How often first order beats second, by metric: in the paper's ten tables, and in ours."""
    rows = []
    for column in QUALITY:
        ours, theirs = (_first_better(results, column, paper) for paper in (False, True))
        rows.append([column.label, f"{theirs[0]} of {theirs[1]}", f"{ours[0]} of {ours[1]}" if ours[1] else MISSING])
    return (
        "## First against second order\n\n"
        f"In how many of the rows (ten tasks at NFE {', '.join(map(str, PAPER_NFES))}) MR Sampler-1 is better than MR "
        "Sampler-2 or equal to it. The misprinted LPIPS counts as printed. PSNR and SSIM reward the blur of few "
        "first-order steps, so they must not decide alone.\n\n"
        f"{markdown(['metric', 'paper', 'here'], rows)}{_order_table(results)}"
    )


def _first_better(results: Results, column: Column, paper: bool) -> tuple[int, int]:
    better = total = 0
    for task in TASKS:
        for nfe in PAPER_NFES:
            first, second = (
                published()[TABLE_OF_TASK[task]].values(name, nfe).get(column.name)
                if paper
                else results.value(task, method, nfe, column.name)
                for name, method in (("MR Sampler-1", "mr-1"), ("MR Sampler-2", "mr-2"))
            )
            if first is not None and second is not None:
                total += 1
                better += first <= second if column.lower_is_better else first >= second
    return better, total


def _order_table(results: Results) -> str:
    """Mean LPIPS and PSNR of order 1, order 2 and pc at few evaluations."""
    names = {"mr-1": "order 1", "mr-2": "order 2", "pc": "pc"}
    columns = [column for column in QUALITY if column.name in ("lpips", "psnr")]
    rows = [
        [str(nfe), *(c.text(results.mean(TASKS, method, nfe, c.name), MISSING) for c in columns for method in names)]
        for nfe in METHODS["pc"].nfes
    ]
    if all(cell == MISSING for row in rows for cell in row[1:]):
        return ""
    header = ["NFE", *(f"{column.label} {name}" for column in columns for name in names.values())]
    return f"\nMeans over the ten tasks, ours:\n\n{markdown(header, rows, 'r')}"


# ---- speed-up


def speed_up(results: Results) -> str:
    """The fewest evaluations that are as good as posterior sampling with 100, and what that saves."""
    reference = results.mean(TASKS, "posterior-official", 100, "lpips")
    slow = results.mean(TASKS, "posterior-official", 100, "seconds")
    if reference is None or slow is None:
        return "## Speed-up\n\nCells are missing: posterior sampling with 100 evaluations on all ten tasks.\n"
    rows = []
    for method in STANDARD:
        row = ["none", MISSING, MISSING, MISSING]
        for nfe in sorted(known_nfes(method), reverse=True):
            value, seconds = (results.mean(TASKS, method, nfe, name) for name in ("lpips", "seconds"))
            if value is None or value > NEAR * reference:
                break
            ratio = f"{slow / seconds:.1f}" if seconds else MISSING
            row = [str(nfe), f"{value:.4f}", f"{100 / nfe:.1f}", ratio]
        rows.append([METHODS[method].title, *row])
    header = ["method", "fewest NFE", "LPIPS", "100 / NFE", "measured speed-up"]
    return (
        "## Speed-up\n\n"
        f"The fewest evaluations down to which the mean LPIPS over the ten tasks stays within {NEAR - 1:.0%} of "
        f"posterior sampling with 100 ({reference:.4f}), among those run, and the time that saves per image.\n\n"
        f"{markdown(header, rows)}"
    )
