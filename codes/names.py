"""The vocabulary of the project, and errors for words that are not in it."""

import difflib
from collections.abc import Iterable

from .rows import DEGRADATIONS

# The ten published degradations, by the names of their folders.
TASKS: tuple[str, ...] = tuple(row.name for row in DEGRADATIONS.values() if row.published)


def unknown(what: str, value: object, choices: Iterable[str]) -> ValueError:
    """The error for an unknown name: what was got, what is allowed and the nearest one.

    >>> print(unknown("schedule", "cosin", ["cosine", "linear"]))
    unknown schedule 'cosin', did you mean 'cosine'? (choices: cosine, linear)
    """
    names = list(choices)
    near = difflib.get_close_matches(str(value), names, n=1)
    hint = f", did you mean {near[0]!r}?" if near else ""
    return ValueError(f"unknown {what} {value!r}{hint} (choices: {', '.join(names)})")


def check_choice(what: str, value: object, choices: Iterable[str]) -> None:
    """Raise `unknown(...)` unless `value` is one of `choices`."""
    names = list(choices)
    if value not in names:
        raise unknown(what, value, names)


class OptionsError(Exception):
    """An option file that cannot be used. The message has one line per problem: `FILE: key: what is wrong`."""
