"""Checkpoints: weights for use in models/, and in training_state/ the states from which a run resumes exactly.

Every file is written under another name and renamed when it is complete, the state last. A run resumes from the newest
state, which holds the weights too; the one before it is kept in case the newest is damaged.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..config.stages import ema_path
from ..names import is_number
from ..networks.checkpoints import CheckpointError, Metadata, expected_state, read_checkpoint, save_checkpoint
from ..runtime.files import check_archive, first_line, set_aside, write_whole
from ..runtime.problems import Damaged, FileError

log = logging.getLogger(__name__)

FORMAT = 1
KEPT = 2
LATEST = "lastest_EMA.pth"  # the published name, misspelt


class StateError(Exception):
    """A training state that cannot be used; the message names the file and the reason."""


class UnreadState(StateError):
    """A training state that may be whole, but is not there or may not be read."""


def save(
    folder: Path, step: int, *, network: nn.Module, ema: nn.Module, rest: Mapping[str, Any], metadata: Metadata
) -> Path:
    """Write the checkpoint after `step` steps; `rest` is the part of the state besides the weights."""
    online, average = _plain(expected_state(network)), _plain(expected_state(ema))
    bad = _not_finite(online)
    if bad is not None:
        raise StateError(f"{folder}: nothing saved after step {step}, the weights {bad} are not finite")
    save_weights(folder, step, online, average, metadata)
    state = {"format": FORMAT, "iter": step, "network": online, "ema": average, **rest}
    path = folder / "training_state" / f"{step}.state"
    write_whole(path, lambda part: torch.save(state, part))
    # Of those up to this step: a later one that could not be read must not cost the one just written its place.
    for old in [state for state in states(folder) if int(state.stem) <= step][KEPT:]:
        old.unlink()
    return path


def save_weights(
    folder: Path, step: int, online: Mapping[str, Tensor], average: Mapping[str, Tensor], metadata: Metadata
) -> None:
    """Write the files of models/ after `step` steps."""
    models = folder / "models"
    write_whole(models / f"{step}_G.pth", lambda part: torch.save(online, part))
    write_whole(models / LATEST, lambda part: torch.save(average, part))
    save_checkpoint(ema_path(folder, step), average, replace(metadata, weights="ema"), overwrite=True)


def is_damaged(weights: Path) -> bool:
    """Whether a file of models/ exists and is not as it was written."""
    try:
        read_checkpoint(weights)
    except FileNotFoundError:
        return False
    except CheckpointError:
        return True
    return False


def mend_weights(folder: Path, step: int, network: nn.Module, ema: nn.Module, metadata: Metadata) -> None:
    """Write the files of models/ again if one of them is damaged: the state of that step has the weights too."""
    models = folder / "models"
    damaged = [file for file in (models / f"{step}_G.pth", models / LATEST, ema_path(folder, step)) if is_damaged(file)]
    if damaged:
        log.warning("%s: damaged; the weights of step %d are written again", damaged[0], step)
        save_weights(folder, step, _plain(expected_state(network)), _plain(expected_state(ema)), metadata)


def states(folder: Path) -> list[Path]:
    """The training states of a run, the newest first."""
    found = [path for path in (folder / "training_state").glob("*.state") if is_number(path.stem)]
    return sorted(found, key=lambda path: int(path.stem), reverse=True)


def newest(folder: Path, *, tidy: bool = False) -> dict[str, Any] | None:
    """The newest whole state of a run; None for a run without states.

    tidy   set newer ones aside that are damaged, which would else count among those that are kept. Not where none is
           whole: a run without states begins anew
    """
    found = states(folder)
    damaged = []
    for path in found:
        try:
            state = read(path)
            if state["iter"] != int(path.stem):
                raise StateError(f"{path}: not the state that its name says: it is of step {state['iter']}")
        except StateError as error:
            log.warning("%s; trying the one before it", error)
            if not isinstance(error, UnreadState):
                damaged.append(path)
            continue
        for other in damaged if tidy else ():
            log.warning("%s: kept as %s", other, set_aside(other).name)
        return state
    if found:
        raise StateError(
            f"{folder / 'training_state'}: none of its training states can be used; --fresh starts a new folder, and "
            "path.pretrain_model_G there begins with weights of models/"
        )
    return None


def read(path: Path) -> dict[str, Any]:
    """A training state whose checksums are right; reading it runs no code."""
    try:
        check_archive(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UnreadState(f"{path}: no such file") from None
    except Damaged as error:
        raise StateError(str(error)) from None
    except FileError as error:
        raise UnreadState(str(error)) from None
    except Exception as error:  # torch raises anything for a file that another program wrote
        raise StateError(f"{path}: not a readable training state ({first_line(error)})") from None
    if not isinstance(state, dict) or type(state.get("format")) is not int or state["format"] != FORMAT:
        raise StateError(
            f"{path}: not a training state of this program; to begin with weights of another program, name them in "
            "path.pretrain_model_G"
        )
    step = state.get("iter")
    if type(step) is not int or step < 0:
        raise StateError(f"{path}: not a training state: iter should be a number of steps, got {step!r}")
    odd = next((key for key in ("network", "ema", "optimizer", "scaler") if not isinstance(state.get(key), dict)), None)
    if odd is not None:
        raise StateError(f"{path}: not a training state: {odd} is missing or of another kind")
    bad = _not_finite(state["network"]) or _not_finite(state["ema"])
    if bad is not None:
        raise StateError(f"{path}: not a training state to go on with: the weights {bad} are not finite")
    return state


def _not_finite(state: Mapping[str, Any]) -> str | None:
    """The name of weights that are not finite, None if there are none."""
    tensors = ((key, value) for key, value in state.items() if isinstance(value, Tensor))
    return next((key for key, value in tensors if not torch.isfinite(value).all()), None)


def _plain(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key: value.detach().cpu() for key, value in state.items()}
