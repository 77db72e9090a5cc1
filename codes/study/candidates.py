"""Candidates for a solver and its number of evaluations, their losses, the front and the choice. Needs no torch."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from ..evaluation.records import Record
from ..evaluation.statistics import Estimate, paired
from ..evaluation.tables import QUALITY

METRICS = {column.name: column for column in QUALITY if column.name != "fid"}  # of one image
SCHEMES: dict[str, dict[str, Any]] = {
    "order1": {"algorithm": "mrsampler", "order": 1},
    "order2": {"algorithm": "mrsampler", "order": 2},
    "pc": {"algorithm": "mrsampler-pc"},
}
TAUS = (0.0, 0.3, 1.0)
# 'auto' is the sinh grid, with the optimised grids for 2 to 4 evaluations.
GRIDS = ("linear-lambda", "late", "linspace", "auto")
NFES = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100)

Losses = Mapping[str, float]  # by image; lower is better


@dataclass(frozen=True, order=True, kw_only=True)
class Candidate:
    """A setting of the solver and a number of evaluations."""

    nfe: int
    scheme: str
    tau: float
    clamp: bool = False
    grid: str = "linear-lambda"

    @property
    def label(self) -> str:
        """The solver's name in records and folders.

        >>> Candidate(nfe=8, scheme="pc", tau=0.3, clamp=True, grid="auto").label
        'pc-tau0.3-clamp-auto-nfe8'
        """
        return f"{self.scheme}-tau{self.tau:g}{'-clamp' if self.clamp else ''}-{self.grid}-nfe{self.nfe}"

    @property
    def description(self) -> str:
        """The setting in words, without the number of evaluations."""
        grid = {"linear-lambda": "uniform lambda", "auto": "sinh"}.get(self.grid, self.grid)
        scheme = {"order1": "order 1", "order2": "order 2"}.get(self.scheme, self.scheme)
        return f"{scheme}, tau {self.tau:g}, {grid}{', clamp' if self.clamp else ''}"

    def options(self) -> dict[str, Any]:
        """All arguments of `codes.Solver`."""
        return {
            **SCHEMES[self.scheme],
            "num_sample_steps": self.nfe,
            "tau": self.tau,
            "clamp": self.clamp,
            "time_schedule": self.grid,
        }


_LABEL = re.compile(rf"({'|'.join(SCHEMES)})-tau([\d.]+)(-clamp)?-({'|'.join(GRIDS)})-nfe(\d+)")


def parse(label: str) -> Candidate | None:
    """The candidate of a label, None for other labels.

    >>> parse("order1-tau1-linspace-nfe20")
    Candidate(nfe=20, scheme='order1', tau=1.0, clamp=False, grid='linspace')
    """
    match = _LABEL.fullmatch(label)
    if match is None:
        return None
    scheme, tau, clamp, grid, nfe = match.groups()
    return Candidate(nfe=int(nfe), scheme=scheme, tau=float(tau), clamp=clamp is not None, grid=grid)


def budgeted(budget: int) -> list[int]:
    """The numbers of evaluations to try: at most `budget`, which is one of them."""
    if budget < 2:
        raise ValueError(f"the budget must be at least 2 evaluations, got {budget}")
    return sorted({nfe for nfe in NFES if nfe < budget} | {budget})


def combinations(
    nfes: Iterable[int],
    *,
    taus: Sequence[float] = TAUS,
    clamps: Sequence[bool] = (False, True),
    grids: Sequence[str] = GRIDS,
) -> list[Candidate]:
    """Every scheme with every tau, clamp and grid at every number of evaluations; with one all solvers are the same."""
    return [
        Candidate(nfe=nfe, scheme=scheme, tau=tau, clamp=clamp, grid=grid)
        for nfe in nfes
        for scheme in (SCHEMES if nfe > 1 else list(SCHEMES)[:1])
        for tau in (taus if nfe > 1 else taus[-1:])
        for clamp in clamps
        for grid in (grids if nfe > 1 else grids[:1])
    ]


def values_of(records: Iterable[Record], metric: str) -> dict[Candidate, dict[str, float]]:
    """A metric by candidate and image ('task/name'); records of other solvers do not count."""
    found: dict[Candidate, dict[str, float]] = {}
    for record in records:
        candidate, value = parse(record.solver), record.metrics.get(metric)
        if candidate is not None and value is not None:
            found.setdefault(candidate, {})[f"{record.task}/{record.name}"] = value
    return found


def mean(losses: Losses) -> float:
    """The mean over images."""
    return fmean(losses.values())


def front(scores: Mapping[Candidate, float]) -> list[Candidate]:
    """The candidates that no other one with as few evaluations beats, from cheap to good."""
    result: list[Candidate] = []
    for candidate in sorted(scores, key=lambda c: (c.nfe, scores[c], c)):
        if not result or scores[candidate] < scores[result[-1]]:
            result.append(candidate)
    return result


def deficit(losses: Losses, other: Losses) -> Estimate:
    """`losses` minus `other`, over the images of both; a single image counts as certain."""
    gap = paired(losses, other)
    if gap is None:
        raise ValueError("no images in common")
    return replace(gap, error=gap.error or 0.0)


def choose(losses: Mapping[Candidate, Losses], errors: float = 1.0) -> Candidate:
    """The cheapest candidate of the front whose mean is within one or more standard errors of the best one's."""
    candidates = front({candidate: mean(values) for candidate, values in losses.items()})
    best = losses[candidates[-1]]
    for candidate in candidates:
        gap = deficit(losses[candidate], best)
        if gap.mean <= errors * (gap.error or 0.0):
            return candidate
    raise AssertionError("the best is no worse than itself")


def tuned_options(options: Mapping[str, Any], candidate: Candidate, notes: Sequence[str]) -> str:
    """An option file: `options` (resolved) with the candidate's solver, below `notes` as comments."""
    import yaml

    chosen = candidate.options()
    # What the network predicts stays; all else about the solver is replaced.
    kept = {key: value for key, value in options.get("sampler", {}).items() if key == "fit_target"}
    content = {
        **options,
        "name": "tuned",
        "sde": {**options.get("sde", {}), "algorithm": chosen.pop("algorithm")},
        "sampler": {**kept, **chosen},
    }
    comments = "".join(f"# {note}\n" for note in notes)
    return comments + "\n" + yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
