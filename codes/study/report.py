"""The solver study: what the records say about which solver to use at which number of evaluations. Needs no torch.

The paper's recommended setting, MR Sampler-2 (SDE, data prediction, uniform lambda), is the yardstick. The best setting
is chosen and judged on the same images, which flatters it; so the comparison is also made held out, with the images
split in two halves, the setting chosen on one and compared with the paper's on the other.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..evaluation import tables
from ..evaluation.records import Record, read_records
from ..runtime.files import read_json
from .candidates import GRIDS, METRICS, PAPER, SCHEMES, TAUS, Candidate, Losses, deficit, mean, values_of

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
        """The names of the networks."""
        return list(self.values)

    def candidates(self) -> list[Candidate]:
        """The candidates that were measured on all images with all networks."""
        everywhere = [set(metrics["lpips"]) for metrics in self.values.values()]
        return sorted(set.intersection(*everywhere)) if everywhere else []

    def nfes(self) -> list[int]:
        """The numbers of evaluations, ascending."""
        return sorted({candidate.nfe for candidate in self.candidates()})

    def losses(self, candidate: Candidate, metric: str = "lpips", networks: Iterable[str] | None = None) -> Losses:
        """A metric by 'network/task/image', with the sign that makes lower better."""
        sign = METRICS[metric].sign
        return {
            f"{network}/{image}": sign * value
            for network in (self.networks if networks is None else networks)
            for image, value in self.values[network][metric][candidate].items()
        }

    def mean(self, candidate: Candidate, metric: str, networks: Iterable[str] | None = None) -> float:
        """The mean over networks, tasks and images."""
        return METRICS[metric].sign * mean(self.losses(candidate, metric, networks))

    def best(self, nfe: int, metric: str = "lpips", networks: Iterable[str] | None = None) -> Candidate:
        """The best setting at a number of evaluations."""
        names = None if networks is None else list(networks)
        candidates = [candidate for candidate in self.candidates() if candidate.nfe == nfe]
        return min(candidates, key=lambda candidate: (mean(self.losses(candidate, metric, names)), candidate))


def collect(records: Mapping[str, Iterable[Record]], pooled: Pooled) -> Study:
    """The study of the records of each network; candidates that lack images are left out."""
    values: dict[str, dict[str, Values]] = {}
    for network, found in records.items():
        every = list(found)
        metrics = {name: values_of(every, name) for name in METRICS}
        images = max((len(by_image) for by_image in metrics["lpips"].values()), default=0)
        values[network] = {
            name: {candidate: by_image for candidate, by_image in candidates.items() if len(by_image) == images}
            for name, candidates in metrics.items()
        }
    return Study(values, pooled)


def read(folder: Path) -> Study:
    """The study in a folder: a folder of records for each network, and pooled.json."""
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and list(path.glob("records.*.jsonl")))
    pooled = folder / "pooled.json"
    return collect(
        {name: read_records(folder / name).values() for name in names},
        read_json(pooled) or {},
    )


def held_out(study: Study, nfe: int) -> float:
    """The mean difference of LPIPS to the paper's setting, of settings chosen on the other half of the images."""
    losses = {candidate: study.losses(candidate) for candidate in study.candidates() if candidate.nfe == nfe}
    paper = losses[replace(PAPER, nfe=nfe)]
    names = sorted(paper)
    gaps = []
    for half in (0, 1):
        chosen, judged = names[half::2], names[1 - half :: 2]
        best = min(losses, key=lambda c: (sum(losses[c][name] for name in chosen), c))
        gaps += [losses[best][name] - paper[name] for name in judged]
    return sum(gaps) / len(gaps)


def wins(losses: Losses, other: Losses) -> tuple[int, int]:
    """The number of tasks with a better mean, and the number of tasks."""
    tasks: dict[str, list[float]] = {}
    for name, value in losses.items():
        _, task, _ = name.split("/", 2)
        tasks.setdefault(task, []).append(value - other[name])
    return sum(sum(gaps) < 0 for gaps in tasks.values()), len(tasks)


def effects(study: Study) -> dict[str, dict[int, float]]:
    """Changes of LPIPS by clamping and by the grids: the mean over settings that were measured both ways, by NFE."""
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
    """The settings whose FID and KID are computed: the best and the paper's at each number of evaluations."""
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
    """Whether the best setting beats the paper's, at the numbers of evaluations in `COMPARED`."""
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


def _best_table(study: Study) -> str:
    rows = []
    for nfe in study.nfes():
        best, paper = study.best(nfe), replace(PAPER, nfe=nfe)
        gap, error = deficit(study.losses(best), study.losses(paper))
        won, tasks = wins(study.losses(best), study.losses(paper))
        cells = [str(nfe), best.description, f"{study.mean(best, 'lpips'):.4f}", f"{study.mean(paper, 'lpips'):.4f}"]
        cells += [f"{gap:+.4f} ± {error:.4f}", f"{held_out(study, nfe):+.4f}", f"{won} of {tasks}"]
        for metric in ("psnr", "ssim"):
            cells.append(" / ".join(METRICS[metric].text(study.mean(which, metric)) for which in (best, paper)))
        for metric, scale in (("fid", 1), ("kid", 1000)):
            pair = [_pooled(study, candidate, metric) for candidate in (best, paper)]
            cells.append(" / ".join("n/a" if value is None else f"{scale * value:.1f}" for value in pair))
        rows.append(cells)
    heading = ["NFE", "best setting", "LPIPS", "paper's", "difference", "held out", "tasks won"]
    pairs = [f"{name}: best / paper's" for name in ("PSNR", "SSIM", "FID", "1000 KID")]
    return tables.markdown([*heading, *pairs], rows, "llr")


def _pooled(study: Study, candidate: Candidate, metric: str) -> float | None:
    """FID or KID, the mean over networks."""
    return tables.mean([study.pooled.get(f"{name}/{candidate.label}", {}).get(metric) for name in study.networks])


def _scheme_table(study: Study) -> str:
    nfes = study.nfes()
    settings = [(scheme, tau) for scheme in SCHEMES for tau in TAUS]
    found: dict[int, list[float | None]] = {}  # by NFE, in the order of the settings
    for nfe in nfes:
        groups = [
            [c for c in study.candidates() if (c.nfe, c.scheme, c.tau) == (nfe, *setting)] for setting in settings
        ]
        found[nfe] = [min((study.mean(c, "lpips") for c in group), default=None) for group in groups]
    marked = {nfe: tables.best(values, lower_is_better=True) for nfe, values in found.items()}
    rows = []
    for i, (scheme, tau) in enumerate(settings):
        cells = [METRICS["lpips"].text(found[nfe][i], "") for nfe in nfes]
        bold = [f"**{cell}**" if i in marked[nfe] else cell for nfe, cell in zip(nfes, cells)]
        rows.append([f"{scheme}, tau {tau:g}", *bold])
    return tables.markdown(["scheme", *(f"NFE {nfe}" for nfe in nfes)], rows)


def _network_table(study: Study) -> str:
    rows = []
    for nfe in study.nfes():
        cells = [str(nfe)]
        for network in study.networks:
            for metric in ("lpips", "psnr"):
                best = study.best(nfe, metric, [network])
                cells.append(f"{best.description}: {METRICS[metric].text(study.mean(best, metric, [network]))}")
        rows.append(cells)
    heading = [f"{network}, by {name}" for network in study.networks for name in ("LPIPS", "PSNR")]
    return tables.markdown(["NFE", *heading], rows, "l")


def _effects_table(study: Study) -> str:
    nfes = study.nfes()
    rows = [
        [name, *(f"{changes[nfe]:+.4f}" if nfe in changes else "" for nfe in nfes)]
        for name, changes in effects(study).items()
    ]
    return tables.markdown(["change", *(f"NFE {nfe}" for nfe in nfes)], rows)


def csv_text(study: Study) -> str:
    """Every setting and network, with all digits."""
    header = ["network", "nfe", "scheme", "tau", "clamp", "grid", "images", *METRICS, "fid", "kid"]
    rows: list[list[object]] = []
    for network in study.networks:
        for c in sorted(study.values[network]["lpips"]):
            pooled = study.pooled.get(f"{network}/{c.label}", {})
            setting = [network, c.nfe, c.scheme, f"{c.tau:g}", int(c.clamp), c.grid]
            images = len(study.losses(c, "lpips", [network]))
            values = [study.mean(c, metric, [network]) for metric in METRICS]
            rows.append([*setting, images, *values, pooled.get("fid"), pooled.get("kid")])
    return tables.csv_text(header, rows)


def render(folder: Path) -> None:
    """Write study.md, study.csv and the figure from what is stored in `folder`, and print the answer."""
    from .figures import FIGURES

    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder; run the study without --render-only first")
    study = read(folder)
    if not study.candidates():
        raise ValueError(f"{folder}: no setting has been measured on all images with all networks")
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
    text = markdown(study, _notes(folder)) + f"\n![{figure.title}](study.png)\n\n{figure.caption}\n"
    (folder / "study.md").write_text(text)
    (folder / "study.csv").write_text(csv_text(study))
    print("\n".join(statements(study)))
    for nfe, chosen in best.items():
        ours, theirs = (study.mean(which, "lpips") for which in (chosen, replace(PAPER, nfe=nfe)))
        print(f"NFE {nfe:3}: {chosen.description:40} LPIPS {ours:.4f}  (the paper's {theirs:.4f})")
    print("wrote " + ", ".join(str(path) for path in (folder / "study.md", folder / "study.csv", *drawn)))


def _notes(folder: Path) -> list[str]:
    """The images and weights of each network."""
    notes = []
    for path in sorted(folder.glob("*/made-for.json")):
        made = read_json(path)
        notes.append(
            f"{path.parent.name}: {made['images']} images of each task, {made['size']} pixels; "
            f"weights {made['weights'][:12]}"
        )
    return [*notes, "Means are over networks, tasks and images. Settings are described in `options/README.md`."]
