"""What is chosen on the page: values from the browser, validated, and the solver that they stand for."""

import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from ..restoration.restorer import Restorer
from ..solvers import SOLVERS, Solver
from ..solvers.options import OPTIONS

# Solvers on offer: those of the option files, with the loaded file's settings, and the first one without noise.
ODE = "mrsampler (ODE)"
CHOICES = (*SOLVERS, ODE)
MAX_NFE = 100
MAX_SAMPLES = 16
MAX_SEED = 2**31 - 1
MAX_CELLS = 24
COMPARED_NFES = (1, 2, 4, 6, 8, 12, 16, 24, 32, 50)
# Options of a solver that the page offers: field of Choice -> field of Solver. Empty: as the solver has it.
ADVANCED = {"order": "order", "tau": "tau", "grid": "time_schedule", "clamp": "clamp", "compat": "compat"}


class WorkError(Exception):
    """What was asked for cannot be done; the message is shown to the user."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Settings of a restoration. Values come from the browser and are validated.

    strength   share of the restoration that is applied; None, or with `automatic`: as the network decides
    full       restore large photos in full instead of shrinking them
    """

    solver: str
    nfe: int
    seed: int = 0
    samples: int = 1
    automatic: bool = False
    strength: float | None = None
    full: bool = False
    order: int | None = None
    tau: float | None = None
    grid: str | None = None
    clamp: bool | None = None
    compat: str | None = None

    def __post_init__(self) -> None:
        if self.solver not in CHOICES:
            raise WorkError(f"unknown solver {reprlib.repr(self.solver)} (choices: {', '.join(CHOICES)})")
        for name, label, low, high in (
            ("nfe", "evaluations (NFE)", 1, MAX_NFE),
            ("seed", "seed", 0, MAX_SEED),
            ("samples", "samples", 1, MAX_SAMPLES),
        ):
            self._set(name, _whole(label, getattr(self, name), low, high))
        if self.automatic is True:
            self._set("strength", None)
        if self.strength is not None and not (_is_number(self.strength) and 0 <= self.strength <= 1):
            raise WorkError(f"strength: expected a number from 0 to 1, got {reprlib.repr(self.strength)}")
        self._set("full", self.full is True)
        for name, option in ADVANCED.items():
            value = getattr(self, name)
            if isinstance(value, list | dict):
                raise WorkError(f"{name}: expected a single value")
            try:
                value = _READ.get(name, lambda given: given)(value) if value not in ("", None) else None
                OPTIONS[option].check(value)
            except (ValueError, OverflowError, TypeError) as error:
                raise WorkError(f"{name}: {reprlib.repr(value)} is not possible: {str(error)[:300]}") from error
            self._set(name, value)

    @classmethod
    def of(cls, values: Sequence[Any]) -> Self:
        """From the values of the page's widgets, in the order of the fields."""
        return cls(**dict(zip((field.name for field in fields(cls)), values, strict=True)))

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


# How the page's texts are read.
_READ: dict[str, Callable[[Any], Any]] = {
    "tau": float,
    "clamp": lambda text: {"on": True, "off": False}.get(text, text),
}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(label: str, value: Any, low: int, high: int) -> int:
    if not _is_number(value) or (isinstance(value, float) and not value.is_integer()):
        raise WorkError(f"{label}: expected a whole number from {low} to {high}, got {reprlib.repr(value)}")
    if not low <= value <= high:
        raise WorkError(f"{label}: expected from {low} to {high}, got {reprlib.repr(value)}")
    return int(value)


def default_choice(restorer: Restorer) -> Choice:
    """What the page starts with: solver and evaluations of the option file, or those that suit the network."""
    solver = restorer.solver()
    return Choice(solver=solver.algorithm, nfe=min(solver.nfe, MAX_NFE))


def chosen_solver(restorer: Restorer, choice: Choice) -> Solver:
    """The chosen solver: the option file's settings for it, changed where the page's options say so."""
    ode = choice.solver == ODE
    solver = restorer.solver("mrsampler" if ode else choice.solver, choice.nfe)
    chosen = {option: getattr(choice, name) for name, option in ADVANCED.items()}
    given = {option: value for option, value in chosen.items() if value is not None}
    changes: dict[str, Any] = {"solver_type": "ode", "tau": None} if ode else {}
    if choice.compat is not None:  # the published code has none of our options
        changes |= {name: option.default for name, option in OPTIONS.items() if option.ours}
    if "tau" in given:
        changes["solver_type"] = None  # short for a tau
    if "order" in given:
        changes["predictor"] = None  # another name for it
    return replace(solver, **(changes | given))


def unused(choice: Choice) -> str:
    """A note on chosen options that the solver has no use for; empty if there are none."""
    row = SOLVERS["mrsampler" if choice.solver == ODE else choice.solver]
    names = [name for name, option in ADVANCED.items() if getattr(choice, name) is not None and option in row.unused]
    return f"{choice.solver} has no use for: {', '.join(names)}." if names else ""


def solver_label(restorer: Restorer, name: str) -> str:
    """A solver in words: what it is and how it is set."""
    solver = chosen_solver(restorer, Choice(solver=name, nfe=8))
    return f"{name}: {SOLVERS[solver.algorithm].title}{''.join(f', {word}' for word in solver_words(solver))}"


def solver_words(solver: Solver) -> list[str]:
    """The options of a solver that are set, in words.

    >>> solver_words(Solver("mrsampler", 8, order=1, clamp=True)), solver_words(Solver("posterior", compat="official"))
    (['order 1', 'clipped'], ['published stride'])
    """
    row = SOLVERS[solver.algorithm]
    tau = solver.tau if solver.tau_of_solver_type is None else solver.tau_of_solver_type
    words = {
        "order": f"order {solver.order or solver.predictor}" if solver.order or solver.predictor else "",
        "tau": "" if tau is None else {0.0: "ODE", 1.0: "SDE"}.get(tau, f"tau {tau:g}"),
        "time_schedule": f"grid {solver.time_schedule}" if isinstance(solver.time_schedule, str) else "",
        "clamp": "clipped" if solver.clamp else "",
        "compat": row.flaw if solver.compat else "",
    }
    return [word for option, word in words.items() if word and option not in row.unused]


def check_comparison(solvers: object, nfes: object, seed: Any) -> list[Choice]:
    """The restorations of a comparison, solver by solver; raises WorkError if there are none or too many."""
    if not (isinstance(solvers, list) and isinstance(nfes, list) and solvers and nfes):
        raise WorkError("choose at least one solver and one number of evaluations")
    if len(solvers) * len(nfes) > MAX_CELLS:
        raise WorkError(f"{len(solvers) * len(nfes)} restorations are too many at once; choose at most {MAX_CELLS}")
    names = [name for name in CHOICES if name in solvers]
    return [Choice(solver=name, nfe=nfe, seed=seed) for name in names or solvers for nfe in nfes]
