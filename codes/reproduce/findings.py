"""What the cells say: expectations of theory, first against second order, speed-up. In Markdown.

Every verdict compares a number with a reference within the same results, by a rule that the report states. Nothing
here is tuned to a model.
"""

from dataclasses import dataclass

from ..evaluation.statistics import RULE as NONE_RULE
from ..evaluation.statistics import Estimate
from ..evaluation.tables import QUALITY, markdown
from ..names import TASKS
from ..rows import Column
from .catalogue import METHODS, PAPER_NFES, RECOMMENDED, STANDARD, TABLE_OF_TASK, known_nfes
from .published import published
from .render import MISSING
from .results import Results

COLLAPSE, DEGRADED = 3.0, 1.0  # dB below the reference
NEAR = 1.05  # "as good as": LPIPS at most 5 % above
RULE = (
    f"A method *collapses* at an NFE where its PSNR is at least {COLLAPSE:g} dB below its reference and its LPIPS is "
    f"worse; it *degrades* where that is {DEGRADED:g} to {COLLAPSE:g} dB, and *holds* otherwise, or where the "
    "difference is none. Differences are means over the images that both have. PSNR rewards few steps a "
    "little (they blur), so a collapse in PSNR is never one of taste."
)

COLUMNS = {column.name: column for column in QUALITY}

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
        why="The second-order SDE scheme is linearly unstable for steps h > 0.536 in lambda, i.e. below 19 evaluations "
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
        otherwise="The network predicts the velocity: its data prediction at t = T needs no division by alpha, so that "
        "its error there is not amplified; or the error of a noise prediction is far below 0.02.",
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


def _state(psnr: Estimate, lpips: Estimate | None) -> str:
    """The state of a method by `RULE`, from its changes."""
    if psnr.differs is False:
        return "holds"
    worse = lpips is None or (lpips.mean > 0 and lpips.differs is not False)
    if psnr.mean <= -COLLAPSE and worse:
        return "collapses"
    return "degrades" if psnr.mean <= -DEGRADED else "holds"


def judge(expectation: Expectation, results: Results) -> tuple[list[list[str]], bool | None]:
    """The cells of an expectation against their references as rows of a table, and whether it came out.

    Values are means over its tasks. The verdict is None where cells are missing.
    """
    rows = []
    came_out: bool | None = True
    for check in expectation.checks:
        for nfe in check.nfes:
            one = (check.method, nfe)
            psnr, lpips = (
                results.difference(expectation.tasks, one, check.reference, name) for name in ("psnr", "lpips")
            )
            if psnr is None:
                came_out = None
                continue
            state = _state(psnr, lpips)
            shown = [
                text
                for column, change in ((COLUMNS["psnr"], psnr), (COLUMNS["lpips"], lpips))
                for text in (
                    column.text(results.mean(expectation.tasks, *one, column.name), MISSING),
                    MISSING if change is None else change.text(column.digits),
                )
            ]
            rows.append([METHODS[check.method].title, str(nfe), *shown, state])
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
    best, degraded = results.mean(TASKS, "posterior", 20, "psnr"), results.input_estimate(TASKS, "psnr")
    if best is None or degraded is None:
        return ""
    return (
        f"Posterior sampling with 20 evaluations and correct strides gains {best - degraded.mean:+.2f} dB over the "
        "degraded images with this network. The less that is, the less a failing sampler loses in PSNR; LPIPS then "
        "shows more.\n"
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
        better, total = _first_better_in_paper(column)
        ours = order_counts(results, column)
        here = [str(ours[sign]) for sign in ("better", "none", "worse")] if sum(ours.values()) else [MISSING] * 3
        rows.append([column.label, f"{better} of {total}", *here])
    header = ["metric", "paper: 1 at least as good", "here: 1 better", "none", "2 better"]
    return (
        "## First against second order\n\n"
        f"MR Sampler-1 against MR Sampler-2, row by row (ten tasks at NFE {', '.join(map(str, PAPER_NFES))}). "
        f"{NONE_RULE} The paper's numbers have no errors: there an equal number counts for order 1, and the misprinted "
        "LPIPS as printed. PSNR and SSIM reward the blur of few first-order steps, so they must not decide alone.\n\n"
        f"{markdown(header, rows)}{_order_table(results)}"
    )


def _first_better_in_paper(column: Column) -> tuple[int, int]:
    better = total = 0
    for task in TASKS:
        for nfe in PAPER_NFES:
            table = published()[TABLE_OF_TASK[task]]
            first, second = (table.values(name, nfe)[column.name] for name in ("MR Sampler-1", "MR Sampler-2"))
            total += 1
            better += first <= second if column.lower_is_better else first >= second
    return better, total


def order_counts(results: Results, column: Column) -> dict[str, int]:
    """In how many rows of ours MR Sampler-1 is better than MR Sampler-2, worse, or no different."""
    counts = {"better": 0, "none": 0, "worse": 0}
    for task in TASKS:
        for nfe in PAPER_NFES:
            gap = results.difference([task], ("mr-1", nfe), ("mr-2", nfe), column.name)
            sign = "unknown" if gap is None else gap.sign(column.lower_is_better)
            if sign in counts:
                counts[sign] += 1
    return counts


def _order_table(results: Results) -> str:
    """Mean LPIPS and PSNR of order 1, and what order 2, pc and the recommended solver change."""
    names = {"mr-2": "order 2", "pc": "pc", RECOMMENDED: "recommended"}
    columns = [COLUMNS["lpips"], COLUMNS["psnr"]]
    rows = []
    for nfe in METHODS["pc"].nfes:
        row = [str(nfe)]
        for column in columns:
            row.append(column.text(results.mean(TASKS, "mr-1", nfe, column.name), MISSING))
            for method in names:
                gap = results.difference(TASKS, (method, nfe), ("mr-1", nfe), column.name)
                row.append(MISSING if gap is None else gap.text(column.digits))
        rows.append(row)
    if all(cell == MISSING for row in rows for cell in row[1:]):
        return ""
    header = ["NFE", *(f"{c.label}: {name}" for c in columns for name in ("order 1", *names.values()))]
    return f"\nMeans over the ten tasks; after order 1, the difference to it:\n\n{markdown(header, rows, 'r')}"


# ---- speed-up


def fewest(results: Results, method: str) -> tuple[int, Estimate] | None:
    """The fewest evaluations down to which a method is as good in LPIPS as posterior sampling with 100.

    With the difference there, over the images of both. None if it never is.
    """
    reference = results.mean(TASKS, *_REFERENCE, "lpips")
    found = None
    for nfe in sorted(known_nfes(method), reverse=True):
        gap = results.difference(TASKS, (method, nfe), _REFERENCE, "lpips")
        if gap is None or reference is None or gap.mean > (NEAR - 1) * reference:
            break
        found = nfe, gap
    return found


_REFERENCE = ("posterior-official", 100)


def speed_up(results: Results) -> str:
    """The fewest evaluations that are as good as posterior sampling with 100, and what that saves."""
    reference, slow = (results.mean(TASKS, *_REFERENCE, name) for name in ("lpips", "seconds"))
    if reference is None or slow is None:
        return "## Speed-up\n\nCells are missing: posterior sampling with 100 evaluations on all ten tasks.\n"
    rows = []
    for method in STANDARD:
        found = fewest(results, method)
        row = ["none", MISSING, MISSING, MISSING]
        if found is not None:
            nfe, gap = found
            seconds = results.mean(TASKS, method, nfe, "seconds")
            ratio = f"{slow / seconds:.1f}" if seconds else MISSING
            row = [str(nfe), gap.text(COLUMNS["lpips"].digits), f"{100 / nfe:.1f}", ratio]
        rows.append([METHODS[method].title, *row])
    header = ["method", "fewest NFE", "LPIPS, difference", "100 / NFE", "measured speed-up"]
    return (
        "## Speed-up\n\n"
        f"The fewest evaluations down to which the mean LPIPS over the ten tasks stays within {NEAR - 1:.0%} of "
        f"posterior sampling with 100 ({reference:.4f}), on the images of both, and the time that saves per image.\n\n"
        f"{markdown(header, rows)}"
    )


# ---- how many evaluations


def evaluations(results: Results) -> str:
    """What more evaluations of the recommended solver bring."""
    columns = [COLUMNS["lpips"], COLUMNS["psnr"]]
    rows = []
    for nfe in sorted(METHODS[RECOMMENDED].nfes):
        row = [str(nfe)]
        for column in columns:
            mean = results.mean_estimate(TASKS, RECOMMENDED, nfe, column.name)
            gap = results.difference(TASKS, (RECOMMENDED, nfe), (RECOMMENDED, 1), column.name)
            row.append(MISSING if mean is None else column.text(mean.mean))
            row.append(
                MISSING if gap is None or nfe == 1 else f"{gap.text(column.digits)}, {gap.sign(column.lower_is_better)}"
            )
        rows.append(row)
    if all(cell == MISSING for row in rows for cell in row[1:]):
        return ""
    chosen = ", ".join(f"{key}: {value}" for key, value in results.settings.get("recommended", {}).items())
    header = ["NFE", *(text for c in columns for text in (c.heading, "against 1 evaluation"))]
    return (
        f"## How many evaluations\n\nThe recommended solver ({chosen}), means over the ten tasks. {NONE_RULE}\n\n"
        f"{markdown(header, rows, 'r')}"
    )
