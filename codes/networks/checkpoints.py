"""Weight files: .pth, .pt and .safetensors, as the published projects write them and as `save_checkpoint` does.

Loading is strict and runs no code from the file. A file is recognised by its keys (codes/networks/identify.py). One
that `save_checkpoint` wrote also records its architecture, what the network predicts and its SDE; no option file is
needed to use it.
"""

import json
from collections.abc import Mapping
from dataclasses import KW_ONLY, asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, BinaryIO

import safetensors.torch
import torch
from torch import Tensor, nn

from ..names import PREDICTIONS, check_choice, unknown
from ..runtime.files import write_whole
from ..runtime.uninitialised import uninitialised
from . import Architecture, architecture, build
from .auto_precision import Bf16Change
from .identify import compare, differences, expected_state, identify, missing_file_message, on_meta, published_sde
from .recommended import Recommended, from_json
from .rows import SDESettings
from .weight_files import DIGEST, Checkpoint, CheckpointError, digest_of, find_file, read_checkpoint

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


@dataclass(frozen=True)
class Metadata:
    """What is known about a checkpoint besides its tensors."""

    architecture: Architecture
    fit_target: str | None = None  # what the network predicts; None: not recorded
    sde: SDESettings | None = None
    _: KW_ONLY
    weights: str = "online"  # or ema
    source: str = ""  # the file they were read from
    recommended: Recommended | None = None
    bf16: Bf16Change | None = None  # what it changes in the results; None: not measured


def load_weights(network: nn.Module, path: str | Path) -> Checkpoint:
    """Load a file into a network, strictly; returns what was read (`weights` says whether it was EMA)."""
    checkpoint = read_checkpoint(path)
    _load(network, checkpoint)
    return checkpoint


def _check(choice: Architecture, checkpoint: Checkpoint) -> None:
    """Raise unless a network, which is not built for it, has the tensors of the file."""
    try:
        network = on_meta(choice)
    except ValueError as error:
        raise CheckpointError(f"{checkpoint.path}: {error}") from None
    _compare(network, checkpoint)


def _compare(network: nn.Module, checkpoint: Checkpoint) -> None:
    problems = compare(network, checkpoint.state)
    if problems:
        found = identify(checkpoint.state)
        hint = f"\n  The file fits {found}." if found else ""
        raise CheckpointError(
            f"{checkpoint.path}: keys do not fit {type(network).__name__}\n  " + "\n  ".join(problems) + hint
        )


def _load(network: nn.Module, checkpoint: Checkpoint) -> None:
    _compare(network, checkpoint)
    # Not strict only because DA-CLIP's duplicates are left out; everything else was compared above.
    network.load_state_dict(checkpoint.state, strict=False)


@torch.inference_mode(False)  # torch does not count the writes to tensors made in it, which packed weights rely on
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
        if variant is None and found.which_model_G == which_model_G and differences(wanted, checkpoint.state):
            # Published files do not name the variant: the weights do.
            wanted = architecture(found.which_model_G, setting or {}, found.variant)
        _check_choice(checkpoint, wanted, found)
    # Compared before memory is taken for it: a small file may record an enormous network.
    _check(wanted, checkpoint)
    with uninitialised():
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
    if "which_model_G" not in header:
        found = identify(checkpoint.state)
        return None if found is None else Metadata(found, weights=weights, source=source)
    try:
        choice = architecture(header["which_model_G"], _json_of(header, "setting"), header.get("variant", ""))
    except ValueError as error:
        raise CheckpointError(f"{checkpoint.path}: records a network that cannot be built: {error}") from None
    try:
        sde = _sde_of(_json_of(header, "sde")) if "sde" in header else None
        advice = from_json(header["recommended"]) if "recommended" in header else None
        bf16 = _bf16_of(_json_of(header, "bf16")) if "bf16" in header else None
        fit_target = header.get("fit_target")
        if fit_target is not None:
            check_choice("fit_target", fit_target, PREDICTIONS)
    except ValueError as error:
        raise CheckpointError(f"{checkpoint.path}: its metadata cannot be used: {error}") from None
    return Metadata(choice, fit_target, sde, weights=weights, source=source, recommended=advice, bf16=bf16)


def _json_of(header: Mapping[str, str], key: str) -> dict[str, Any]:
    """An entry of the metadata that is a mapping; raises ValueError."""
    try:
        value = json.loads(header[key])
    except KeyError:
        raise ValueError(f"{key}: missing") from None
    except (ValueError, RecursionError):
        raise ValueError(f"{key}: not JSON") from None
    if not isinstance(value, dict):
        raise ValueError(f"{key}: expected a mapping, got {type(value).__name__}")
    return value


def _sde_of(value: dict[str, Any]) -> SDESettings:
    names = [each.name for each in fields(SDESettings)]
    for key in value:
        if key not in names:
            raise unknown("key of sde", key, names)
    if "max_sigma" not in value:
        raise ValueError("sde.max_sigma: missing")
    return SDESettings(**value)


def _bf16_of(value: dict[str, Any]) -> Bf16Change:
    names = [each.name for each in fields(Bf16Change)]
    if sorted(value) != sorted(names):
        raise ValueError(f"bf16: expected {' and '.join(names)}")
    try:
        return Bf16Change(**value)
    except ValueError as error:
        raise ValueError(f"bf16: {error}") from None


def save_checkpoint(path: str | Path, state: Mapping[str, Tensor], metadata: Metadata, overwrite: bool = False) -> None:
    """Write tensors and metadata as .safetensors, from which `load_network(path)` rebuilds the network."""
    file = Path(path)
    if file.suffix != ".safetensors":
        raise ValueError(f"{file}: expected a name ending in .safetensors")
    if file.exists() and not overwrite:
        raise FileExistsError(f"{file}: exists already; it is replaced only with overwrite=True")
    choice = metadata.architecture
    network = on_meta(choice)
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
    if metadata.recommended is not None:
        header["recommended"] = metadata.recommended.to_json()
    if metadata.bf16 is not None:
        header["bf16"] = json.dumps(asdict(metadata.bf16))
    tensors = {key: value.detach().to("cpu").contiguous().clone() for key, value in state.items()}
    header[DIGEST] = digest_of(tensors, header)
    content = safetensors.torch.save(tensors, header)

    def write(part: BinaryIO) -> None:
        for piece in _ordered(content):
            part.write(piece)

    write_whole(file, write)


def _ordered(content: bytes) -> tuple[bytes, memoryview]:
    """A safetensors file with its metadata in order: the library writes them in a random one."""
    length = int.from_bytes(content[:8], "little")
    entries = json.loads(content[8 : 8 + length])
    entries["__metadata__"] = dict(sorted(entries["__metadata__"].items()))
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # as the format asks
    return len(header).to_bytes(8, "little") + header, memoryview(content)[8 + length :]
