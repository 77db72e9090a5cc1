"""The results folder of a run, and that of a training in particular, which refuses to mix different options."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import yaml

from ..config import Options, OptionsError, difference, resolved
from ..config.errors import show
from ..config.reading import parse
from ..names import FOLDER_NAME, is_folder_name
from ..runtime.distributed import Process
from ..runtime.environment import write_environment
from ..runtime.files import read_text, write_text
from ..runtime.locks import claim
from ..runtime.problems import Damaged, explain

# Options that do not affect the weights: a training may be resumed with other values.
_FREE = (
    *("results", "batch_size", "workers", "contact_sheet", "metrics"),
    *("logger", "use_tb_logger", "sampler", "sde.algorithm", "sde.sample_T", "train.val_freq", "train.accumulate"),
    *("datasets.train.n_workers", "datasets.train.cache"),
)


def make_folder(options: Options, fresh: bool) -> Path:
    """Make the run's folder; `fresh` takes the first of NAME, NAME-2, NAME-3, ... that is free."""
    if not is_folder_name(options.run_name):
        raise options.error(
            ("name",), f"{show(options.run_name)} cannot be the name of a folder: expected {FOLDER_NAME}"
        )
    first = folder = Path(options.results) / options.run_name
    number = 1
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=not fresh)
            return folder
        except FileExistsError as error:
            if not fresh:  # a file
                raise OptionsError(explain(error, folder)) from error
            number += 1
            folder = first.with_name(f"{first.name}-{number}")
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            text = (
                explain(error, folder) if isinstance(error, OSError) else f"results: {show(options.results)}: {error}"
            )
            raise OptionsError(text) from error


def open_folder(options: Options, fresh: bool, device: torch.device, process: Process) -> Path:
    """Open a training's folder, which the main process creates and describes. Every process calls this."""
    folder = None
    if process.is_main:
        write_environment(folder := prepare_folder(options, fresh), device, process.world, options.precision)
    shared = process.gather(folder)[0]
    assert shared is not None
    return shared


def prepare_folder(options: Options, fresh: bool) -> Path:
    """Create a training's folder and write its options; refuses a folder that was made with other options."""
    folder = make_folder(options, fresh)
    # Two trainings that start at once agree on whose options count before either continues.
    with claim(folder / "options.yml", wait=None):
        _write_or_compare(folder / "options.yml", resolved(options))
    return folder


def _write_or_compare(written: Path, content: dict[str, Any]) -> None:
    try:
        before = read_text(written)
    except Damaged as error:
        raise OptionsError(f"{error}; delete it to go on with the options given now, or start anew: --fresh") from None
    if before is None:
        write_text(written, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
        return
    try:
        found, _ = parse(str(written), before)
    except OptionsError:
        found = None
    if not isinstance(found, dict):
        raise OptionsError(f"{written}: damaged, not options; delete it to go on with those given now")
    changes = difference(_binding(found), _binding(content))
    if changes:
        raise made_otherwise(written.parent, "options", changes)


def made_otherwise(
    folder: Path, what: str, changes: Iterable[str], remedy: str = "--fresh starts a new folder"
) -> OptionsError:
    """The error for a folder whose results do not belong together with those to come."""
    lines = "".join(f"\n  {change}" for change in changes)
    return OptionsError(f"{folder}: was made with other {what}, and resuming would mix results; {remedy}{lines}")


def _binding(content: dict[str, Any], at: str = "") -> dict[str, Any]:
    """The options that must not change within a training's folder."""
    result = {}
    for key, value in content.items():
        validates = at == "datasets." and key != "train"
        if f"{at}{key}" not in _FREE and not validates:
            result[key] = _binding(value, f"{at}{key}.") if isinstance(value, dict) else value
    return result
