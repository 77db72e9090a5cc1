"""The solver study: what the records say about which solver to use, with how many evaluations. Needs no torch.

Several networks, some trained and some synthetic, are asked the same questions. Every answer is a difference of means
over the same images with its standard error; one within two standard errors is called none.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..evaluation import tables
from ..evaluation.records import Record, read_records
from ..runtime.files import write_text
from .candidates import METRICS, Candidate, Losses, choose, deficit, mean, values_of

EXACT = "exact.json"  # in the folder of a synthetic network: scores of exact samples, by image
ERRORS = 2.0  # a difference of fewer standard errors is none
COMPARED = (2, 5, 10, 20)
BASE = Candidate(8, "order1", 1.0, True)  # what the questions change one thing of
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
        """The setting with the fewest evaluations whose LPIPS differs in nothing from the best one's."""
        return choose({each: self.losses(network, each) for each in self.candidates()}, ERRORS)

    def change(self, network: str, question: str, nfe: int, metric: str = "lpips") -> tuple[float, float] | None:
        """What the answer to a question changes in a metric (below 0 is better), and the standard error."""
        base = replace(BASE, nfe=nfe)
        other = replace(base, **QUESTIONS[question])  # type: ignore[arg-type]
        known = self.values[network][metric]
        if base not in known or other not in known:
            return None
        return deficit(self.losses(network, other, metric), self.losses(network, base, metric))

    def excess(self, candidate: Candidate) -> dict[str, float]:
        """By network: how many times its best LPIPS a setting has."""
        return {name: self.mean(name, candidate) / self.mean(name, self.best(name)) for name in self.networks}

    def default(self) -> Candidate:
        """The setting for a network of which nothing is known: the one that is nowhere far from the best.

        Of at most `BASE.nfe` evaluations, the least product of excesses over all networks; of equals the simplest.
        """
        affordable = [candidate for candidate in self.candidates() if candidate.nfe <= BASE.nfe]
        return min(affordable, key=lambda each: (round(_product(self.excess(each).values()), 6), each))


def _product(values: Iterable[float]) -> float:
    product = 1.0
    for value in values:
        product *= value
    return product


def is_none(change: tuple[float, float]) -> bool:
    """Whether a difference with its standard error is called none."""
    gap, error = change
    return abs(gap) <= ERRORS * error


def collect(
    records: Mapping[str, Iterable[Record]], exact: Mapping[str, Mapping[str, float]] | None = None
) -> Study:
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
        scores = json.loads(path.read_text()).values()
        exact[path.parent.name] = {name: sum(each[name] for each in scores) / len(scores) for name in METRICS}
    return collect({name: read_records(folder / name).values() for name in names}, exact)


def check_document(path): ...
def render(folder, document=None): ...
