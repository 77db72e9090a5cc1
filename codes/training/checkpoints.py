"""Checkpoints: weights for use in models/, and in training_state/ the states from which a run resumes exactly.

Every file is written under another name and renamed when it is complete, the state last. A run resumes from the newest
state, which holds the weights too; the one before it is kept in case the newest cannot be read.
"""

import logging
import pickle
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..config.stages import ema_path
from ..networks.checkpoints import Metadata, expected_state, save_checkpoint
from ..runtime.files import write_whole

log = logging.getLogger(__name__)

FORMAT = 1
KEPT = 2


class StateError(Exception):
    """A training state that cannot be used; the message names the file and the reason."""


def save(
    folder: Path, step: int, *, network: nn.Module, ema: nn.Module, rest: Mapping[str, Any], metadata: Metadata
) -> Path:
    """Write the checkpoint after `step` steps; `rest` is the part of the state besides the weights."""
    online, average = _plain(expected_state(network)), _plain(expected_state(ema))
    bad = next((key for key, value in online.items() if not torch.isfinite(value).all()), None)
    if bad is not None:
        raise StateError(f"{folder}: nothing saved after step {step}, the weights {bad} are not finite")
    models = folder / "models"
    write_whole(models / f"{step}_G.pth", lambda path: torch.save(online, path))
    # The published name, misspelt.
    write_whole(models / "lastest_EMA.pth", lambda path: torch.save(average, path))
    save_checkpoint(ema_path(folder, step), average, replace(metadata, weights="ema"), overwrite=True)
    state = {"format": FORMAT, "iter": step, "network": online, "ema": average, **rest}
    path = folder / "training_state" / f"{step}.state"
    write_whole(path, lambda partial: torch.save(state, partial))
    for old in states(folder)[KEPT:]:
        old.unlink()
    return path


def states(folder: Path) -> list[Path]:
    """The training states of a run, the newest first."""
    found = [path for path in (folder / "training_state").glob("*.state") if path.stem.isdigit()]
    return sorted(found, key=lambda path: int(path.stem), reverse=True)


def newest(folder: Path) -> dict[str, Any] | None:
    """The newest readable state of a run; None for a run without states."""
    found = states(folder)
    for path in found:
        try:
            return read(path)
        except StateError as error:
            log.warning("%s; trying the one before it", error)
    if found:
        raise StateError(f"{folder}: none of its training states can be read")
    return None


def read(path: Path) -> dict[str, Any]:
    """A training state; reading it runs no code."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise StateError(f"{path}: no such file") from None
    except (RuntimeError, EOFError, pickle.UnpicklingError, OSError, ValueError, KeyError) as error:
        raise StateError(f"{path}: not a readable training state ({str(error).splitlines()[0]})") from None
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise StateError(
            f"{path}: not a training state of this program; to begin with weights of another program, name them in "
            "path.pretrain_model_G"
        )
    return state


def _plain(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key: value.detach().cpu() for key, value in state.items()}
