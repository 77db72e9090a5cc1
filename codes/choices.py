"""Error messages for a value that is not one of the known ones."""

import difflib
from collections.abc import Iterable


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
