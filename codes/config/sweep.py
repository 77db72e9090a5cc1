"""From lists of values and named variants to the list of solvers, each with a label that is also a folder name."""

import itertools
import re
from collections.abc import Callable, Mapping
from typing import Any

from ..solvers.options import OPTIONS
from ..solvers.registry import SOLVERS

# The number of steps has no default of its own: the algorithm decides.
_DEFAULTS = {name: option.default for name, option in OPTIONS.items() if name != "num_sample_steps"}


def expand(
    algorithms: Any,
    common: Mapping[str, Any],
    variants: Mapping[str, Mapping[str, Any]],
    steps: Callable[[str], int],
) -> list[tuple[str, dict[str, Any]]]:
    """All combinations, without repetitions: (label, arguments of Solver that matter and differ from its defaults).

    A variant's keys override the common ones; null removes a common one. `steps` gives the number of evaluations of an
    algorithm where the file does not.
    """
    solvers: list[tuple[str, dict[str, Any]]] = []  # (variant's name or '', arguments)
    for name, own in variants.items() or [("", {})]:
        options = {"algorithm": algorithms, **common, **own}
        if options["algorithm"] is None:
            options["algorithm"] = algorithms
        for values in itertools.product(*(_values(key, value) for key, value in options.items())):
            chosen = {
                key: value
                for key, value in zip(options, values, strict=True)
                if value is not None and value != _DEFAULTS.get(key)
            }
            algorithm = chosen.pop("algorithm")
            number = chosen.pop("num_sample_steps", None) or steps(algorithm)
            for key in SOLVERS[algorithm].unused:
                chosen.pop(key, None)
            arguments = {"algorithm": algorithm, "num_sample_steps": number, **chosen}
            if arguments not in [other for _, other in solvers]:
                solvers.append((name, arguments))
    return _unique([(_label(name, arguments, solvers), arguments) for name, arguments in solvers])


def _values(key: str, value: Any) -> tuple[Any, ...]:
    """The values to try. A tuple of numbers is a single value of an option that takes such lists."""
    if OPTIONS[key].listed and isinstance(value, tuple):
        numbers = all(isinstance(item, float) for item in value)
        return (value,) if numbers else value
    return value if isinstance(value, tuple) else (value,)


def _label(name: str, arguments: dict[str, Any], solvers: list[tuple[str, dict[str, Any]]]) -> str:
    """What differs within the run: variant or algorithm, then the options that vary there, then the evaluations."""
    others = [other for variant, other in solvers if variant == name]
    if name:
        parts = [name]
    else:
        parts = [arguments["algorithm"]]
        others = [other for other in others if other["algorithm"] == arguments["algorithm"]]
        if arguments.get("compat"):
            parts.append(arguments["compat"])
    keys = dict.fromkeys(key for other in others for key in other)
    for key in keys:
        varies = any(other.get(key) != others[0].get(key) for other in others)
        if varies and key != "num_sample_steps" and not (key == "compat" and not name):
            parts.append(_word(key, arguments.get(key)))
    parts.append(f"nfe{arguments['num_sample_steps']}")
    return re.sub(r"[^\w.+-]", "_", "-".join(part for part in parts if part))


def _word(key: str, value: Any) -> str:
    """
    >>> _word("tau", 0.3), _word("solver_type", "ode"), _word("clamp", False), _word("clamp", (0.0, 1.0))
    ('tau0.3', 'ode', 'no-clamp', 'clamp0to1')
    """
    label = OPTIONS[key].label
    short = key if label is None else label
    if value is None:
        return "" if key == "compat" else f"{short or key}-default"
    if isinstance(value, bool):
        return short if value else f"no-{short}"
    if isinstance(value, tuple):
        return "times" if key == "time_schedule" else short + "to".join(f"{item:g}" for item in value)
    return f"{short}{value:g}" if isinstance(value, int | float) else f"{short}{value}"


def _unique(solvers: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    """Number labels that would otherwise share a folder, also on file systems that ignore case."""
    taken: set[str] = set()
    result = []
    for label, arguments in solvers:
        numbered = (f"{label}-{n}" if n > 1 else label for n in itertools.count(1))
        free = next(word for word in numbered if word.lower() not in taken)
        taken.add(free.lower())
        result.append((free, arguments))
    return result
