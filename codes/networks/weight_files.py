"""Reading weight files: .pth, .pt and .safetensors. Runs no code from the file, and takes nothing that is not whole."""

import hashlib
import json
import logging
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from ..names import is_number
from ..runtime.files import check_archive, first_line
from ..runtime.problems import Damaged, FileError, check_regular, explain
from . import Architecture
from .identify import listed, missing_file_message

State = dict[str, Tensor]
log = logging.getLogger(__name__)

SUFFIXES = (".pth", ".pt", ".safetensors")
EMA_ENTRIES = ("ema", "model_ema", "state_dict_ema", "params_ema")
WEIGHT_ENTRIES = ("state_dict", "model", "params")
DIGEST = "sha256"  # in the metadata of .safetensors files that save_checkpoint wrote


class CheckpointError(ValueError):
    """A weight file that cannot be used, and why."""


@dataclass(frozen=True)
class Checkpoint:
    """The content of a weight file: tensors by name, 'online' or 'ema' weights, what a .safetensors file records."""

    path: Path
    state: State
    weights: str
    header: Mapping[str, str]


def find_file(path: Path, wanted: Architecture | None = None) -> Path:
    """The weight file that a path stands for: itself, or in a folder the newest EMA weights, else the newest others."""
    if path.is_file():
        sibling = next((f for f in sorted(path.parent.glob("*_EMA.*")) if f.suffix in SUFFIXES), None)
        if path.stem.endswith("_G") and sibling:
            log.info("%s: using this file; the same folder has EMA weights in %s", path, sibling.name)
        return path
    if path.exists() and not path.is_dir():
        check_regular(path)  # says what it is instead
    if not path.is_dir():
        raise FileNotFoundError(missing_file_message(path, wanted))
    files = [file for file in path.iterdir() if file.suffix in SUFFIXES]
    ema = [file for file in files if file.stem.endswith("_EMA")]
    # train.py writes the average of every checkpoint, with its metadata, besides the file that is named as published.
    ema = sorted((file for file in ema if _iteration(file) >= 0), key=_iteration)[-1:] or ema
    online = [file for file in files if file.stem.endswith("_G")]
    candidates = ema or [f for f in online if f.stem == "latest_G"] or sorted(online, key=_iteration)[-1:] or files
    if len(candidates) != 1:
        names = ", ".join(sorted(file.name for file in candidates)) or "none"
        raise CheckpointError(f"{path}: expected one weight file ({', '.join(SUFFIXES)}) in this folder, found {names}")
    log.info("%s: using %s", path, candidates[0].name)
    return candidates[0]


def _iteration(file: Path) -> int:
    digits = file.stem.removesuffix("_G").removesuffix("_EMA")
    return int(digits) if is_number(digits) else -1


def read_checkpoint(path: str | Path, wanted: Architecture | None = None) -> Checkpoint:
    """The tensors of a file under plain names, whatever it wraps them in; EMA weights where it has both.

    Raises CheckpointError for anything but a whole weight file, FileNotFoundError where there is nothing.
    """
    try:
        file = find_file(Path(path), wanted)
        if file.suffix not in SUFFIXES:
            raise CheckpointError(f"{file}: expected a file ending in {', '.join(SUFFIXES)}")
        size = check_regular(file).st_size
        with file.open("rb"):  # the libraries have other words for a file that may not be read
            pass
        header: Mapping[str, str] = {}
        if file.suffix == ".safetensors":
            content, header = _read_safetensors(file)
        else:
            content = _read_pickle(file)
    except FileNotFoundError:
        raise
    except FileError as error:
        raise CheckpointError(str(error)) from None
    except OSError as error:
        raise CheckpointError(explain(error, path, "cannot be read")) from None
    # A file that records its network has plain names, also where these look like a wrapping.
    state, weights = (content, "online") if "which_model_G" in header else _unwrap(file, content)
    _check_tensors(file, state, size)
    if "_EMA" in file.stem or header.get("weights") == "ema":
        weights = "ema"
    log.info("%s: %d tensors, %s weights", file, len(state), weights)
    return Checkpoint(file, _without_duplicates(file, state), weights, header)


def _read_safetensors(file: Path) -> tuple[State, Mapping[str, str]]:
    try:
        with safetensors.safe_open(file, framework="pt") as opened:
            header = opened.metadata() or {}
        state = safetensors.torch.load_file(file)
    except (safetensors.SafetensorError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(f"{file}: not a readable safetensors file ({first_line(error)})") from None
    if DIGEST in header and header[DIGEST] != digest_of(state, header):
        raise CheckpointError(f"{file}: damaged or changed since it was written: its checksum is wrong")
    return state, header


def digest_of(state: Mapping[str, Tensor], header: Mapping[str, str]) -> str:
    """SHA-256 of all that a .safetensors file holds, besides this number."""
    total = hashlib.sha256(json.dumps(sorted((key, header[key]) for key in header if key != DIGEST)).encode())
    for key in sorted(state):
        value = state[key].detach().cpu().contiguous()
        total.update(json.dumps([key, str(value.dtype), list(value.shape)]).encode())
        total.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return total.hexdigest()


def _read_pickle(file: Path) -> Any:
    with file.open("rb") as opened:
        beginning = opened.read(40)
    archive = beginning.startswith(b"PK\x03\x04")
    if archive:
        try:
            check_archive(file)
        except Damaged as error:
            reason = str(error).removeprefix(f"{file}: ")
            raise CheckpointError(f"{file}: not a readable torch file ({reason})") from None
    try:
        return torch.load(file, map_location="cpu", weights_only=True, mmap=archive)
    except pickle.UnpicklingError as error:
        reason = next(
            (line.strip() for line in str(error).splitlines() if "GLOBAL" in line or "Unsupported" in line),
            "",
        )
        if not archive and not beginning.startswith(pickle.PROTO):  # a page of a website, or the pointer of Git LFS
            raise CheckpointError(f"{file}: not a readable torch file (it begins with {beginning!r})") from None
        raise CheckpointError(
            f"{file}: refused. It holds more than tensors and plain values, and reading the rest would run "
            f"code from the file; save its state_dict alone, or as .safetensors. {reason}".rstrip()
        ) from None
    except Exception as error:  # torch raises anything for a file that is none of its own
        raise CheckpointError(f"{file}: not a readable torch file ({first_line(error)})") from None


def _check_tensors(file: Path, state: State, size: int) -> None:
    """Raise for tensors that are not plain numbers, or that take more memory than the file has bytes."""
    odd = [key for key, value in state.items() if _kind(value)]
    if odd:
        raise CheckpointError(f"{file}: expected dense tensors, found {_kind(state[odd[0]])} ones: {listed(odd)}")
    needed = sum(value.numel() * value.element_size() for value in state.values())
    # Twice: DA-CLIP's files list tensors two times that they store once.
    if needed > 2 * size:
        raise CheckpointError(f"{file}: its tensors would take {needed:,} bytes, and the file has {size:,}")


def _kind(value: Tensor) -> str:
    if value.layout is not torch.strided:
        return "sparse"
    return "quantised" if value.is_quantized else "meta" if value.is_meta else ""


def _unwrap(file: Path, content: Any) -> tuple[State, str]:
    weights = "online"
    if isinstance(content, Mapping):
        for entry in (*EMA_ENTRIES, *WEIGHT_ENTRIES):
            if isinstance(content.get(entry), Mapping):
                weights = "ema" if entry in EMA_ENTRIES else "online"
                content = content[entry]
                break
        else:
            if "optimizers" in content or "schedulers" in content:
                raise CheckpointError(f"{file}: a training state without weights; give the *_G.pth of the training")
    if not isinstance(content, Mapping) or not content:
        raise CheckpointError(f"{file}: expected a state dict, found {type(content).__name__}")
    state = {_without_module(str(key)): value for key, value in content.items()}
    if any(key.startswith("ema_model.") for key in state):
        weights = "ema"
        state = {k.removeprefix("ema_model."): v for k, v in state.items() if k.startswith("ema_model.")}
    odd = [key for key, value in state.items() if not isinstance(value, Tensor)]
    if odd:
        raise CheckpointError(f"{file}: expected tensors only, found {listed(odd)}")
    return state, weights


def _without_module(key: str) -> str:
    while key.startswith("module."):
        key = key.removeprefix("module.")
    return key


def _without_duplicates(file: Path, state: State) -> State:
    """DA-CLIP files list the image tower as `visual.*` and as `clip.visual.*`."""
    doubles = [key for key in state if key.startswith("visual.") and f"clip.{key}" in state]
    different = [key for key in doubles if not torch.equal(state[key], state[f"clip.{key}"])]
    if different:
        raise CheckpointError(f"{file}: visual.* should equal clip.visual.* and does not: {listed(different)}")
    return {key: value for key, value in state.items() if key not in set(doubles)}
