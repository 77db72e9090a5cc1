"""Option files: read, check, write back."""

import copy
import difflib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ..runtime.paths import locate, path_problem
from . import rules
from .beside import take_from_beside
from .errors import Keys, dotted, join, show
from .kinds import ForTraining, Ignored, choices, describe, item_type, model_of
from .published import as_published
from .reading import BASED_ON, MOVED, Source, override, read
from .schema import Kind, Options
from .solver_options import Variant

_WEIGHTS = (".safetensors", ".pth", ".pt")
MOST_PROBLEMS = 100  # of a file that are told


def load_options(path: Path, overrides: Sequence[str] = (), kind: Kind = "test", *, on_disk: bool = False) -> Options:
    """Read an option file; `overrides` are `a.b.c=value`, the value in YAML. For `on_disk` see `checked`.

    Raises OptionsError with a line for each problem, in the order of the file.
    """
    return checked(read(Path(path), overrides), kind, on_disk)


def options_for(path: Path, overrides: Sequence[str] = ()) -> Options:
    """The options to restore images with: those of a file, or of weights, which leave all to their metadata."""
    # Path.is_dir raises for a name that is too long.
    if path.suffix not in _WEIGHTS and not os.path.isdir(path):  # noqa: PTH112
        return load_options(path, overrides, "restore")
    source = Source(file=path, values={"path": {"pretrain_model_G": str(path)}}, lines={})
    override(source, overrides)
    return checked(source, "restore")


def checked(source: Source, kind: Kind, on_disk: bool = False, later: Collection[Keys] = ()) -> Options:
    """The options of a source; raises OptionsError for everything that is wrong with them.

    on_disk   if anything is wrong, also name folders and weights that are missing, and settings that a network does
              not have; else the code that looks for them tells it later
    later     options whose files are written before they are needed
    """
    take_from_beside(source)
    if kind == "restore":
        source.values["datasets"] = {}
    try:
        options = Options.model_validate(source.values)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        found = _problems(source, errors[:MOST_PROBLEMS])
        more = max(0, len(errors) - MOST_PROBLEMS)
        found += _further(source, kind, [keys for keys, _ in found], on_disk)
    else:
        found, more = list(rules.problems(options, kind, source.file)), 0
        found += rules.wrong_settings(options) if found and on_disk else []
    if found:
        if on_disk:
            found += _missing_files(source, kind, [*(keys for keys, _ in found), *later])
        found.sort(key=lambda problem: source.position(problem[0]))
        lines = dict.fromkeys(source.message(keys, text) for keys, text in found)
        raise join([*lines, *([f"{source.file}: and {more:,} problems more"] if more else [])])
    options, notes = as_published(options)
    # Not the keys of `based_on` files: those were written for another algorithm.
    unused = [item for item in options.unused_by_solvers() if item[0] not in source.inherited]
    silent = [*source.ignored, *rules.without_effect(options, kind), *([] if kind == "restore" else unused)]
    silent.sort(key=lambda item: source.position(item[0]))
    return options.remember(
        source.file,
        kind,
        tuple(f"{dotted(source.written(keys))}: ignored, {reason}" for keys, reason in silent),
        {keys: source.file_of(keys) for keys in source.lines} if source.inherited else {},
        notes,
    )


def check_settings(options: Options) -> None:
    """Raise OptionsError with a line for each setting that a network does not have; this loads torch."""
    lines = [str(options.error(keys, text)) for keys, text in rules.wrong_settings(options)]
    if lines:
        raise join(lines)


def resolved(options: Options) -> dict[str, Any]:
    """The options in force, defaults included, as plain YAML types; without what has no effect.

    What is left to the checkpoint or to the algorithm is not there. Loading the result gives the same options.
    """
    values = {"name": options.run_name, **_plain(options, options.kind)}
    if options.kind == "test":
        values["datasets"].pop("train", None)
    return values


def difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """What changed from one `resolved` dict to another.

    >>> difference({"sampler": {"order": 1}}, {"sampler": {"order": 2}, "seed": 0})
    ['sampler.order: 1 -> 2', 'seed: not given -> 0']
    """
    before, after = dict(_leaves(a)), dict(_leaves(b))
    return [
        f"{dotted(keys)}: {_or_nothing(before, keys)} -> {_or_nothing(after, keys)}"
        for keys in before | after
        if keys not in before or keys not in after or before[keys] != after[keys]
    ]


def _or_nothing(values: dict[Keys, Any], keys: Keys) -> str:
    return show(values[keys]) if keys in values else "not given"


def _leaves(values: Mapping[str, Any], at: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*at, key))
        else:
            yield (*at, key), value


def _plain(value: Any, kind: Kind) -> Any:
    if isinstance(value, Variant):  # null means something there, and a default would hide the common value
        return {key: _plain(getattr(value, key), kind) for key in value.model_fields_set}
    if isinstance(value, BaseModel):
        dropped = (Ignored, ForTraining) if kind == "test" else (Ignored,)
        return {
            key: _plain(getattr(value, key), kind)
            for key, field in type(value).model_fields.items()
            if getattr(value, key) is not None and not any(isinstance(item, dropped) for item in field.metadata)
        }
    if isinstance(value, dict):
        return {key: _plain(item, kind) for key, item in value.items()}
    return [_plain(item, kind) for item in value] if isinstance(value, tuple) else value


# More problems of a file that has some.

_NETWORKS = {"model", "network_G", "network_L", "path"}
_FOLDERS = {"root": (), "dataroot": (), "dataroot_LQ": ("GT", "MDGT"), "dataroot_GT": ("LQ",)}  # and modes without it


def _further(source: Source, kind: Kind, wrong: list[Keys], on_disk: bool) -> list[tuple[Keys, str]]:
    """What the rules find in the options without the wrong values, as far as these have nothing to do with it."""
    values = copy.deepcopy(source.values)
    removed = [keys[:2] if keys[0] == "datasets" else keys for keys in wrong if keys]
    for keys in removed:
        _remove(values, keys)
    values.setdefault("datasets", {})
    try:
        options = Options.model_validate(values)
    except ValidationError:
        return []
    sections = {keys[0] for keys in removed}
    return [
        (keys, text)
        for keys, text in (
            *rules.problems(options, kind, source.file),
            *(rules.wrong_settings(options) if on_disk else ()),
        )
        if not any(_within(keys, other) or _within(other, keys) or keys == other for other in removed)
        and not (keys[0] in _NETWORKS and sections & {*_NETWORKS, "distortion"})
    ]


def _remove(values: Any, keys: Keys) -> None:
    """Delete a value; of an item in a list, the whole list."""
    *sections, last = keys
    for i, key in enumerate(sections):
        if not isinstance(values.get(key), dict):
            last = sections[i]
            break
        values = values[key]
    values.pop(last, None)


def _missing_files(source: Source, kind: Kind, wrong: list[Keys]) -> list[tuple[Keys, str]]:
    """Folders and weights that the file names and that are not there; needs no torch, and no valid options."""
    named: list[tuple[Keys, Any, str]] = []
    datasets = source.values.get("datasets")
    for name, dataset in datasets.items() if isinstance(datasets, dict) else ():
        if isinstance(dataset, dict) and (name != "train" or kind == "train"):
            folders = [key for key, modes in _FOLDERS.items() if dataset.get("mode") not in modes]
            named += [(("datasets", name, key), dataset.get(key), "folder") for key in folders]
    paths = source.values.get("path")
    for key, path in paths.items() if isinstance(paths, dict) else ():
        named.append((("path", key), path, "file"))
    return [
        (keys, f"{path}: no such {what}")
        for keys, path, what in named
        if isinstance(path, str) and path and not any(keys[: len(other)] == other for other in wrong)
        if not path_problem(path) and not locate(path).exists()
    ]


# What pydantic found, in words.


def _problems(source: Source, errors: list[ErrorDetails]) -> list[tuple[Keys, str]]:
    found: dict[Keys, str] = {}
    for error in errors:
        keys = _keys(source.values, error["loc"], missing=error["type"] == "missing")
        found.setdefault(keys, _text(source.values, keys, error))
    # A value that fits neither of two kinds gives an error for each; the one that got further knows better.
    return [(keys, text) for keys, text in found.items() if not any(_within(other, keys) for other in found)]


def _within(keys: Keys, outer: Keys) -> bool:
    return len(keys) > len(outer) and keys[: len(outer)] == outer


def _keys(values: Any, location: tuple[str | int, ...], missing: bool) -> Keys:
    """Where an error is in the file: pydantic's location without the names of the types it tried."""
    keys: list[str | int] = []
    for i, part in enumerate(location):
        if part in values if isinstance(values, dict) else _is_item(values, part):
            values = values[part]
        elif not (missing and i == len(location) - 1 and isinstance(values, dict)):
            continue  # also for an item that a list lacks
        keys.append(part)
    return tuple(keys)


def _is_item(values: Any, part: str | int) -> bool:
    return isinstance(values, tuple) and isinstance(part, int) and part < len(values)


def _text(values: Any, keys: Keys, error: ErrorDetails) -> str:
    if error["type"] == "refused":
        return error["msg"]
    if error["type"] == "extra_forbidden":
        return "unknown option" + _nearest_key(keys, values)
    annotation, metadata = _type_at(keys, values)
    expected = describe(annotation, tuple(metadata))
    for key in keys:
        if isinstance(values, dict) and key not in values:
            return f"missing, expected {expected}"
        values = values[key]
    near = difflib.get_close_matches(values, choices(annotation), n=1) if isinstance(values, str) else []
    hint = f", did you mean {near[0]!r}?" if near and near[0] != values else ""
    return f"expected {expected}, got {show(values)}{hint}"


def _type_at(keys: Keys, values: Any) -> tuple[Any, Sequence[Any]]:
    """The type of an option and its annotations. `values` are those of the file: some types depend on them."""
    annotation: Any = Options
    metadata: Sequence[Any] = ()
    for key in keys:
        section = model_of(annotation)
        if section is not None and key in section.model_fields:
            field = section.model_fields[str(key)]
            annotation, metadata = field.annotation, field.metadata
        else:
            annotation, metadata = item_type(annotation, values), ()
        # What is missing has no value, and text that stands where a section belongs has no keys.
        inside = isinstance(values, tuple) or (isinstance(values, dict) and key in values)
        values = values[key] if inside else None
    return annotation, metadata


def _nearest_key(keys: Keys, values: Any) -> str:
    """The same key of another section, else a similar one of this."""
    section = model_of(_type_at(keys[:-1], values)[0])
    assert section is not None
    name = str(keys[-1])
    known = [*section.model_fields, *(str(old[-1]) for old in MOVED if old[:-1] == keys[:-1])]
    if len(keys) == 1:
        known.append(BASED_ON)
    near = difflib.get_close_matches(name, known, n=1)
    elsewhere = [dotted(path) for path in _all_keys(Options, ()) if path[-1] == name]
    best = elsewhere if len(elsewhere) == 1 else near
    return f", did you mean {best[0]!r}?" if best else ""


def _all_keys(section: type[BaseModel], at: Keys) -> Iterator[Keys]:
    for key, field in section.model_fields.items():
        yield (*at, key)
        inner = model_of(field.annotation)  # not the sections with a name, such as datasets.<name>
        if inner is not None:
            yield from _all_keys(inner, (*at, key))
