"""From lists of values and named variants to the list of solvers, each with a label that is also a folder name."""

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..defaults import SOLVER as DEFAULT
from ..solvers.options import OPTIONS
from ..solvers.registry import SOLVERS

# The number of steps has no default of its own: the algorithm decides.
_DEFAULTS = {name: option.default for name, option in OPTIONS.items() if name != "num_sample_steps"}


def count(algorithms: Any, common: Mapping[str, Any], variants: Mapping[str, Mapping[str, Any]]) -> int:
    """How many combinations `expand` makes."""
    return sum(
        math.prod(len(_values(key, value)) for key, value in {"algorithm": algorithms, **common, **own}.items())
        for own in variants.values() or [{}]
    )


def expand(
    algorithms: Any,
    common: Mapping[str, Any],
    variants: Mapping[str, Mapping[str, Any]],
    steps: Callable[[str], int],
) -> list[tuple[str, dict[str, Any]]]:
    """All combinations, without repetitions: (label, arguments of Solver that matter and differ from its defaults).

    A variant's keys override the common ones; null removes a common one. `steps` gives the number of evaluations of an
    algorithm where the file does not. Common keys that an algorithm has no use for are left out there, so that a file
    keeps working when its algorithm is changed; `without_effect` lists them. What a variant sets itself is kept.
    """
    solvers: list[tuple[str, dict[str, Any]]] = []  # (variant's name or '', arguments)
    seen: set[str] = set()
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
            for key in unheard(algorithm, own):
                chosen.pop(key, None)
            arguments = {"algorithm": algorithm, "num_sample_steps": number, **chosen}
            key = repr(sorted(arguments.items()))
            if key not in seen:
                seen.add(key)
                solvers.append((name, arguments))
    varying: dict[tuple[str, str], list[str]] = {}
    for name, arguments in solvers:
        group = (name, "" if name else arguments["algorithm"])
        if group not in varying:
            varying[group] = _varying([a for n, a in solvers if group == (n, "" if n else a["algorithm"])])
    labels = [_label(n, a, varying[n, "" if n else a["algorithm"]]) for n, a in solvers]
    return _unique([(label, arguments) for label, (_, arguments) in zip(labels, solvers, strict=True)])


def unheard(algorithm: str, own: Mapping[str, Any]) -> set[str]:
    """The keys that an algorithm leaves out: those without effect, and common ones without meaning there."""
    row = SOLVERS[algorithm]
    return {*row.unused, *(key for key in row.refused if key not in own)}


# Options that matter only with some values of another one.
_NEEDS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "rho": ("time_schedule", ("karras-n", "karras-t")),
    "timestep_offset": ("time_schedule", ("leading",)),
    "threshold_ratio": ("thresholding", (True,)),
    "threshold_max": ("thresholding", (True,)),
}


def without_effect(
    algorithms: Any,
    common: Mapping[str, Any],
    variants: Mapping[str, Mapping[str, Any]],
    solvers: list[tuple[str, dict[str, Any]]],
) -> Iterator[tuple[str, str]]:
    """Common keys that some or all of the `solvers` do not use, and why; `algorithms` is None where not given."""
    for key, value in {"algorithm": algorithms, **common}.items():
        if value is None or value == _DEFAULTS.get(key):
            continue
        users: dict[str, None] = {}
        others: dict[str, None] = {}
        for own in variants.values() or [{}]:
            if key not in own:
                for algorithm in _values("algorithm", own.get("algorithm") or algorithms or DEFAULT["algorithm"]):
                    (others if key in unheard(algorithm, own) else users)[algorithm] = None
        if others:
            does = f" ({', '.join(users)} {'do' if len(users) > 1 else 'does'})" if users else ""
            yield key, f"{', '.join(others)} {'do' if len(others) > 1 else 'does'} not use it{does}"
        elif not users:
            yield key, "every variant sets its own"
        elif key in _NEEDS:
            needed, values = _NEEDS[key]
            if not any(_in_force(arguments, needed) in values for _, arguments in solvers):
                yield key, f"only {needed} {', '.join(str(value).lower() for value in values)} uses it"


def _in_force(arguments: Mapping[str, Any], key: str) -> Any:
    """The value of an option that a solver runs with."""
    value = arguments.get(key, _DEFAULTS[key])
    return SOLVERS[arguments["algorithm"]].grid if value is None and key == "time_schedule" else value


def _values(key: str, value: Any) -> tuple[Any, ...]:
    """The values to try. A tuple of numbers is a single value of an option that takes such lists."""
    if OPTIONS[key].listed and isinstance(value, tuple):
        numbers = all(isinstance(item, float) for item in value)
        return (value,) if numbers else value
    return value if isinstance(value, tuple) else (value,)


def _varying(solvers: list[dict[str, Any]]) -> list[str]:
    """The options in which solvers differ."""
    keys = dict.fromkeys(key for arguments in solvers for key in arguments)
    return [key for key in keys if any(arguments.get(key) != solvers[0].get(key) for arguments in solvers)]


def _label(name: str, arguments: dict[str, Any], varying: list[str]) -> str:
    """What differs within the run: variant or algorithm, then the options that vary there, then the evaluations."""
    if name:
        parts = [name]
    else:
        parts = [arguments["algorithm"]]
        if arguments.get("compat"):
            parts.append(arguments["compat"])
    for key in varying:
        if key != "num_sample_steps" and not (key == "compat" and not name):
            parts.append(_word(key, arguments.get(key)))
    parts.append(f"nfe{arguments['num_sample_steps']}")
    return re.sub(r"[^\w.+-]", "_", "-".join(part for part in parts if part))


def second_label(label: str, arguments: Mapping[str, Any], other: Mapping[str, Any], taken: set[str]) -> str:
    """A label for a solver whose own label another one has: with the options in which the two differ.

    `taken` are the labels in use, in lower case.

    >>> two, one = ({"algorithm": "mrsampler", "num_sample_steps": 8, "order": order} for order in (2, 1))
    >>> second_label("mrsampler-nfe8", two, one, {"mrsampler-nfe8"})
    'mrsampler-order2-nfe8'
    """
    stem, end = label.rpartition("-nfe")[::2] if "-nfe" in label else (label, "")
    keys = [key for key in {**other, **arguments} if other.get(key) != arguments.get(key)]
    words = [_word(key, _value(arguments.get(key))) for key in keys if key != "num_sample_steps"]
    new = [word for word in words if word and word not in stem]
    longer = "-".join([stem, *new, *([f"nfe{end}"] if end else [])])
    return _free(re.sub(r"[^\w.+-]", "_", longer), taken)


def stem_of(label: str) -> str:
    """A label without its number of evaluations, in lower case.

    >>> stem_of("mrsampler-order2-nfe8")
    'mrsampler-order2'
    """
    return label.rpartition("-nfe")[0].lower() or label.lower()


def _value(value: Any) -> Any:
    """A value from JSON as the options have it."""
    return tuple(value) if isinstance(value, list) else value


def title_of(label: str, arguments: Mapping[str, Any]) -> str:
    """A label as tables show it: a solver that computes what the published code computes says so.

    >>> title_of("posterior-official-nfe5", {"algorithm": "posterior", "compat": "official"})
    'posterior-nfe5, published stride'
    >>> title_of("posterior-nfe5", {"algorithm": "posterior"})
    'posterior-nfe5'
    """
    compat = arguments.get("compat")
    return f"{label.replace(f'-{compat}', '', 1)}, {SOLVERS[arguments['algorithm']].flaw}" if compat else label


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
        free = _free(label, taken)
        taken.add(free.lower())
        result.append((free, arguments))
    return result


def _free(label: str, taken: set[str]) -> str:
    """The label, or the first of LABEL-2, LABEL-3, ... that is free; `taken` is in lower case."""
    numbered = (f"{label}-{n}" if n > 1 else label for n in itertools.count(1))
    return next(word for word in numbered if word.lower() not in taken)
