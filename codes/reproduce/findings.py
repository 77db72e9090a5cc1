"""The parts of the report that are computed from the cells: theory, orders, speed-up. In Markdown."""

from collections.abc import Iterable, Sequence

from ..evaluation.tables import Column
from ..names import TASKS
from .catalogue import METHODS, PAPER_NFES, QUALITY, STANDARD, TABLE_OF_TASK
from .expectations import RULE, Observation, Verdict, verdicts
from .published import published
from .results import Results

NEAR = 1.05  # "as good as": LPIPS at most 5 % above


def table(header: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A Markdown table whose first `left` columns are text."""
    lines = [header, [*["---"] * left, *["---:"] * (len(header) - left)], *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def theory(results: Results) -> str:
    """What theory expects and whether it came out."""
    found = verdicts(results)
    counts = [sum(verdict.came_out is value for verdict in found) for value in (True, False, None)]
    summary = f"{counts[0]} of {len(found)} came out, {counts[1]} did not"
    summary += f", {counts[2]} cannot be told yet: cells are missing" if counts[2] else ""
    parts = ["## Expected by theory\n", f"{summary}. {RULE}\n", _strength(results), *(_verdict(one) for one in found)]
    return "\n".join(part for part in parts if part)


def _strength(results: Results) -> str:
    """How much the network restores at all: where that is little, a sampler that fails has little to lose."""
    tasks = [str(task) for task in TASKS]
    best, degraded = results.mean(tasks, "posterior", 100, "psnr"), results.input_mean(tasks, "psnr")
    if best is None or degraded is None:
        return ""
    return (
        f"Posterior sampling with 100 evaluations gains {best - degraded:+.2f} dB over the degraded images with this "
        "network. The less that is, the less a failing sampler loses in PSNR; LPIPS then shows more.\n"
    )


def _verdict(verdict: Verdict) -> str:
    expected = verdict.expectation
    answers = {True: "came out", False: "**did not come out**", None: "is not decided, cells are missing"}
    where = "mean over the ten tasks" if len(expected.tasks) > 1 else ", ".join(expected.tasks)
    text = f"### {expected.text}\n\nIt {answers[verdict.came_out]} ({where}). {expected.why}\n"
    if verdict.came_out is False:
        text += f"\nWhat that may mean: {expected.otherwise}\n"
    if verdict.observations:
        header = ["method", "NFE", "PSNR", "change", "LPIPS", "change", ""]
        text += "\n" + table(header, [_observed(one) for one in verdict.observations])
    return text


def _observed(one: Observation) -> list[str]:
    lpips = (
        ["–", "–"]
        if one.lpips is None or one.lpips_change is None
        else [f"{one.lpips:.4f}", f"{one.lpips_change:+.4f}"]
    )
    return [METHODS[one.method].title, str(one.nfe), f"{one.psnr:.2f}", f"{one.psnr_change:+.2f}", *lpips, one.state]


def orders(results: Results) -> str:
    """How often first order beats second, by metric: in the paper's ten tables, and in ours."""
    rows = []
    for column in QUALITY:
        ours, theirs = (_first_better(results, column, paper) for paper in (False, True))
        rows.append([column.label, f"{theirs[0]} of {theirs[1]}", f"{ours[0]} of {ours[1]}" if ours[1] else "–"])
    few = _order_table(results)
    return (
        "## First against second order\n\n"
        f"In how many of the rows (ten tasks at NFE {', '.join(map(str, PAPER_NFES))}) MR Sampler-1 is better than MR "
        "Sampler-2 or equal to it. The misprinted LPIPS counts as printed. PSNR and SSIM reward the blur of few "
        "first-order steps, so they must not decide alone.\n\n"
        f"{table(['metric', 'paper', 'here'], rows)}{few}"
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
    rows = []
    for nfe in METHODS["pc"].nfes:
        row = [str(nfe)]
        for metric, digits in (("lpips", 4), ("psnr", 2)):
            for method in ("mr-1", "mr-2", "pc"):
                value = results.mean(TASKS, method, nfe, metric)
                row.append("–" if value is None else f"{value:.{digits}f}")
        rows.append(row)
    if all(cell == "–" for row in rows for cell in row[1:]):
        return ""
    header = ["NFE", *(f"{metric} {name}" for metric in ("LPIPS", "PSNR") for name in ("order 1", "order 2", "pc"))]
    return f"\nMeans over the ten tasks, ours:\n\n{table(header, rows, 0)}"


def speed_up(results: Results) -> str:
    """The fewest evaluations that are as good as posterior sampling with 100, and what that saves."""
    reference = results.mean(TASKS, "posterior-official", 100, "lpips")
    slow = results.mean(TASKS, "posterior-official", 100, "seconds")
    if reference is None or slow is None:
        return "## Speed-up\n\nCells are missing: posterior sampling with 100 evaluations on all ten tasks.\n"
    rows = []
    for method in STANDARD:
        enough = None
        for nfe in sorted({*METHODS[method].nfes, 100} if method in ("posterior", "euler") else METHODS[method].nfes)[
            ::-1
        ]:
            value = results.mean(TASKS, method, nfe, "lpips")
            if value is None or value > NEAR * reference:
                break
            enough = nfe
        if enough is None:
            rows.append([METHODS[method].title, "none", "–", "–", "–"])
            continue
        value, seconds = (results.mean(TASKS, method, enough, name) for name in ("lpips", "seconds"))
        assert value is not None and seconds is not None
        ratio = f"{slow / seconds:.1f}" if seconds else "–"
        rows.append([METHODS[method].title, str(enough), f"{value:.4f}", f"{100 / enough:.1f}", ratio])
    header = ["method", "fewest NFE", "LPIPS", "100 / NFE", "measured speed-up"]
    return (
        "## Speed-up\n\n"
        f"The fewest evaluations down to which the mean LPIPS over the ten tasks stays within {NEAR - 1:.0%} of "
        f"posterior sampling with 100 ({reference:.4f}), among those run, and the time that saves per image.\n\n"
        f"{table(header, rows)}"
    )
