"""The options of solvers in option files, made from the fields of `Solver` and the rows of SOLVERS and GRIDS."""

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, MinLen
from pydantic import Field, create_model, model_validator

from ..defaults import NFE
from ..solvers.options import OPTIONS, Option
from ..solvers.registry import SOLVERS
from .kinds import Expected, Integer, Number, Sweep, SweepOfLists, SweepOfNames, Unset
from .section import Section

if TYPE_CHECKING:
    Algorithm = str
else:
    Algorithm = Literal[tuple(SOLVERS)]  # the words of a file, and of its error messages


def values_of(option: Option) -> Any:
    """What a file may give for an option: one value, or a list of values to run one after the other."""
    marks = ((Ge, option.low), (Gt, option.above), (Le, option.high))
    bounds = tuple(mark(end) for mark, end in marks if end is not None)
    sweep: Any = SweepOfLists if option.listed else Sweep
    kinds = [_kind(kind, option, bounds) for kind in option.types]
    return sweep[reduce(or_, kinds)]


def _kind(kind: Any, option: Option, bounds: tuple[Any, ...]) -> Any:
    if kind is str:
        return Literal[tuple(option.words)]
    if kind is bool:
        return bool
    number: Any = Integer if kind is int else Number
    if bounds:
        number = Annotated[number, *bounds]
    if get_origin(kind) is not tuple:
        return number
    if get_args(kind)[-1] is ...:
        return Annotated[tuple[number, ...], MinLen(2), Expected(option.listed)]
    return Annotated[tuple[number, number], Expected(option.listed)]


def unset_text(option: Option) -> str:
    """What applies where a file does not give an option, if the default does not say it."""
    if option.name == "num_sample_steps":
        of_T = ", ".join(f"`{name}`" for name, row in SOLVERS.items() if row.steps is None)
        return f"{NFE}; {of_T}: T, as published; all: `sde.sample_T` if given"
    if option.name == "time_schedule":
        return _by_algorithm()
    return option.unset


def _by_algorithm() -> str:
    """The grids of the algorithms, the most frequent one last."""
    grids: dict[str, list[str]] = {}
    for name, row in SOLVERS.items():
        grids.setdefault(row.grid, []).append(f"`{name}`")
    usual = max(grids, key=lambda grid: len(grids[grid]))
    special = [f"`{grid}` ({', '.join(names)})" for grid, names in grids.items() if grid != usual]
    return ", ".join([*special, f"`{usual}` (the others)"])


def _fields() -> dict[str, Any]:
    """Everything but the algorithm, as fields for pydantic. The number of steps depends on the algorithm."""
    found = {}
    for name, option in OPTIONS.items():
        if name != "algorithm":
            default = None if name == "num_sample_steps" else option.default
            values, unset = values_of(option), unset_text(option)
            found[name] = (
                Annotated[values, Unset(unset)] if unset else values,
                Field(default, description=option.text),
            )
    return found


class SolverOptions(create_model("SolverFields", __base__=Section, **_fields())):  # type: ignore[misc]
    """What `codes.Solver` takes, except its algorithm."""


class Variant(SolverOptions):
    algorithm: Annotated[SweepOfNames[Algorithm], Unset("`sde.algorithm`")] = Field(None, description="the solver")

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        """Here null has a meaning: the solver's default instead of the common value."""
        return {} if data is None else data


class SamplerOptions(SolverOptions):
    variants: dict[str, Variant] = Field({}, description="named solvers, each with what it sets differently")
