"""The one error of option files, and how values are shown in it."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..names import OptionsError

Keys = tuple[str | int, ...]

_LONGEST = 60


def dotted(keys: Keys) -> str:
    """
    >>> dotted(("sampler", "order", 1))
    'sampler.order[1]'
    """
    text = ""
    for key in keys:
        text += f"[{key}]" if isinstance(key, int) else f".{_word(key)}" if text else _word(key)
    return text


def _word(key: str) -> str:
    """A key, short and in one line."""
    shown = key if key and key.isprintable() else repr(key)
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 3] + "..."


def show(value: object) -> str:
    """A value as it would be written in YAML, short.

    >>> show((1, True, None, "two"))
    "[1, true, null, 'two']"
    """
    text = _yaml(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _yaml(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_yaml(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, int) and abs(value) >= 10**_LONGEST:
        return f"a number of {value.bit_length()} bits"  # Python refuses to write very long ones
    text = repr(value) if isinstance(value, str | bytes) else str(value)
    return text if text.isprintable() else repr(text)


def error_at(file: Path | str, keys: Keys, text: str) -> OptionsError:
    """The error for one key of a file."""
    return OptionsError(line(file, keys, text))


def line(file: Path | str, keys: Keys, text: str) -> str:
    """One line of an error message."""
    return ": ".join(part for part in (str(file), dotted(keys), text) if part)


def join(lines: Iterable[str]) -> OptionsError:
    """One error of several lines."""
    return OptionsError("\n".join(lines))


def gathered(*calls: Callable[[], Any], kind: type[Exception] = OptionsError) -> list[Any]:
    """The results of all calls; raises one error with the lines of all that raise one of this kind."""
    results: list[Any] = []
    lines: dict[str, None] = {}
    for call in calls:
        try:
            results.append(call())
        except kind as error:
            lines |= dict.fromkeys(str(error).splitlines())
    if lines:
        raise kind("\n".join(lines))
    return results
