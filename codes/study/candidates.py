"""Which solver at which number of evaluations: candidates, a search among them, and the front. Needs no torch.

The search is in three stages, because the full product of schemes, tau, clamp, grids and evaluations is several times
as dear (`combinations`): every scheme and tau on the uniform lambda grid; the best of these with their data
prediction clamped; the best of all those on the other grids.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

SCHEMES: dict[str, dict[str, Any]] = {
    "order1": {"algorithm": "mrsampler", "order": 1},
    "order2": {"algorithm": "mrsampler", "order": 2},
    "pc": {"algorithm": "mrsampler-pc"},
}
TAUS = (0.0, 0.3, 1.0)
# 'auto' is the sinh grid, with the optimised grids for 2 to 4 evaluations.
GRIDS = ("linear-lambda", "linspace", "auto")
NFES = (2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100)

Losses = Mapping[str, float]  # by image; lower is better


@dataclass(frozen=True, order=True)
class Candidate:
    """One setting of the solver with a number of evaluations."""

    nfe: int
    scheme: str
    tau: float
    clamp: bool = False
    grid: str = "linear-lambda"

    @property
    def setting(self) -> str:
        """All but the evaluations; a folder name."""
        return f"{self.scheme}-tau{self.tau:g}{'-clamp' if self.clamp else ''}-{self.grid}"

    @property
    def label(self) -> str:
        """What a record of it is called.

        >>> Candidate(8, "pc", 0.3, True, "auto").label
        'pc-tau0.3-clamp-auto-nfe8'
        """
        return f"{self.setting}-nfe{self.nfe}"

    @property
    def description(self) -> str:
        """For people."""
        grid = {"linear-lambda": "uniform lambda", "auto": "sinh"}.get(self.grid, self.grid)
        scheme = {"order1": "order 1", "order2": "order 2"}.get(self.scheme, self.scheme)
        return f"{scheme}, tau {self.tau:g}, {grid}{', clamp' if self.clamp else ''}"

    def options(self) -> dict[str, Any]:
        """The arguments of `codes.Solver`, all written out."""
        return {
            **SCHEMES[self.scheme],
            "num_sample_steps": self.nfe,
            "tau": self.tau,
            "clamp": self.clamp,
            "time_schedule": self.grid,
        }


_LABEL = re.compile(rf"({'|'.join(SCHEMES)})-tau([\d.]+)(-clamp)?-({'|'.join(GRIDS)})-nfe(\d+)")


def parse(label: str) -> Candidate | None:
    """The candidate of a label, None where it is no candidate's.

    >>> parse("order1-tau1-linspace-nfe20")
    Candidate(nfe=20, scheme='order1', tau=1.0, clamp=False, grid='linspace')
    """
    match = _LABEL.fullmatch(label)
    if match is None:
        return None
    scheme, tau, clamp, grid, nfe = match.groups()
    return Candidate(int(nfe), scheme, float(tau), clamp is not None, grid)


PAPER = Candidate(10, "order2", 1.0)  # what the paper recommends, at any number of evaluations


def budgeted(budget: int, nfes: Sequence[int] = NFES) -> list[int]:
    """The numbers of evaluations to try: at most `budget`, which is one of them."""
    if budget < 2:
        raise ValueError(f"the budget must be at least 2 evaluations, got {budget}")
    return sorted({nfe for nfe in nfes if nfe < budget} | {budget})


def combinations(nfes: Sequence[int]) -> list[Candidate]:
    """Every scheme with every tau, clamped or not, on every grid, at each number of evaluations."""
    return [
        Candidate(nfe, scheme, tau, clamp, grid)
        for nfe in nfes
        for scheme in SCHEMES
        for tau in TAUS
        for clamp in (False, True)
        for grid in GRIDS
    ]


def search(
    measure: Callable[[Sequence[Candidate]], Sequence[Mapping[Candidate, float]]],
    nfes: Sequence[int],
    *,
    keep: int = 3,
    keep_many: int = 2,
    taus: Sequence[float] = TAUS,
    clamp: bool = True,
    always: Sequence[Candidate] = (),
) -> list[Candidate]:
    """All candidates that are worth measuring, each of them measured; see the module.

    `measure` gives the losses of candidates for every network (group): the best `keep` of each group go on, `keep_many`
    from 15 evaluations on, where a run is dear and the differences are small. `always` are tried in any case, and so
    are their settings on the other grids.
    """
    groups: list[dict[Candidate, float]] = []

    def tried(candidates: Sequence[Candidate]) -> None:
        known = set(groups[0]) if groups else set()
        new = sorted(set(candidates) - known)
        if new:
            results = measure(new)
            groups.extend({} for _ in range(len(results) - len(groups)))
            for group, result in zip(groups, results, strict=True):
                group.update(result)

    def best() -> set[Candidate]:
        """The best candidates for each number of evaluations, each scheme and tau once."""
        found: set[Candidate] = set()
        for group in groups:
            for nfe in nfes:
                chosen: dict[tuple[str, float], Candidate] = {}
                for candidate in sorted((c for c in group if c.nfe == nfe), key=lambda c: (group[c], c)):
                    chosen.setdefault((candidate.scheme, candidate.tau), candidate)
                found |= set(list(chosen.values())[: keep if nfe < 15 else keep_many])
        return found

    tried([Candidate(nfe, scheme, tau) for nfe in nfes for scheme in SCHEMES for tau in taus] + list(always))
    if clamp:
        tried([replace(candidate, clamp=True) for candidate in best()])
    tried([replace(candidate, grid=grid) for candidate in {*best(), *always} for grid in GRIDS])
    return sorted(groups[0])


def mean(losses: Losses) -> float:
    """The mean over images."""
    return math.fsum(losses.values()) / len(losses)


def front(scores: Mapping[Candidate, float]) -> list[Candidate]:
    """The candidates that none with as few evaluations beats, by evaluations: each better than the one before."""
    result: list[Candidate] = []
    for candidate in sorted(scores, key=lambda c: (c.nfe, scores[c], c)):
        if not result or scores[candidate] < scores[result[-1]]:
            result.append(candidate)
    return result


def deficit(losses: Losses, other: Losses) -> tuple[float, float]:
    """(mean, standard error) of what `losses` are above `other`, over the images of both."""
    gaps = [losses[name] - other[name] for name in sorted(losses) if name in other]
    if not gaps:
        raise ValueError("no images in common")
    middle = math.fsum(gaps) / len(gaps)
    if len(gaps) == 1:
        return middle, 0.0
    variance = math.fsum((gap - middle) ** 2 for gap in gaps) / (len(gaps) - 1)
    return middle, math.sqrt(variance / len(gaps))


def choose(losses: Mapping[Candidate, Losses]) -> Candidate:
    """The cheapest of the front that is not measurably worse than its best: by at most one standard error."""
    candidates = front({candidate: mean(values) for candidate, values in losses.items()})
    best = losses[candidates[-1]]
    for candidate in candidates:
        gap, error = deficit(losses[candidate], best)
        if gap <= error:
            return candidate
    raise AssertionError("the best is no worse than itself")


def tuned_options(options: Mapping[str, Any], candidate: Candidate, notes: Sequence[str]) -> str:
    """An option file: `options` (resolved) with the candidate's solver, and comments that say where it is from."""
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
