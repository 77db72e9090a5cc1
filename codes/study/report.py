"""The solver study: what the records say about which solver to use, with how many evaluations. Needs no torch.

Several networks, some trained and some synthetic, are asked the same questions. Every answer is a difference of means
over the same images with its standard error; one within two standard errors is called none.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..evaluation import tables
from ..evaluation.records import Record, read_records
from ..evaluation.statistics import ERRORS, Estimate
from ..runtime.files import read_json, write_atomically
from .candidates import METRICS, Candidate, Losses, choose, deficit, mean, values_of
from .figures import FIGURES

EXACT = "exact.json"  # in the folder of a synthetic network: scores of exact samples, by image
COMPARED = (2, 5, 10, 20)
BASE = Candidate(nfe=8, scheme="order1", tau=1.0, clamp=True)  # what the questions change one thing of
# What is changed, in words, and the change. The first two are columns of the documentation's table.
QUESTIONS: Mapping[str, Mapping[str, object]] = {
    "second order": {"scheme": "order2"},
    "tau 0": {"tau": 0.0},
    "tau 0.3": {"tau": 0.3},
    "pc": {"scheme": "pc"},
    "second order and tau 0": {"scheme": "order2", "tau": 0.0},
    "grid late": {"grid": "late"},
}
Values = dict[Candidate, dict[str, float]]  # of one metric: by candidate and image


@dataclass(frozen=True)
class Study:
    """The measurements by network and metric; of synthetic networks also the scores of exact samples, by metric."""

    values: Mapping[str, Mapping[str, Values]]
    exact: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def networks(self) -> list[str]:
        """The names of the networks: trained ones first."""
        return sorted(self.values, key=lambda name: (name in self.exact, name))

    def candidates(self) -> list[Candidate]:
        """The candidates that were measured on all images with all networks."""
        everywhere = [set(metrics["lpips"]) for metrics in self.values.values()]
        return sorted(set.intersection(*everywhere)) if everywhere else []

    def nfes(self) -> list[int]:
        """The numbers of evaluations, ascending."""
        return sorted({candidate.nfe for candidate in self.candidates()})

    def losses(self, network: str, candidate: Candidate, metric: str = "lpips") -> Losses:
        """A metric by 'task/image', with the sign that makes lower better."""
        sign = METRICS[metric].sign
        return {image: sign * value for image, value in self.values[network][metric][candidate].items()}

    def mean(self, network: str, candidate: Candidate, metric: str = "lpips") -> float:
        """The mean over tasks and images."""
        return METRICS[metric].sign * mean(self.losses(network, candidate, metric))

    def best(self, network: str, nfe: int | None = None, metric: str = "lpips") -> Candidate:
        """The best setting, at a number of evaluations or at any."""
        candidates = [candidate for candidate in self.candidates() if nfe in (None, candidate.nfe)]
        return min(candidates, key=lambda each: (mean(self.losses(network, each, metric)), each))

    def cheapest(self, network: str) -> Candidate:
        """The fewest evaluations with which nothing is lost in LPIPS, and the simplest setting that loses nothing."""
        losses = {each: self.losses(network, each) for each in self.candidates()}
        nfe = choose(losses, ERRORS).nfe
        best = losses[self.best(network)]
        level = [each for each in losses if each.nfe == nfe and verdict(deficit(losses[each], best)) != "worse"]
        return min(level, key=simplicity)

    def change(self, network: str, question: str, nfe: int, metric: str = "lpips") -> Estimate | None:
        """What the answer to a question changes in a metric; below 0 is better."""
        base = replace(BASE, nfe=nfe)
        other = replace(base, **QUESTIONS[question])  # type: ignore[arg-type]
        known = self.values[network][metric]
        if base not in known or other not in known:
            return None
        return deficit(self.losses(network, other, metric), self.losses(network, base, metric))

    def excess(self, candidate: Candidate) -> Losses:
        """LPIPS by 'network/task/image', in units of the network's best mean."""
        return {
            f"{network}/{image}": value / self.mean(network, self.best(network))
            for network in self.networks
            for image, value in self.losses(network, candidate).items()
        }

    def nearest(self) -> Candidate:
        """The setting with as many evaluations as `BASE` whose mean excess over networks and images is least."""
        return min(self._rivals(), key=lambda each: (mean(self.excess(each)), each), default=BASE)

    def default(self) -> Candidate:
        """The setting for a network that nothing is known of.

        `BASE`, unless another setting is measurably better for one network and worse for none; of several such the one
        with the least mean excess. What is better in the mean alone may harm the network that it is used with.
        """
        harmless = []
        for each in self._rivals():
            verdicts = {verdict(self.against_base(network, each)) for network in self.networks}
            if "better" in verdicts and "worse" not in verdicts:
                harmless.append(each)
        return min(harmless, key=lambda each: (mean(self.excess(each)), each), default=BASE)

    def against_base(self, network: str, candidate: Candidate) -> Estimate:
        """What a setting changes in LPIPS against `BASE` with as many evaluations."""
        return deficit(self.losses(network, candidate), self.losses(network, replace(BASE, nfe=candidate.nfe)))

    def _rivals(self) -> list[Candidate]:
        return [candidate for candidate in self.candidates() if candidate.nfe == BASE.nfe]


def simplicity(candidate: Candidate) -> tuple[int, Candidate]:
    """Sorts settings by how many things they change of `BASE`."""
    changes = [candidate.scheme != BASE.scheme, candidate.tau != BASE.tau, candidate.grid != BASE.grid]
    return sum(changes), candidate


def verdict(change: Estimate | None) -> str:
    """What a change of losses is: better, worse or none; empty where it was not measured."""
    return "" if change is None else change.sign(lower_is_better=True)


def collect(records: Mapping[str, Iterable[Record]], exact: Mapping[str, Mapping[str, float]] | None = None) -> Study:
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
    return Study(values, exact or {})


def read(folder: Path) -> Study:
    """The study in a folder: a folder of records for each network."""
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and list(path.glob("records.*.jsonl")))
    exact = {}
    for path in folder.glob(f"*/{EXACT}"):
        scores = read_json(path).values()
        exact[path.parent.name] = {name: sum(each[name] for each in scores) / len(scores) for name in METRICS}
    return collect({name: read_records(folder / name).values() for name in names}, exact)


# ---- text


def cell(change: Estimate | None, *, full: bool = False) -> str:
    """A difference with its standard error; `full` gives more digits, and the numbers of what is called none."""
    if change is None:
        return ""
    numbers = change.text(4 if full else 3)
    return numbers if change.differs else f"none ({numbers})" if full else "none"


def summary_table(study: Study) -> str:
    """The one table: what each network gains from evaluations, second order and tau."""
    nfes = [nfe for nfe in COMPARED if nfe in study.nfes() and nfe > 2]
    asked = list(QUESTIONS)[:2]
    heading = ["LPIPS / PSNR", *(f"{n} evaluation{'s' * (n > 1)}" for n in (1, BASE.nfe) if n in study.nfes())]
    heading += ["the best", "fewest without loss"]
    heading += [f"{question}, {nfe}" for question in asked for nfe in nfes]
    rows = []
    for network in study.networks:
        best, cheapest = study.best(network), study.cheapest(network)
        cells = [network]
        for nfe in (nfe for nfe in (1, BASE.nfe) if nfe in study.nfes()):
            cells.append(_scores(study, network, replace(BASE, nfe=nfe)))
        cells.append(f"{_scores(study, network, best)}: {best.nfe}, {short(best)}")
        cells.append(f"{cheapest.nfe}, {short(cheapest)}" if cheapest.nfe > 1 else "1")
        cells += [cell(study.change(network, question, nfe)) for question in asked for nfe in nfes]
        rows.append(cells)
    return tables.markdown(heading, rows, "lrrll" + "r")


def _scores(study: Study, network: str, candidate: Candidate) -> str:
    return f"{study.mean(network, candidate):.3f} / {study.mean(network, candidate, 'psnr'):.1f}"


def short(candidate: Candidate) -> str:
    """A setting in words, without what all have."""
    return candidate.description.removesuffix(", clamp").replace(", uniform lambda", "")


def answers(study: Study) -> list[str]:
    """For each question, at each number of evaluations, for which networks it helps, harms, or does nothing."""
    lines = []
    for question in QUESTIONS:
        parts = []
        for nfe in (nfe for nfe in COMPARED if nfe in study.nfes()):
            verdicts = {network: verdict(study.change(network, question, nfe)) for network in study.networks}
            found = {
                word: [name for name in verdicts if verdicts[name] == word] for word in ("better", "worse", "none")
            }
            words = [f"{word} for {', '.join(names)}" for word, names in found.items() if names]
            if words:
                parts.append(f"{nfe} evaluations: {'; '.join(words).replace('none for', 'no difference for')}")
        if parts:
            lines.append(f"- **{question}** instead of {short(BASE)}. " + ". ".join(parts) + ".")
    return lines


def advice(study: Study) -> dict[str, dict[str, object]]:
    """What `codes/defaults.py` and the checkpoints should say: arguments of `Solver`, by network and for others."""
    trained = [network for network in study.networks if network not in study.exact]
    chosen = {"default": study.default(), **{network: study.cheapest(network) for network in trained}}
    return {name: arguments(candidate) for name, candidate in chosen.items()}


def arguments(candidate: Candidate) -> dict[str, object]:
    """The arguments of `Solver` for a candidate, without those that are its defaults or make no difference."""
    options = candidate.options()
    if options["tau"] == 1.0 or candidate.nfe == 1:
        del options["tau"]
    if candidate.grid == "linear-lambda":
        del options["time_schedule"]
    return options


def paragraph(study: Study) -> str:
    """The advice in words."""
    default, nearest = study.default(), study.nearest()
    enough = {network: study.cheapest(network) for network in study.networks}
    counts = sorted(candidate.nfe for candidate in enough.values())
    trained = ", ".join(
        f"`{network}` {f'{enough[network].nfe} with {short(enough[network])}' if enough[network].nfe > 1 else 'one'}"
        for network in study.networks
        if network not in study.exact
    )
    sentences = [
        f"For a network that nothing is known of, take {short(default)}, clamped, with {default.nfe} evaluations: no "
        "other setting with as many is measurably better for one network and worse for none.",
        f"With the setting that suits it best, a network needs {counts[0]} to {counts[-1]} evaluations until more gain "
        f"nothing measurable: {trained}.",
    ]
    if nearest != default:
        share = {each: 100 * (mean(study.excess(each)) - 1) for each in (nearest, default)}
        harmed = [name for name in study.networks if verdict(study.against_base(name, nearest)) == "worse"]
        sentences.append(
            f"The mean over all {len(study.networks)} networks would be nearer to the best with {short(nearest)} "
            f"(LPIPS {share[nearest]:.0f} % above what each network can have with any setting, against "
            f"{share[default]:.0f} %), but {', '.join(harmed) or 'none'} would lose: try it with yours."
        )
    helps = [
        f"with {nfe} evaluations for {', '.join(names) or 'none'}"
        for nfe in COMPARED
        if nfe in study.nfes()
        for names in [[n for n in study.networks if verdict(study.change(n, "second order", nfe)) == "better"]]
    ]
    sentences.append(f"Second order in place of first, at tau 1, is better {'; '.join(helps)}.")
    return " ".join(sentences)


def section(study: Study, notes: Sequence[str], image: str) -> str:
    """What a page says about the study, between its marks."""
    figure = FIGURES["study"]
    lines = [
        f"{name}: {{{', '.join(f'{k}: {_yaml(v)}' for k, v in row.items())}}}" for name, row in advice(study).items()
    ]
    return "\n\n".join(
        [
            paragraph(study),
            "```yaml\n" + "\n".join(lines) + "\n```",
            summary_table(study).rstrip(),
            f"Evaluations are those of {short(BASE)}; the last columns say what second order, or tau 0, changes of its "
            "LPIPS with so many evaluations, with the standard error over images. Below 0 is better, and a difference "
            "within two standard errors is called none.",
            f"![{figure.title}]({image})",
            figure.caption,
            "".join(f"- {note}\n" for note in notes).rstrip(),
        ]
    )


def _yaml(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_yaml(each)}" for key, each in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def question_tables(study: Study) -> str:
    """All answers in numbers."""
    parts = []
    for question in QUESTIONS:
        for metric in ("lpips", "psnr"):
            rows = [
                [network, *(cell(study.change(network, question, nfe, metric), full=True) for nfe in study.nfes())]
                for network in study.networks
            ]
            heading = [f"{METRICS[metric].label}, lower is better" if metric == "lpips" else "-PSNR, lower is better"]
            table = tables.markdown([*heading, *(f"NFE {nfe}" for nfe in study.nfes())], rows)
            parts.append(f"### {question} ({METRICS[metric].label})\n\n{table}")
    return "\n".join(parts)


def csv_text(study: Study) -> str:
    """Every setting and network, with all digits."""
    header = ["network", "nfe", "scheme", "tau", "clamp", "grid", "images", *METRICS]
    rows: list[list[object]] = []
    for network in study.networks:
        for c in sorted(study.values[network]["lpips"]):
            setting = [network, c.nfe, c.scheme, f"{c.tau:g}", int(c.clamp), c.grid]
            values = [study.mean(network, c, metric) for metric in METRICS]
            rows.append([*setting, len(study.losses(network, c)), *values])
    return tables.csv_text(header, rows)


# ---- files

_BEGIN, _END = "<!-- study: written by scripts/study.py -->", "<!-- study: end -->"


def check_document(path: Path) -> None:
    """Raise unless a page has the two marks between which the study is written."""
    text = path.read_text() if path.is_file() else ""
    if not 0 <= text.find(_BEGIN) < text.find(_END):
        raise ValueError(f"{path}: expected a page with the lines {_BEGIN} and {_END}")


def render(folder: Path, document: Path | None = None) -> None:
    """Write study.md, study.csv and the figure from what is stored in `folder`, and the part of a page."""
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder; run the study without --render-only first")
    study = read(folder)
    if not study.candidates():
        raise ValueError(f"{folder}: no setting has been measured on all images with all networks")
    curves = {network: _curves(study, network) for network in study.networks}
    exact = {network: scores["lpips"] for network, scores in study.exact.items()}
    figure, notes = FIGURES["study"], _notes(folder)
    written = [*figure.draw(curves, exact, folder / "study"), folder / "study.md", folder / "study.csv"]
    text = f"# Which solver, how many evaluations\n\n{section(study, notes, 'study.png')}\n\n"
    lines = "\n".join(answers(study))
    (folder / "study.md").write_text(text + f"## All answers\n\n{lines}\n\n{question_tables(study)}")
    (folder / "study.csv").write_text(csv_text(study))
    print(f"{paragraph(study)}\n\n{summary_table(study)}")
    if document is not None:
        check_document(document)
        image = document.parent / "images" / f"{document.stem}-study.png"
        write_atomically(image, (folder / "study.png").read_bytes())
        before, rest = document.read_text().split(_BEGIN, 1)
        inside = section(study, notes, f"images/{image.name}")
        page = f"{before}{_BEGIN}\n{inside}\n{_END}{rest.split(_END, 1)[1]}"
        write_atomically(document, page.encode())
        written += [document, image]
    print("wrote " + ", ".join(map(str, written)))


def _curves(study: Study, network: str) -> dict[Candidate, Estimate]:
    """LPIPS of every candidate."""
    nothing = dict.fromkeys(study.losses(network, study.candidates()[0]), 0.0)
    return {each: deficit(study.losses(network, each), nothing) for each in study.candidates()}


def _notes(folder: Path) -> list[str]:
    """The images and weights of each network."""
    notes = []
    for path in sorted(folder.glob("*/made-for.json")):
        made = read_json(path)
        about = made["weights"].removeprefix("synthetic: ")
        if about == made["weights"]:
            about = f"weights {about[:12]}, {made['images']} photograph{'s' * (made['images'] > 1)} of each task"
        else:
            about = f"{about}, {made['images']} images"
        notes.append(f"{path.parent.name}: {about}, {made['size']} pixels")
    starts = read_json(folder / "environment.json") or []
    commits = (str(start["commit"]) for start in starts if start["commit"])
    return [*notes, f"measured at commit {tables.commit_list(commits)}"]
