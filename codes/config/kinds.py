"""Kinds of values: what pydantic lacks for option files, and how each kind is described to people."""

import re
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel, BeforeValidator, Discriminator, Tag

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


Integer = Annotated[int, BeforeValidator(whole)]
Number = Annotated[float, BeforeValidator(number)]
Count = Annotated[Integer, Ge(0)]
Positive = Annotated[Integer, Ge(1)]
PositiveNumber = Annotated[Number, Gt(0)]
Share = Annotated[Number, Ge(0), Le(1)]
Scalar = Annotated[str | bool | int | float | None, BeforeValidator(number)]

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
    'auto, off or an integer of at least 1'
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
    low = next((item.ge for item in extra if isinstance(item, Ge)), None)
    high = next((item.le for item in extra if isinstance(item, Le)), None)
    above = next((item.gt for item in extra if isinstance(item, Gt)), None)
    below = next((item.lt for item in extra if isinstance(item, Lt)), None)
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
