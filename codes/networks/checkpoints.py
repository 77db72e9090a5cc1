"""Weight files: .pth, .pt and .safetensors, as the published projects write them and as `save_checkpoint` does.

Loading is strict and runs no code from the file. A file is recognised by its keys (codes/networks/identify.py). One
that `save_checkpoint` wrote also records its architecture, what the network predicts and its SDE; no option file is
needed to use it.
"""

import json
import logging
import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, dataclass, replace
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from ..runtime.files import write_whole
from . import Architecture, architecture, build
from .identify import compare, differences, expected_state, identify, listed, missing_file_message, published_sde
from .rows import SDESettings

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "Metadata",
    "SDESettings",
    "expected_state",
    "find_file",
    "identify",
    "load_network",
    "load_weights",
    "metadata_of",
    "missing_file_message",
    "published_sde",
    "read_checkpoint",
    "save_checkpoint",
]

State = dict[str, Tensor]
log = logging.getLogger(__name__)

SUFFIXES = (".pth", ".pt", ".safetensors")
EMA_ENTRIES = ("ema", "model_ema", "state_dict_ema", "params_ema")
WEIGHT_ENTRIES = ("state_dict", "model", "params")


class CheckpointError(ValueError):
    """A weight file that cannot be used, and why."""


@dataclass(frozen=True)
class Metadata:
    """What is known about a checkpoint besides its tensors."""

    architecture: Architecture
    fit_target: str | None = None  # what the network predicts; None: not recorded
    sde: SDESettings | None = None
    _: KW_ONLY
    weights: str = "online"  # or ema
    source: str = ""  # the file they were read from


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
    return int(digits) if digits.isdigit() else -1


def read_checkpoint(path: str | Path, wanted: Architecture | None = None) -> Checkpoint:
    """The tensors of a file under plain names, whatever it wraps them in; EMA weights where it has both."""
    file = find_file(Path(path), wanted)
    if file.suffix not in SUFFIXES:
        raise CheckpointError(f"{file}: expected a file ending in {', '.join(SUFFIXES)}")
    header: Mapping[str, str] = {}
    if file.suffix == ".safetensors":
        try:
            with safetensors.safe_open(file, framework="pt") as opened:
                header = opened.metadata() or {}
            content: Any = safetensors.torch.load_file(file)
        except safetensors.SafetensorError as error:
            raise CheckpointError(f"{file}: not a readable safetensors file ({error})") from None
    else:
        content = _read_pickle(file)
    # A file that records its network has plain names, also where these look like a wrapping.
    state, weights = (content, "online") if "which_model_G" in header else _unwrap(file, content)
    if "_EMA" in file.stem or header.get("weights") == "ema":
        weights = "ema"
    log.info("%s: %d tensors, %s weights", file, len(state), weights)
    return Checkpoint(file, _without_duplicates(file, state), weights, header)


def _read_pickle(file: Path) -> Any:
    try:
        return torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
    except pickle.UnpicklingError as error:
        reason = next(
            (line.strip() for line in str(error).splitlines() if "GLOBAL" in line or "Unsupported" in line),
            "",
        )
        raise CheckpointError(
            f"{file}: refused. It holds more than tensors and plain values, and reading the rest would run "
            f"code from the file; save its state_dict alone, or as .safetensors. {reason}".rstrip()
        ) from None
    except (RuntimeError, EOFError, zipfile.BadZipFile, KeyError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise CheckpointError(f"{file}: not a readable torch file ({reason})") from None


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


def load_weights(network: nn.Module, path: str | Path) -> Checkpoint:
    """Load a file into a network, strictly; returns what was read (`weights` says whether it was EMA)."""
    checkpoint = read_checkpoint(path)
    _load(network, checkpoint)
    return checkpoint


def _load(network: nn.Module, checkpoint: Checkpoint) -> None:
    problems = compare(network, checkpoint.state)
    if problems:
        found = identify(checkpoint.state)
        hint = f"\n  The file fits {found}." if found else ""
        raise CheckpointError(
            f"{checkpoint.path}: keys do not fit {type(network).__name__}\n  " + "\n  ".join(problems) + hint
        )
    # Not strict only because DA-CLIP's duplicates are left out; everything else was compared above.
    network.load_state_dict(checkpoint.state, strict=False)


def load_network(
    path: str | Path,
    which_model_G: str | None = None,
    setting: Mapping[str, Any] | None = None,
    variant: str | None = None,
) -> tuple[nn.Module, Metadata]:
    """The network of a file with its weights, and what is known about it.

    Without `which_model_G` the file decides: by its metadata, else by its keys. With it (the choice of an option file),
    a file of another network is an error that names both.
    """
    wanted = None if which_model_G is None else architecture(which_model_G, setting or {}, variant)
    checkpoint = read_checkpoint(path, wanted)
    metadata = metadata_of(checkpoint)
    found = metadata.architecture if metadata else None
    if wanted is None:
        if found is None:
            raise CheckpointError(f"{checkpoint.path}: its keys belong to no known network; name one in network_G")
        wanted = found
    elif found is not None:
        _check_choice(checkpoint, wanted, found)
    network = build(wanted)
    _load(network, checkpoint)
    if metadata is None:
        metadata = Metadata(wanted, weights=checkpoint.weights, source=str(checkpoint.path))
    return network, replace(metadata, architecture=wanted)


def _check_choice(checkpoint: Checkpoint, wanted: Architecture, found: Architecture) -> None:
    """Raise unless the file is the wanted network. Variants with equal keys differ only in recorded metadata."""
    problems = differences(wanted, checkpoint.state)
    same = (wanted.which_model_G, wanted.variant) == (found.which_model_G, found.variant)
    if problems or ("which_model_G" in checkpoint.header and not same):
        raise CheckpointError(
            "\n  ".join([f"{checkpoint.path}: the options ask for {wanted}, the file is {found}.", *problems])
            + "\n  Correct network_G (which_model_G, variant, setting), or leave it out: the file is enough."
        )


def metadata_of(checkpoint: Checkpoint) -> Metadata | None:
    """What the file records about itself, else what follows from its keys; None where they are no known network's."""
    header, weights, source = checkpoint.header, checkpoint.weights, str(checkpoint.path)
    if "which_model_G" in header:
        try:
            choice = architecture(header["which_model_G"], json.loads(header["setting"]), header["variant"])
        except ValueError as error:
            raise CheckpointError(f"{checkpoint.path}: records a network that cannot be built: {error}") from None
        sde = SDESettings(**json.loads(header["sde"])) if "sde" in header else None
        return Metadata(choice, header.get("fit_target"), sde, weights=weights, source=source)
    found = identify(checkpoint.state)
    return None if found is None else Metadata(found, weights=weights, source=source)


def save_checkpoint(path: str | Path, state: Mapping[str, Tensor], metadata: Metadata, overwrite: bool = False) -> None:
    """Write tensors and metadata as .safetensors, from which `load_network(path)` rebuilds the network."""
    file = Path(path)
    if file.suffix != ".safetensors":
        raise ValueError(f"{file}: expected a name ending in .safetensors")
    if file.exists() and not overwrite:
        raise FileExistsError(f"{file}: exists already; it is replaced only with overwrite=True")
    choice = metadata.architecture
    with torch.device("meta"):
        network = build(choice)
    expected = expected_state(network).keys()
    repeated = network.state_dict().keys() - expected
    state = {key: value for key, value in state.items() if key not in repeated}
    problems = compare(network, state)
    if problems:
        raise CheckpointError(f"{file}: not written, the tensors are not those of {choice}\n  " + "\n  ".join(problems))
    header = {
        "which_model_G": choice.which_model_G,
        "variant": choice.variant,
        "setting": json.dumps(dict(choice.setting)),
        "weights": metadata.weights,
        "source": Path(metadata.source).name,
    }
    if metadata.fit_target is not None:
        header["fit_target"] = metadata.fit_target
    if metadata.sde is not None:
        header["sde"] = json.dumps(asdict(metadata.sde))
    tensors = {key: value.detach().to("cpu").contiguous().clone() for key, value in state.items()}
    write_whole(file, lambda partial: safetensors.torch.save_file(tensors, partial, header))
