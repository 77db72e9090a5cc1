"""The results folder of a run; refuses to mix results of different options."""

from pathlib import Path
from typing import Any

import torch
import yaml

from ..config import Options, OptionsError, difference, resolved
from ..runtime.distributed import Process
from ..runtime.environment import write_environment
from ..runtime.files import write_atomically

# Options that do not affect the images: a run may be resumed with other values.
_FREE = ("results", "batch_size", "workers", "contact_sheet", "metrics")

# Options that do not affect the weights.
_FREE_IN_TRAINING = (
    *_FREE,
    *("logger", "use_tb_logger", "sampler", "sde.algorithm", "sde.sample_T", "train.val_freq", "train.accumulate"),
    *("datasets.train.n_workers", "datasets.train.cache"),
)


def open_folder(options: Options, fresh: bool, device: torch.device, process: Process) -> Path:
    """Open the run's folder, which the main process creates and describes. Every process calls this."""
    if process.is_main:
        write_environment(folder := prepare_folder(options, fresh), device, process.world)
    process.barrier()
    if not process.is_main:
        folder = newest_folder(options) if fresh else prepare_folder(options, False)
    return folder


def prepare_folder(options: Options, fresh: bool) -> Path:
    """Create the run's folder and write its options; refuses a folder that was made with other options."""
    folder = Path(options.results) / options.run_name
    if fresh:
        folder = _numbered(folder)
    written = folder / "options.yml"
    content = resolved(options)
    if written.is_file():
        before = yaml.safe_load(written.read_text())
        changes = difference(_binding(before, options.kind), _binding(content, options.kind))
        if changes:
            raise OptionsError(
                f"{folder}: was made with other options, and resuming would mix results; --fresh starts a new folder\n"
                + "\n".join(f"  {change}" for change in changes)
            )
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(written, yaml.safe_dump(content, sort_keys=False, allow_unicode=True).encode())
    except OSError as error:
        raise OptionsError(f"{folder}: cannot be written: {error.strerror or error}") from error
    return folder


def newest_folder(options: Options) -> Path:
    """The folder that the main process has just created for --fresh."""
    first = Path(options.results) / options.run_name
    number = 2
    while (following := first.with_name(f"{first.name}-{number}")).exists():
        number += 1
    return first if number == 2 else following.with_name(f"{first.name}-{number - 1}")


def _binding(content: dict[str, Any], kind: str, at: str = "") -> dict[str, Any]:
    """The options that must not change within a results folder."""
    free = _FREE_IN_TRAINING if kind == "train" else _FREE
    result = {}
    for key, value in content.items():
        validates = kind == "train" and at == "datasets." and key != "train"
        if f"{at}{key}" not in free and not validates:
            result[key] = _binding(value, kind, f"{at}{key}.") if isinstance(value, dict) else value
    return result


def _numbered(folder: Path) -> Path:
    """The folder itself if it does not exist yet, else the first free FOLDER-2, FOLDER-3, ..."""
    number, candidate = 1, folder
    while candidate.exists():
        number += 1
        candidate = folder.with_name(f"{folder.name}-{number}")
    return candidate
