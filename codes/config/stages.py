"""Stages of a training: one option file, several runs, each with some options of its own."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ..names import FOLDER_NAME, OptionsError, is_folder_name
from .errors import Keys, error_at, join, line, show
from .loading import checked
from .reading import BASED_ON, Source, put, read
from .schema import Options

T = TypeVar("T")
_WEIGHTS: Keys = ("path", "pretrain_model_G")
# A stage is named by its key, lies in the folder of the run, and runs where the stages before it ran.
_COMMON = ("name", "results", "device", "stages", BASED_ON)


def load_stages(path: Path, overrides: Sequence[str] = (), *, on_disk: bool = False) -> tuple[Options, ...]:
    """The stages of a training in their order; a file without `stages` is a training of one.

    A stage has the options of the file, changed by those of the stage and then by `overrides`. Its results go to
    `results/<name>/<stage>/`, and it begins with the averaged weights of the stage before it, unless it names others.
    For `on_disk` see `checked`.
    """
    whole = read(Path(path), overrides)
    if whole.values.get("stages") is None:
        return (checked(whole, "train", on_disk),)
    stages: list[Options] = []

    def load(name: str, changes: Mapping[str, Any]) -> None:
        # Where a stage cannot be used, the next one is read without its weights: its problems are still reported.
        stages.append(_stage(whole, name, changes, stages[-1] if stages else None, on_disk))

    in_stages({name: partial(load, name, changes) for name, changes in _listed(whole).items()})
    return tuple(stages)


def in_stages(calls: Mapping[str, Callable[[], T]]) -> list[T]:
    """The results of a call for each stage; one OptionsError has all problems, each with the first stage that has it.

    The name of a training without stages is ''.
    """
    results: list[T] = []
    said: dict[str, str] = {}
    for name, call in calls.items():
        try:
            results.append(call())
        except OptionsError as error:
            for text in str(error).splitlines():
                said.setdefault(text, name)
    if said:
        raise join(_of_stage(text, name) for text, name in said.items())
    return results


def folder_of(options: Options) -> Path:
    """The results folder of a run."""
    return Path(options.results) / options.run_name


def ema_path(folder: Path, step: int) -> Path:
    """The averaged weights of a run after `step` steps, as a file that describes itself."""
    return folder / "models" / f"{step}_EMA.safetensors"


def last_weights(stage: Options) -> Path:
    """The averaged weights that a stage ends with."""
    return ema_path(folder_of(stage), stage.train.niter)


@contextmanager
def in_stage(name: str) -> Iterator[None]:
    """Add a stage's name to the lines of an OptionsError that lack it; '' adds nothing."""
    try:
        yield
    except OptionsError as error:
        raise join(_of_stage(text, name) for text in str(error).splitlines()) from error


def _of_stage(text: str, name: str) -> str:
    return text if not name or f"stages.{name}" in text else f"{text} (stage {name})"


def _listed(source: Source) -> dict[str, Mapping[str, Any]]:
    """The names of the stages and the options that each changes."""
    stages = source.values["stages"]

    lines: list[str] = []

    def wrong(*keys: str, text: str) -> None:
        lines.append(line(source.file_of(("stages", *keys)), ("stages", *keys), text))

    if not isinstance(stages, dict) or not stages:
        wrong(text=f"expected a mapping of stages, got {show(stages)}")
        raise join(lines)
    for name, changes in stages.items():
        if not is_folder_name(name):
            wrong(name, text=f"expected {FOLDER_NAME}")
        if not isinstance(changes, dict | None):
            wrong(name, text=f"expected a mapping of options, for example {{train.niter: 4000}}, got {show(changes)}")
            continue
        for key, value in (changes or {}).items():
            if key in _COMMON:
                wrong(name, key, text="is common to all stages")
            elif "." not in key and isinstance(value, dict):
                wrong(name, key, text=f"expected dotted keys, for example {key}.{next(iter(value), 'key')}")
    if lines:
        raise join(lines)
    return {name: changes or {} for name, changes in stages.items()}


def _stage(whole: Source, name: str, changes: Mapping[str, Any], before: Options | None, on_disk: bool) -> Options:
    source = copy.deepcopy(whole)
    del source.values["stages"]
    results, run = source.values.get("results") or "results", source.values.get("name") or source.file.stem
    if isinstance(run, str) and not is_folder_name(run):
        raise error_at(source.file_of(("name",)), ("name",), f"expected {FOLDER_NAME}, got {show(run)}")
    if isinstance(results, str) and isinstance(run, str):  # else `checked` refuses them
        source.values |= {"results": str(Path(results) / run), "name": name}
    if before is not None:
        paths = source.values.get("path")
        if isinstance(paths, dict):
            paths.pop("resume_state", None)  # of the first stage
        put(source, _WEIGHTS, str(last_weights(before)), str(source.file))
        source.overridden = [keys for keys in source.overridden if keys != _WEIGHTS]
    for key, value in changes.items():
        written: Keys = ("stages", name, *key.split("."))
        place = written[2:]
        if any(place[: len(keys)] == keys for keys in source.overridden):
            continue  # by the command line
        place = put(source, place, value, f"{whole.file_of(written[:2])}: stages.{name}.{key}")[-1]
        source.renamed[place] = written
        if ("stages", name, key) in whole.lines:
            source.lines[place] = whole.lines["stages", name, key]
            if ("stages", name, key) in whole.inherited:
                source.inherited[place] = whole.inherited["stages", name, key]
    written_later = () if before is None or _WEIGHTS in source.renamed else (_WEIGHTS,)
    return checked(source, "train", on_disk, written_later)
