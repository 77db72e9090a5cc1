"""docs/peers.md from the scores: tables, and what they say in words."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from codes.evaluation.statistics import Estimate
from codes.evaluation.tables import markdown
from codes.study.candidates import deficit

from . import IMAGES, SIZE

INPUT = "degraded image"
_METRICS = {"psnr": 2, "ssim": 3, "lpips": 3}  # digits


@dataclass(frozen=True, kw_only=True)
class Row:
    """A method on a task: means over images, and how it differs from ours."""

    title: str
    psnr: float
    ssim: float
    lpips: float
    seconds: float | None  # of processor time per megapixel
    psnr_gain: tuple[float, float] | None = None  # over ours, with its standard error
    lpips_gain: tuple[float, float] | None = None
    note: str = ""


def rows_of(scores: Mapping[str, Mapping[str, Mapping[str, float]]], notes: Mapping[str, str], ours: str) -> list[Row]:
    """The rows of a task from the scores by method and image; `ours` is the method that others are compared with."""
    rows = []
    for title, by_image in scores.items():
        means: dict[str, Any] = {
            name: sum(each[name] for each in by_image.values()) / len(by_image) for name in _METRICS
        }
        seconds = [each["seconds"] / each["megapixels"] for each in by_image.values() if "seconds" in each]
        gains: dict[str, Any] = {}
        if title not in (ours, INPUT) and ours in scores:
            for metric in ("psnr", "lpips"):
                mine, theirs = ({name: each[metric] for name, each in scores[which].items()} for which in (ours, title))
                gap = deficit(theirs, mine)
                gains[f"{metric}_gain"] = gap.mean, gap.error
        rows.append(
            Row(
                title=title,
                seconds=sum(seconds) / len(seconds) if seconds else None,
                note=notes.get(title, ""),
                **means,
                **gains,
            )
        )
    return rows


def gain_text(gain: tuple[float, float] | None, digits: int) -> str:
    """A difference with its standard error; none where it is within two."""
    if gain is None:
        return ""
    found = Estimate(*gain, count=0)
    return found.text(digits) if found.differs else "none"


def seconds_text(seconds: float | None) -> str:
    """Two digits that count."""
    if seconds is None:
        return ""
    digits = max(0, 1 - math.floor(math.log10(max(seconds, 1e-3))))
    return f"{seconds:.{digits}f}"


def table(rows: Sequence[Row]) -> str:
    """A task as Markdown."""
    heading = ["", "PSNR ↑", "against ours", "SSIM ↑", "LPIPS ↓", "against ours", "CPU s per megapixel"]
    lines = [
        [
            row.title,
            f"{row.psnr:.2f}",
            gain_text(row.psnr_gain, 2),
            f"{row.ssim:.3f}",
            f"{row.lpips:.3f}",
            gain_text(row.lpips_gain, 3),
            seconds_text(row.seconds),
        ]
        for row in rows
    ]
    return markdown(heading, lines)


def sentence(rows: Sequence[Row], ours: str) -> str:
    """Who wins the task in PSNR, by how much, what of LPIPS, and at what cost."""
    mine = next(row for row in rows if row.title == ours)
    others = [row for row in rows if row.psnr_gain is not None and not row.title.startswith("MR Sampler")]
    if not others:
        return "No peer."
    best = max(others, key=lambda row: row.psnr)
    gain = best.psnr_gain or (0.0, 0.0)
    if gain_text(gain, 2) == "none":
        outcome = f"Between ours and {best.title}, the best peer, there is no difference in PSNR"
    elif gain[0] > 0:
        outcome = f"{best.title} is better by {gain[0]:.2f} ± {gain[1]:.2f} dB"
    else:
        outcome = f"Ours is better than {best.title}, the best peer, by {-gain[0]:.2f} ± {gain[1]:.2f} dB"
    if not mine.seconds or not best.seconds:
        return f"{outcome}."
    if best.lpips_gain is not None and gain_text(best.lpips_gain, 3) != "none":
        better = "lower (better)" if best.lpips_gain[0] < 0 else "higher (worse)"
        outcome += f", and the peer's LPIPS is {better} by {abs(best.lpips_gain[0]):.3f} ± {best.lpips_gain[1]:.3f}"
    ratio = best.seconds / mine.seconds
    cost = f"{ratio:.1f} times" if ratio >= 1 else f"1/{1 / ratio:.1f} of"
    return f"{outcome}; it takes {cost} the processor time of ours."


def to_json(tasks: Mapping[str, Sequence[Row]], facts: Mapping[str, Any]) -> dict[str, Any]:
    """What the page is rendered from."""
    return {**facts, "tasks": {task: [asdict(row) for row in rows] for task, rows in tasks.items()}}


def from_json(value: Mapping[str, Any]) -> dict[str, list[Row]]:
    """The rows that `to_json` wrote."""

    def row(entry: Mapping[str, Any]) -> Row:
        fields: dict[str, Any] = {k: tuple(item) if isinstance(item, list) else item for k, item in entry.items()}
        return Row(**fields)

    return {task: [row(entry) for entry in rows] for task, rows in value["tasks"].items()}


def page(results: Mapping[str, Any]) -> str:
    """docs/peers.md."""
    tasks = from_json(results)
    ours = results["ours"]
    parts = [
        "# Peers",
        _INTRODUCTION.format(**results, unusual=_unusual(results)),
    ]
    for task, rows in tasks.items():
        parts.append(f"## {results['titles'][task]}")
        parts.append(table(rows).rstrip())
        parts.append(sentence(rows, ours))
    notes = {row.title: row.note for rows in tasks.values() for row in rows if row.note}
    parts.append("## What the methods are")
    parts.append("\n".join(f"- **{title}**: {note}." for title, note in notes.items()))
    if results["missing"]:
        parts.append("## What is missing")
        parts.append("\n".join(f"- {line}" for line in results["missing"]))
    return "\n\n".join(parts) + "\n"


def _unusual(results: Mapping[str, Any]) -> str:
    """The options of the command that are not its defaults."""
    usual = {"images": IMAGES, "size": SIZE}
    return "".join(f" --{name} {results[name]}" for name, value in usual.items() if results[name] != value)


_INTRODUCTION = """\
What a user could take instead of this project's network, from the usual registries: quality and cost on the same
images, measured in one run. None of it is a dependency. A network or a filter made for one task has less to do than
ours, which is not told the task, the level of the noise or the place of the holes: where such a peer wins, the table
says by how much, and at what cost. Nothing about our network, solver or thresholds was chosen by these numbers.

Up to {images} images of each set, the middle {size} pixels; noise is clipped and rounded to 8 bits. Differences are to
our default (*{ours}*), means over the same images with their standard errors; one within two standard errors is called
none.
Seconds are processor time per megapixel, of all threads together, without loading. Network: `{weights}`, SHA-256
{sha256}, measured at commit {commit}.

```bash
python scripts/peers.py --testsets TESTSETS --photos photos/val{unusual} --document docs/peers.md
```

makes this page anew: `TESTSETS` holds the folders CBSD68, LIVE1, LOL-eval15 (LQ, GT) and Rain100H (LQ, GT). Peers are
installed into environments of their own in the user's cache; one that cannot be had is left out, and named at the end.
Numbers with all their digits are in [peers.json](peers.json)."""
