"""The vocabulary of the project, and errors for words that are not in it."""

import difflib
import os
import re
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar, get_args

from .rows import DEGRADATIONS

Network = TypeVar("Network", bound=Callable[..., Any])

# The ten published degradations, by the names of their folders.
TASKS: tuple[str, ...] = tuple(row.name for row in DEGRADATIONS.values() if row.published)

# Bounds of a schedule, the same for option files, checkpoints and the Python interface.
MOST_TIMES = 100_000  # T: its tables have an entry for each
LARGEST_SIGMA = 10_000  # in 8-bit units

Prediction = Literal["noise", "data", "velocity", "score"]
PREDICTIONS: tuple[Prediction, ...] = get_args(Prediction)  # what a network may predict


_FOLDER = re.compile(r"\w[\w.+ -]*")
FOLDER_NAME = "a name of letters, digits, '.', '_', '-' that starts with a letter or digit"  # in messages


def is_folder_name(name: str, longest: int = 200) -> bool:
    """Whether a name from an option file may become part of a path: one harmless component, and not a long one.

    >>> [is_folder_name(name) for name in ("rainy", "a-b.2", "..", "a/b", "", "x" * 300)]
    [True, True, False, False, False, False]
    """
    return bool(_FOLDER.fullmatch(name)) and len(name.encode(errors="surrogateescape")) <= longest


def is_number(text: str) -> bool:
    """Whether a part of a file's name is a whole number; `isdigit` also takes what `int` refuses.

    >>> [is_number(text) for text in ("12", "", "-1", "²", "١")]
    [True, False, False, False, False]
    """
    return text.isascii() and text.isdecimal()


def is_file_name(name: str) -> bool:
    """Whether the recorded name of an image or a result stays within its folder, and can be the name of a file.

    File systems limit a component to 255 bytes or characters, and a path to 4,096 bytes or less.

    >>> [is_file_name(name) for name in ("a.png", "b/c d.png", "../a", "/a", "b/../../a", "x" * 5000, "a\\0", "")]
    [True, True, False, False, False, False, False, False]
    """
    parts = name.replace("\\", "/").split("/") if os.name == "nt" else name.split("/")
    drive = os.path.splitdrive(name)[0]
    return (
        not drive
        and len(name) < 4096
        and "\0" not in name
        and all(part not in ("", "..") and len(part) <= 255 for part in parts)
    )


class OptionValueError(ValueError):
    """A value that an option cannot have; `option` is the option's name, the message one line for people."""

    def __init__(self, option: str, text: str) -> None:
        super().__init__(option, text)  # both, so that the error survives pickling
        self.option, self.text = option, text

    def __str__(self) -> str:
        return self.text


def unknown(option: str, value: object, choices: Iterable[str], where: str = "") -> OptionValueError:
    """The error for an unknown word: the option, its value, the nearest choice and all choices.

    >>> print(unknown("schedule", "cosin", ["cosine", "linear"]))
    unknown schedule 'cosin', did you mean 'cosine'? (choices: cosine, linear)
    """
    names = list(choices)
    near = difflib.get_close_matches(str(value), names, n=1)
    hint = f", did you mean {near[0]!r}?" if near else ""
    return OptionValueError(option, f"unknown {option}{where} {value!r}{hint} (choices: {', '.join(names)})")


def check_choice(option: str, value: object, choices: Iterable[str], where: str = "") -> None:
    """Raise `unknown(...)` unless `value` is one of `choices`."""
    names = list(choices)
    if value not in names:
        raise unknown(option, value, names, where)


def check_schedule_numbers(prefix: str, *, T: object, **numbers: object) -> None:
    """Raise OptionValueError for numbers of a schedule (T, max_sigma, eps, ...) that are none or out of their bounds.

    prefix   what precedes their names in messages
    """
    if type(T) is not int or not 1 <= T <= MOST_TIMES:
        raise OptionValueError("T", f"{prefix}T: expected a whole number from 1 to {MOST_TIMES:,}, got {T!r}")
    for key, value in numbers.items():
        share = key == "eps"  # alpha at t = T: with 1 there would be no noise at any time
        good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= LARGEST_SIGMA
        if not good or (share and not value < 1):  # type: ignore[operator]
            bound = "and below 1" if share else f"and at most {LARGEST_SIGMA:,}"
            raise OptionValueError(key, f"{prefix}{key}: expected a number above 0 {bound}, got {value!r}")


def scalar_time(network: Network) -> Network:
    """Mark a network that takes the time as one Python float instead of a tensor (B,): see `codes.sample`."""
    network.takes_scalar_time = True  # type: ignore[attr-defined]
    return network


class OptionsError(Exception):
    """An option file that cannot be used. The message has one line per problem: `FILE: key: what is wrong`."""
