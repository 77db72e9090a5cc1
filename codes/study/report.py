"""The solver study: what the records say about which solver to use at which number of evaluations. Needs no torch.

The paper's recommended setting, MR Sampler-2 (SDE, data prediction, uniform lambda), is the yardstick. The best setting
is chosen and judged on the same images, which flatters it; so the comparison is also made held out, with the images
split in two halves, the setting chosen on one and compared with the paper's on the other.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..evaluation.records import Record, read_records
from ..rows import METRICS as ROWS
from .candidates import GRIDS, PAPER, SCHEMES, TAUS, Candidate, Losses, deficit, mean, parse

# The sign that makes lower better, and the digits of each metric.
METRICS = {name: (1.0 if ROWS[name].lower_is_better else -1.0, ROWS[name].digits) for name in ("lpips", "psnr", "ssim")}
COMPARED = (5, 8, 10)
Values = dict[Candidate, dict[str, float]]  # of one metric: by candidate and image
Pooled = Mapping[str, Mapping[str, float]]  # FID and KID over all tasks: by 'network/label', then by metric


@dataclass(frozen=True)
class Study:
    """The measurements: by network and metric."""

    values: Mapping[str, Mapping[str, Values]]
    pooled: Pooled

    @property
    def networks(self) -> list[str]:
        """Their names."""
        return list(self.values)

    def candidates(self) -> list[Candidate]:
        """Those that were tried on all images with all networks."""
        everywhere = [set(metrics["lpips"]) for metrics in self.values.values()]
        return sorted(set.intersection(*everywhere)) if everywhere else []

    def nfes(self) -> list[int]:
        """All numbers of evaluations."""
        return sorted({candidate.nfe for candidate in self.candidates()})

    def losses(self, candidate: Candidate, metric: str = "lpips", networks: Iterable[str] | None = None) -> Losses:
        """Lower is better: by 'network/task/image'."""
        sign = METRICS[metric][0]
        return {
            f"{network}/{image}": sign * value
            for network in (self.networks if networks is None else networks)
            for image, value in self.values[network][metric][candidate].items()
        }

    def mean(self, candidate: Candidate, metric: str, networks: Iterable[str] | None = None) -> float:
        """The mean over networks, tasks and images, as the metric is usually given."""
        return METRICS[metric][0] * mean(self.losses(candidate, metric, networks))

    def best(self, nfe: int, metric: str = "lpips", networks: Iterable[str] | None = None) -> Candidate:
        """The best setting at a number of evaluations."""
        names = None if networks is None else list(networks)
        candidates = [candidate for candidate in self.candidates() if candidate.nfe == nfe]
        return min(candidates, key=lambda candidate: (mean(self.losses(candidate, metric, names)), candidate))


def collect(records: Mapping[str, Iterable[Record]], pooled: Pooled) -> Study:
    """From the records of each network; settings that lack images are left out."""
    values: dict[str, dict[str, Values]] = {}
    for network, found in records.items():
        metrics: dict[str, Values] = {name: {} for name in METRICS}
        for record in found:
            candidate = parse(record.solver)
            if candidate is None:
                continue
            for name in METRICS:
                if (value := record.metrics.get(name)) is not None:
                    metrics[name].setdefault(candidate, {})[f"{record.task}/{record.name}"] = value
        images = max((len(by_image) for by_image in metrics["lpips"].values()), default=0)
        values[network] = {
            name: {candidate: by_image for candidate, by_image in found_values.items() if len(by_image) == images}
            for name, found_values in metrics.items()
        }
    return Study(values, pooled)


def read(folder: Path) -> Study:
    """The study in a folder: a folder of records for each network, and pooled.json."""
    import json

    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and list(path.glob("records.*.jsonl")))
    pooled = folder / "pooled.json"
    return collect(
        {name: read_records(folder / name).values() for name in names},
        json.loads(pooled.read_text()) if pooled.is_file() else {},
    )


def held_out(study: Study, nfe: int) -> float:
    """The mean difference of LPIPS to the paper's setting, of settings chosen on the other half of the images."""
    paper = study.losses(replace(PAPER, nfe=nfe))
    candidates = [candidate for candidate in study.candidates() if candidate.nfe == nfe]
    names = sorted(paper)
    gaps = []
    for half in (0, 1):
        chosen, judged = names[half::2], names[1 - half :: 2]
        best = min(candidates, key=lambda c: (sum(study.losses(c)[name] for name in chosen), c))
        gaps += [study.losses(best)[name] - paper[name] for name in judged]
    return sum(gaps) / len(gaps)


def wins(losses: Losses, other: Losses) -> tuple[int, int]:
    """In how many tasks the mean is better, and of how many."""
    tasks: dict[str, list[float]] = {}
    for name, value in losses.items():
        _, task, _ = name.split("/", 2)
        tasks.setdefault(task, []).append(value - other[name])
    return sum(sum(gaps) < 0 for gaps in tasks.values()), len(tasks)


def effects(study: Study) -> dict[str, dict[int, float]]:
    """What clamping and the grids change in LPIPS: the mean over the settings that were tried both ways, by NFE."""
    known = set(study.candidates())
    changes = {
        "clamp - no clamp": [(c, replace(c, clamp=False)) for c in known if c.clamp],
        "linspace - uniform lambda": [(c, replace(c, grid=GRIDS[0])) for c in known if c.grid == "linspace"],
        "sinh - uniform lambda": [(c, replace(c, grid=GRIDS[0])) for c in known if c.grid == "auto"],
    }
    found: dict[str, dict[int, float]] = {}
    for name, pairs in changes.items():
        for nfe in study.nfes():
            gaps = [
                study.mean(a, "lpips") - study.mean(b, "lpips") for a, b in sorted(pairs) if a.nfe == nfe and b in known
            ]
            if gaps:
                found.setdefault(name, {})[nfe] = sum(gaps) / len(gaps)
    return found


def finalists(study: Study) -> list[Candidate]:
    """The settings whose FID and KID are worth computing: the best and the paper's at each number of evaluations."""
    chosen = {study.best(nfe) for nfe in study.nfes()} | {replace(PAPER, nfe=nfe) for nfe in study.nfes()}
    return sorted(chosen & set(study.candidates()))


# ---- text


def markdown(study: Study, notes: Sequence[str]) -> str:
    """The study in words and tables."""
    parts = [
        "# Which solver at which number of evaluations",
        "".join(f"- {note}\n" for note in notes),
        "## The best setting by mean LPIPS, and the paper's (order 2, tau 1, uniform lambda)",
        _best_table(study),
        "Difference: LPIPS of the best minus the paper's, with its standard error over images and networks; held out: "
        "the same for settings chosen on the other half of the images. FID and KID are pooled over all tasks; on so "
        "few images they are indicative only.",
        "\n".join(statements(study)),
        "## LPIPS of every scheme, the best of all grids, with and without clamp",
        _scheme_table(study),
        "## The best setting for each network",
        _network_table(study),
        "## What clamping and the grids change",
        _effects_table(study),
        "Mean change of LPIPS over the settings that were tried both ways; below 0 is better. sinh is the grid `auto`: "
        "from 5 evaluations on sinh, below the optimised grids.",
    ]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def statements(study: Study) -> list[str]:
    """Whether the best setting beats the paper's, at the numbers of evaluations that count."""
    lines = []
    for nfe in (nfe for nfe in COMPARED if nfe in study.nfes()):
        best, paper = study.best(nfe), replace(PAPER, nfe=nfe)
        gap, error = deficit(study.losses(best), study.losses(paper))
        ours, theirs = study.mean(best, "lpips"), study.mean(paper, "lpips")
        verdict = "is the paper's own" if best == paper else f"beats the paper's by {-gap:.4f} ± {error:.4f}"
        each = ", ".join(
            f"{network} {study.mean(best, 'lpips', [network]):.4f} against {study.mean(paper, 'lpips', [network]):.4f}"
            for network in study.networks
        )
        lines.append(
            f"- NFE {nfe}: the best setting ({best.description}) {verdict} in mean LPIPS: {ours:.4f} against "
            f"{theirs:.4f} ({100 * (ours / theirs - 1):+.1f} %); by network: {each}."
        )
    return lines


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    rule = ["---"] * left + ["---:"] * (len(heading) - left)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (heading, rule, *rows))


def _best_table(study: Study) -> str:
    rows = []
    for nfe in study.nfes():
        best, paper = study.best(nfe), replace(PAPER, nfe=nfe)
        gap, error = deficit(study.losses(best), study.losses(paper))
        won, tasks = wins(study.losses(best), study.losses(paper))
        cells = [str(nfe), best.description, f"{study.mean(best, 'lpips'):.4f}", f"{study.mean(paper, 'lpips'):.4f}"]
        cells += [f"{gap:+.4f} ± {error:.4f}", f"{held_out(study, nfe):+.4f}", f"{won} of {tasks}"]
        for metric in ("psnr", "ssim"):
            digits = METRICS[metric][1]
            cells.append(" / ".join(f"{study.mean(candidate, metric):.{digits}f}" for candidate in (best, paper)))
        for metric, scale, digits in (("fid", 1, 1), ("kid", 1000, 1)):
            pair = [_pooled(study, candidate, metric) for candidate in (best, paper)]
            cells.append(" / ".join("n/a" if value is None else f"{scale * value:.{digits}f}" for value in pair))
        rows.append(cells)
    heading = ["NFE", "best setting", "LPIPS", "paper's", "difference", "held out", "tasks won"]
    pairs = [f"{name}: best / paper's" for name in ("PSNR", "SSIM", "FID", "1000 KID")]
    return _table([*heading, *pairs], rows, left=2)


def _pooled(study: Study, candidate: Candidate, metric: str) -> float | None:
    values = [study.pooled.get(f"{network}/{candidate.label}", {}).get(metric) for network in study.networks]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _scheme_table(study: Study) -> str:
    nfes = study.nfes()
    found: dict[tuple[str, float], dict[int, float]] = {}
    for candidate in study.candidates():
        row = found.setdefault((candidate.scheme, candidate.tau), {})
        row[candidate.nfe] = min(row.get(candidate.nfe, float("inf")), study.mean(candidate, "lpips"))
    low = {nfe: min(row[nfe] for row in found.values() if nfe in row) for nfe in nfes}
    rows = []
    for scheme in SCHEMES:
        for tau in TAUS:
            row = found.get((scheme, tau), {})
            cells = ["" if nfe not in row else f"{row[nfe]:.4f}" for nfe in nfes]
            marked = [f"**{cell}**" if row.get(nfe) == low[nfe] else cell for nfe, cell in zip(nfes, cells)]
            rows.append([f"{scheme}, tau {tau:g}", *marked])
    return _table(["scheme", *(f"NFE {nfe}" for nfe in nfes)], rows)


def _network_table(study: Study) -> str:
    rows = []
    for nfe in study.nfes():
        cells = [str(nfe)]
        for network in study.networks:
            for metric in ("lpips", "psnr"):
                best = study.best(nfe, metric, [network])
                cells.append(f"{best.description}: {study.mean(best, metric, [network]):.{METRICS[metric][1]}f}")
        rows.append(cells)
    heading = [f"{network}, by {name}" for network in study.networks for name in ("LPIPS", "PSNR")]
    return _table(["NFE", *heading], rows, left=1 + len(heading))


def _effects_table(study: Study) -> str:
    nfes = study.nfes()
    rows = [
        [name, *(f"{changes[nfe]:+.4f}" if nfe in changes else "" for nfe in nfes)]
        for name, changes in effects(study).items()
    ]
    return _table(["change", *(f"NFE {nfe}" for nfe in nfes)], rows)


def csv_text(study: Study) -> str:
    """Every setting and network, with all digits."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["network", "nfe", "scheme", "tau", "clamp", "grid", "images", *METRICS, "fid", "kid"])
    for network in study.networks:
        for candidate in sorted(study.values[network]["lpips"]):
            values = [repr(study.mean(candidate, metric, [network])) for metric in METRICS]
            pooled = study.pooled.get(f"{network}/{candidate.label}", {})
            sets = [repr(pooled[name]) if name in pooled else "" for name in ("fid", "kid")]
            setting = [candidate.nfe, candidate.scheme, f"{candidate.tau:g}", int(candidate.clamp), candidate.grid]
            writer.writerow([network, *setting, len(study.losses(candidate, "lpips", [network])), *values, *sets])
    return buffer.getvalue()


def render(folder: Path, notes: Sequence[str]) -> list[Path]:
    """Write study.md, study.csv and the figure from what is stored in `folder`."""
    from .figures import FIGURES

    study = read(folder)
    if not study.candidates():
        raise ValueError(f"{folder}: nothing has been measured there on all images with all networks")
    means = {
        metric: {
            network: {candidate: study.mean(candidate, metric, [network]) for candidate in study.candidates()}
            for network in study.networks
        }
        for metric in ("lpips", "psnr")
    }
    best = {nfe: study.best(nfe) for nfe in study.nfes()}
    figure = FIGURES["study"]
    drawn = figure.draw(means["lpips"], means["psnr"], best, effects(study), folder / "study")
    text = markdown(study, notes) + f"\n![{figure.title}](study.png)\n\n{figure.caption}\n"
    (folder / "study.md").write_text(text)
    (folder / "study.csv").write_text(csv_text(study))
    return [folder / "study.md", folder / "study.csv", *drawn]
