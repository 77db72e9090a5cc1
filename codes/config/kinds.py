"""Kinds of values: what pydantic lacks for option files, and how each kind is described to people."""

import re
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import AfterValidator, BaseModel, BeforeValidator, Discriminator, StringConstraints, Tag
from pydantic_core import PydanticCustomError

from ..names import FOLDER_NAME, is_folder_name
from ..runtime.paths import path_problem
from .errors import show

# PyYAML follows YAML 1.1, where a number with an exponent needs a dot and a sign: 5e-3 arrives as text.
_EXPONENT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")


def number(value: Any) -> Any:
    """`5e-3` as a number; anything else as it is."""
    return float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value


def whole(value: Any) -> Any:
    """10000.0 and 1e4 as integers: the published files write counts so."""
    value = number(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


@dataclass(frozen=True)
class Expected:
    """Description of a kind that its type does not tell."""

    text: str


@dataclass(frozen=True)
class Unset:
    """What applies where the option is not given."""

    text: str


@dataclass(frozen=True)
class Ignored:
    """Marks an option that is accepted without effect, and says why."""

    reason: str


@dataclass(frozen=True)
class ForTraining:
    """Marks an option that has no effect when testing."""


# No number is without bounds: one that is far too large would take all time or memory before it fails.
LARGEST = 1_000_000_000
LARGEST_SIDE = 100_000  # of an image, in pixels
MOST_WORKERS = 1_000
MOST_BLOCKS = 1_000  # sum of a list in a network's setting

Integer = Annotated[int, BeforeValidator(whole)]
Number = Annotated[float, BeforeValidator(number)]
Count = Annotated[Integer, Ge(0), Le(LARGEST)]
Positive = Annotated[Integer, Ge(1), Le(LARGEST)]
Side = Annotated[Integer, Ge(1), Le(LARGEST_SIDE)]
Workers = Annotated[Integer, Ge(0), Le(MOST_WORKERS)]
PositiveNumber = Annotated[Number, Gt(0), Le(LARGEST)]
Weight = Annotated[Number, Ge(0), Le(LARGEST)]
Share = Annotated[Number, Ge(0), Le(1)]


def _refuse(problem: Callable[[str], str]) -> AfterValidator:
    """Refuses a text with what `problem` says about it."""

    def check(text: str) -> str:
        found = problem(text)
        if found:
            raise PydanticCustomError("refused", "{text}, got {name}", {"text": found, "name": show(text)})
        return text

    return AfterValidator(check)


Text = Annotated[str, StringConstraints(min_length=1), _refuse(path_problem), Expected("text")]
FolderName = Annotated[
    str, _refuse(lambda text: "" if is_folder_name(text) else f"expected {FOLDER_NAME}"), Expected(FOLDER_NAME)
]


def _bounded(value: Any) -> Any:
    """An argument of a network. Networks check their arguments, but they build whatever size is asked for."""
    numbers = [item for item in (value if isinstance(value, tuple) else (value,)) if type(item) in (int, float)]
    problem = ""
    if any(abs(item) > LARGEST_SIDE for item in numbers):
        problem = f"expected numbers up to {LARGEST_SIDE:,}, got {show(value)}"
    elif isinstance(value, tuple) and (len(value) > MOST_BLOCKS or sum(map(abs, numbers)) > MOST_BLOCKS):
        problem = f"expected a list whose numbers add up to at most {MOST_BLOCKS:,}, got {show(value)}"
    if problem:
        raise PydanticCustomError("refused", "{text}", {"text": problem})
    return value


Scalar = Annotated[str | bool | int | float | None, BeforeValidator(number)]
Argument = Annotated[
    Scalar | tuple[Scalar | tuple[Scalar, ...], ...],
    AfterValidator(_bounded),
    Expected("text, a number, true, false or a list of these"),
]

T = TypeVar("T")


def _is_list(value: Any) -> str:
    return "list" if isinstance(value, tuple) else "one"


def _is_list_of_values(value: Any) -> str:
    numbers = isinstance(value, tuple) and all(type(number(item)) in (int, float) for item in value)
    return "one" if numbers else _is_list(value)


# One value, or a list of values to try one after the other. The tags keep pydantic from trying both readings, and so
# from complaining about both.
Sweep = Annotated[
    Annotated[T | None, Tag("one")] | Annotated[tuple[T | None, ...], MinLen(1), Tag("list")], Discriminator(_is_list)
]
# The same for what has no default to stand for null in a list.
SweepOfNames = Annotated[
    Annotated[T | None, Tag("one")] | Annotated[tuple[T, ...], MinLen(1), Tag("list")], Discriminator(_is_list)
]
# The same for options whose value may itself be a list of numbers.
SweepOfLists = Annotated[
    Annotated[T | None, Tag("one")] | Annotated[tuple[T | None, ...], MinLen(1), Tag("list")],
    Discriminator(_is_list_of_values),
]


def choices(annotation: Any) -> list[str]:
    """The words that a type allows."""
    return [value for part, _ in _members(annotation) for value in _words(part)]


def describe(annotation: Any, metadata: tuple[Any, ...] = (), quote: str = "") -> str:
    """What a type allows, as a phrase that follows 'expected'.

    >>> describe(Annotated[int, Ge(1), Le(3)])
    'an integer from 1 to 3'
    >>> describe(Literal["auto", "off"] | Positive | None)
    'auto, off or an integer from 1 to 1,000,000,000'
    """
    words: list[str] = []
    phrases: list[str] = []
    for part, extra in _members(annotation, metadata):
        expected = next((item.text for item in extra if isinstance(item, Expected)), None)
        literal = get_args(part) if get_origin(part) is Literal else ()
        if expected is not None:
            phrases.append(expected)
        elif literal:
            words += [f"{quote}{value}{quote}" for value in literal]
        else:
            phrases.append(_phrase(part, extra, quote))
    if words and not phrases:
        return words[0] if len(words) == 1 else "one of " + ", ".join(words)
    parts = list(dict.fromkeys(words + phrases))
    return " or ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def is_sweep(annotation: Any) -> bool:
    """Whether a list of values is allowed in place of one."""
    return any(isinstance(item, Tag) and item.tag == "list" for _, extra in _raw(annotation) for item in extra)


def item_type(annotation: Any, values: Any = None) -> Any:
    """The type of the items in a list or mapping `values`."""
    parts = [(part, extra) for part, extra in _raw(annotation) if get_origin(part) in (tuple, dict)]
    if not parts:
        return Any
    swept = [part for part, extra in parts if any(isinstance(item, Tag) and item.tag == "list" for item in extra)]
    part = swept[0] if swept and _is_list_of_values(values) == "list" else parts[0][0]
    return get_args(part)[0 if get_origin(part) is tuple else 1]


def model_of(annotation: Any) -> type[BaseModel] | None:
    """The section that a type stands for, if any."""
    for part, _ in _raw(annotation):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return part
    return None


def _raw(annotation: Any, metadata: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """The members of a union, each with its annotations."""
    if get_origin(annotation) is Annotated:
        inner, *extra = get_args(annotation)
        yield from _raw(inner, (*metadata, *extra))
    elif get_origin(annotation) in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _raw(member, metadata)
    else:
        yield annotation, metadata


def _members(annotation: Any, metadata: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """The members that a message should mention: not null, and not the list of a sweep."""
    for part, extra in _raw(annotation, metadata):
        swept = any(isinstance(item, Tag) and item.tag == "list" for item in extra)
        if part is not type(None) and not swept:
            yield part, extra


def _words(part: Any) -> list[str]:
    if get_origin(part) is Literal:
        return [value for value in get_args(part) if isinstance(value, str)]
    if get_origin(part) is tuple:
        return choices(get_args(part)[0])
    return []


def _phrase(part: Any, extra: tuple[Any, ...], quote: str) -> str:
    if part is bool:
        return f"{quote}true{quote} or {quote}false{quote}"
    if part is str:
        return "text"
    if part in (int, float):
        return ("an integer" if part is int else "a number") + _range(extra)
    if get_origin(part) is tuple:
        inner = get_args(part)[0]
        return "a list, each " + describe(inner, quote=quote)
    return "a mapping"


def _range(extra: tuple[Any, ...]) -> str:
    def end(mark: type, name: str) -> str | None:
        bound: Any = next((getattr(item, name) for item in extra if isinstance(item, mark)), None)
        return None if bound is None else f"{bound:,}" if abs(bound) >= 10_000 else str(bound)

    low, high, above, below = end(Ge, "ge"), end(Le, "le"), end(Gt, "gt"), end(Lt, "lt")
    if low is not None and high is not None:
        return f" from {low} to {high}"
    if above is not None and below is not None:
        return f" between {above} and {below}"
    parts = [
        f"{word} {bound}"
        for word, bound in (("of at least", low), ("above", above), ("up to", high), ("below", below))
        if bound is not None
    ]
    return " " + " and ".join(parts) if parts else ""
