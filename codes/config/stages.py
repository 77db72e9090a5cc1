"""Stages of a training: one option file, several runs, each with some options of its own."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..names import FOLDER_NAME, OptionsError, is_folder_name
from .errors import Keys, error_at, show
from .loading import checked
from .reading import BASED_ON, Source, put, read
from .schema import Options

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
    for name, changes in _listed(whole).items():
        with in_stage(name):
            stages.append(_stage(whole, name, changes, stages[-1] if stages else None))
    return tuple(stages)


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
        if not name:
            raise
        lines = str(error).splitlines()
        raise OptionsError(
            "\n".join(text if f"stages.{name}" in text else f"{text} (stage {name})" for text in lines)
        ) from error


def _listed(source: Source) -> dict[str, Mapping[str, Any]]:
    """The names of the stages and the options that each changes."""
    stages = source.values["stages"]

    def wrong(*keys: str, text: str) -> OptionsError:
        return error_at(source.file_of(("stages", *keys)), ("stages", *keys), text)

    if not isinstance(stages, dict) or not stages:
        raise wrong(text=f"expected a mapping of stages, got {show(stages)}")
    for name, changes in stages.items():
        if not is_folder_name(name):
            raise wrong(name, text=f"expected {FOLDER_NAME}")
        if not isinstance(changes, dict | None):
            text = f"expected a mapping of options, for example {{train.niter: 4000}}, got {show(changes)}"
            raise wrong(name, text=text)
        for key, value in (changes or {}).items():
            if key in _COMMON:
                raise wrong(name, key, text="is common to all stages")
            if "." not in key and isinstance(value, dict):
                text = f"expected dotted keys, for example {key}.{next(iter(value), 'key')}"
                raise wrong(name, key, text=text)
    return {name: changes or {} for name, changes in stages.items()}


def _stage(whole: Source, name: str, changes: Mapping[str, Any], before: Options | None) -> Options:
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
    return checked(source, "train")
