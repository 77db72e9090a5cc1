"""Weights from files: .pth, .pt and .safetensors, as the published projects write them and as we do.

Loading is strict and runs no code from the file. A file is recognised by its keys; a .safetensors file
written by `save_checkpoint` also carries its architecture, what it predicts and its SDE, and is enough to run
by itself.
"""

import json
import logging
import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from ..runtime.files import write_whole
from . import Architecture, architecture, build
from .daclip import DaCLIP

State = dict[str, Tensor]
logger = logging.getLogger(__name__)

SUFFIXES = (".pth", ".pt", ".safetensors")
EMA_ENTRIES = ("ema", "model_ema", "state_dict_ema", "params_ema")
WEIGHT_ENTRIES = ("state_dict", "model", "params")
SHOWN = 10


class CheckpointError(ValueError):
    """A weight file that cannot be used, and why."""


@dataclass(frozen=True)
class SDESettings:
    """The SDE that a network was trained with, in the units of the option files."""

    max_sigma: float
    T: int = 100
    schedule: str = "cosine"
    eps: float = 0.005
    convention: str = "daclip"  # or irsde: the integral of theta starts at 0

    def __post_init__(self) -> None:
        if self.convention not in ("daclip", "irsde"):
            raise ValueError(f"sde.convention: expected 'daclip' or 'irsde', got {self.convention!r}")


@dataclass(frozen=True)
class Metadata:
    """What is known about a checkpoint besides its tensors."""

    architecture: Architecture
    fit_target: str | None = None  # what the network predicts; None: not recorded
    sde: SDESettings | None = None
    weights: str = "online"  # or ema
    source: str = ""  # the file they were read from


@dataclass(frozen=True)
class Checkpoint:
    path: Path
    state: State
    weights: str
    header: Mapping[str, str]


# Reading.


def find_file(path: Path, wanted: Architecture | None = None) -> Path:
    """The weight file meant by a path: the file itself, or in a folder the EMA weights if there are any."""
    if path.is_file():
        sibling = next((f for f in sorted(path.parent.glob("*_EMA.*")) if f.suffix in SUFFIXES), None)
        if path.stem.endswith("_G") and sibling:
            logger.info("%s: using these weights as asked; EMA weights are beside it in %s", path, sibling.name)
        return path
    if not path.is_dir():
        raise FileNotFoundError(missing_file_message(path, wanted))
    files = [file for file in path.iterdir() if file.suffix in SUFFIXES]
    ema = [file for file in files if file.stem.endswith("_EMA")]
    # Our trainings write the average of every checkpoint, with what it predicts, besides the published file.
    ema = sorted((file for file in ema if _iteration(file) >= 0), key=_iteration)[-1:] or ema
    online = [file for file in files if file.stem.endswith("_G")]
    candidates = ema or [f for f in online if f.stem == "latest_G"] or sorted(online, key=_iteration)[-1:] or files
    if len(candidates) != 1:
        names = ", ".join(sorted(file.name for file in candidates)) or "none"
        raise CheckpointError(f"{path}: expected one weight file ({', '.join(SUFFIXES)}) in this folder, found {names}")
    logger.info("%s: using %s", path, candidates[0].name)
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
    state, weights = _unwrap(file, content)
    if "_EMA" in file.stem or header.get("weights") == "ema":
        weights = "ema"
    logger.info("%s: %d tensors, %s weights", file, len(state), weights)
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
                raise CheckpointError(f"{file}: a training state without weights; they are in the *_G.pth beside it")
    if not isinstance(content, Mapping) or not content:
        raise CheckpointError(f"{file}: expected a state dict, found {type(content).__name__}")
    state = {_without_module(str(key)): value for key, value in content.items()}
    if any(key.startswith("ema_model.") for key in state):
        weights = "ema"
        state = {k.removeprefix("ema_model."): v for k, v in state.items() if k.startswith("ema_model.")}
    odd = [key for key, value in state.items() if not isinstance(value, Tensor)]
    if odd:
        raise CheckpointError(f"{file}: expected tensors only, found {_listed(odd)}")
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
        raise CheckpointError(f"{file}: visual.* should equal clip.visual.* and does not: {_listed(different)}")
    return {key: value for key, value in state.items() if key not in set(doubles)}


# Recognising.


def identify(state: Mapping[str, Tensor]) -> Architecture | None:
    """The architecture that a state dict's keys and shapes belong to; None if it is none of ours.

    What leaves no trace in the shapes is taken to be as published: the NAFNet variants `refusion` and
    `latent` have the same keys, and CLIP's heads are 64 wide.
    """
    try:
        if "visual_control.class_embedding" in state:
            choice = _identify_daclip(state)
        elif "latent_conv.weight" in state:
            choice = _identify_latent(state)
        elif "init_conv.weight" in state:
            choice = _identify_unet(state)
        elif "intro.weight" in state:
            choice = _identify_nafnet(state)
        else:
            return None
        with torch.device("meta"):
            network = build(choice)
    except (KeyError, IndexError, ValueError, RuntimeError):
        return None
    return choice if not _compare(network, state) else None


def _count(state: Mapping[str, Tensor], prefix: str) -> int:
    return len({key[len(prefix) :].split(".")[0] for key in state if key.startswith(prefix)})


def _identify_unet(state: Mapping[str, Tensor]) -> Architecture:
    nf, channels = state["init_conv.weight"].shape[:2]
    depth = _count(state, "downs.")
    widths = [state[f"downs.{i}.0.block1.proj.weight"].shape[0] for i in range(depth)]
    widths.append(state["mid_block1.block1.proj.weight"].shape[0])
    setting: dict[str, Any] = {
        "in_nc": channels // 2,
        "out_nc": state["final_conv.weight"].shape[0],
        "nf": nf,
    }
    ch_mult = [width // nf for width in widths[1:]]
    if "mid_attn.fn.fn.to_out.weight" in state:
        return architecture("ConditionalUNet", {**setting, "in_nc": channels, "depth": depth}, "denoising")
    prompt = state.get("text_mlp.0.weight")
    cross = state.get("mid_attn.fn.fn.transformer_blocks.0.attn2.to_k.weight")
    half = "downsample.weight" in state
    if prompt is None and cross is None and not half:
        if widths == [nf * 2**i for i in range(depth + 1)]:
            return architecture("ConditionalUNet", {**setting, "depth": depth}, "irsde")
        return architecture("ConditionalUNet", {**setting, "ch_mult": ch_mult}, "latent")
    context = prompt if prompt is not None else cross
    setting |= {
        "ch_mult": ch_mult,
        "context_dim": None if context is None else context.shape[1],
        "use_degra_context": prompt is not None,
        "use_image_context": cross is not None,
    }
    # wild-ir puts transformers into the deepest level, DA-CLIP into the fourth one.
    deepest = f"downs.{depth - 1}.2.fn.fn.proj_in.weight" in state
    if half or (cross is not None and deepest != (depth >= 4)):
        return architecture("ConditionalUNet", {**setting, "scale": 0.5 if half else 1.0}, "wild-ir")
    return architecture("ConditionalUNet", setting, "daclip")


def _identify_nafnet(state: Mapping[str, Tensor]) -> Architecture:
    width, channels = state["intro.weight"].shape[:2]
    stages = _count(state, "encoders.")
    setting = {
        "img_channel": state["ending.weight"].shape[0],
        "width": width,
        "enc_blk_nums": [_count(state, f"encoders.{i}.") for i in range(stages)],
        "middle_blk_num": _count(state, "middle_blks."),
        "dec_blk_nums": [_count(state, f"decoders.{i}.") for i in range(stages)],
    }
    return architecture("ConditionalNAFNet", setting, "denoising" if channels == setting["img_channel"] else None)


def _identify_latent(state: Mapping[str, Tensor]) -> Architecture:
    ch, in_ch = state["init_conv.weight"].shape[:2]
    depth = _count(state, "encoder.")
    widths = [state[f"encoder.{i}.0.block1.proj.weight"].shape[0] for i in range(depth)]
    widths.append(state["latent_conv.weight"].shape[1])
    setting = {
        "in_ch": in_ch,
        "out_ch": state["final_conv.weight"].shape[0],
        "ch": ch,
        "ch_mult": [width // ch for width in widths[1:]],
        "embed_dim": state["latent_conv.weight"].shape[0],
    }
    return architecture("UNet", setting)


def _identify_daclip(state: Mapping[str, Tensor]) -> Architecture:
    visual = {k.removeprefix("clip.visual."): v for k, v in state.items() if k.startswith("clip.visual.")}
    width, patch = visual["conv1.weight"].shape[0], visual["conv1.weight"].shape[-1]
    grid = round((visual["positional_embedding"].shape[0] - 1) ** 0.5)
    vision: dict[str, Any] = {
        "image_size": grid * patch,
        "layers": _count(visual, "transformer.resblocks."),
        "width": width,
        "patch_size": patch,
    }
    mlp_ratio = visual["transformer.resblocks.0.mlp.c_fc.weight"].shape[0] / width
    if mlp_ratio != 4:
        vision["mlp_ratio"] = mlp_ratio
    vocabulary, text_width = state["clip.token_embedding.weight"].shape
    text = {
        "context_length": state["clip.positional_embedding"].shape[0],
        "vocab_size": vocabulary,
        "width": text_width,
        "heads": max(text_width // 64, 1),
        "layers": _count(state, "clip.transformer.resblocks."),
    }
    embed_dim = state["clip.text_projection"].shape[1]
    return architecture("DaCLIP", {"embed_dim": embed_dim, "vision_cfg": vision, "text_cfg": text})


# Loading.


def expected_state(network: nn.Module) -> State:
    """The tensors that a file for this network must have: its state dict without DA-CLIP's duplicates."""
    state = network.state_dict()
    if isinstance(network, DaCLIP):
        state = {key: value for key, value in state.items() if not key.startswith("visual.")}
    return dict(state)


def _compare(network: nn.Module, state: Mapping[str, Tensor]) -> list[str]:
    """What is wrong with a state dict: one line per kind of difference."""
    expected = expected_state(network)
    missing = [key for key in expected if key not in state]
    unexpected = [key for key in state if key not in expected]
    shapes = [
        f"{key} {tuple(state[key].shape)} instead of {tuple(value.shape)}"
        for key, value in expected.items()
        if key in state and state[key].shape != value.shape
    ]
    kinds = (("missing", missing), ("unexpected", unexpected), ("of another shape", shapes))
    return [f"{len(found)} {kind}: {_listed(found)}" for kind, found in kinds if found]


def _listed(keys: list[str]) -> str:
    more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
    return ", ".join(keys[:SHOWN]) + more


def load_weights(network: nn.Module, path: str | Path) -> Checkpoint:
    """Load a file into a network, strictly; returns what was read (`weights` says whether it was EMA)."""
    checkpoint = read_checkpoint(path)
    _load(network, checkpoint)
    return checkpoint


def _load(network: nn.Module, checkpoint: Checkpoint) -> None:
    differences = _compare(network, checkpoint.state)
    if differences:
        found = identify(checkpoint.state)
        hint = f"\n  The file fits {found}." if found else ""
        raise CheckpointError(
            f"{checkpoint.path}: keys do not fit {type(network).__name__}\n  " + "\n  ".join(differences) + hint
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

    Without `which_model_G` the file decides: by its metadata, else by its keys. With it (an option file's
    choice), a file that is something else is an error that says what it is.
    """
    wanted = None if which_model_G is None else architecture(which_model_G, setting or {}, variant)
    checkpoint = read_checkpoint(path, wanted)
    metadata = metadata_of(checkpoint)
    found = metadata.architecture if metadata else None
    if wanted is None:
        if found is None:
            raise CheckpointError(f"{checkpoint.path}: its keys belong to no network of ours; name one in network_G")
        wanted = found
    elif found is not None:
        _check_choice(checkpoint, wanted, found)
    network = build(wanted)
    _load(network, checkpoint)
    if metadata is None:
        metadata = Metadata(wanted, weights=checkpoint.weights, source=str(checkpoint.path))
    return network, Metadata(wanted, metadata.fit_target, metadata.sde, checkpoint.weights, str(checkpoint.path))


def _check_choice(checkpoint: Checkpoint, wanted: Architecture, found: Architecture) -> None:
    """Keys cannot tell every variant: those that have the same are told apart only by recorded metadata."""
    with torch.device("meta"):
        fits = not _compare(build(wanted), checkpoint.state)
    same = (wanted.which_model_G, wanted.variant) == (found.which_model_G, found.variant)
    if not fits or ("which_model_G" in checkpoint.header and not same):
        differences = "" if fits else "\n  " + "\n  ".join(_differences(wanted, checkpoint.state))
        raise CheckpointError(
            f"{checkpoint.path}: the options ask for {wanted}, the file is {found}.{differences}\n"
            "  Correct network_G (which_model_G, variant, setting), or leave it out: the file is enough."
        )


def _differences(wanted: Architecture, state: State) -> list[str]:
    with torch.device("meta"):
        return _compare(build(wanted), state)


# Our own files.


def metadata_of(checkpoint: Checkpoint) -> Metadata | None:
    """What the file records about itself, else what its keys tell; None if that is nothing."""
    header = checkpoint.header
    if "which_model_G" in header:
        choice = architecture(header["which_model_G"], json.loads(header["setting"]), header["variant"])
        sde = SDESettings(**json.loads(header["sde"])) if "sde" in header else None
        return Metadata(choice, header.get("fit_target"), sde, checkpoint.weights, str(checkpoint.path))
    found = identify(checkpoint.state)
    return None if found is None else Metadata(found, weights=checkpoint.weights, source=str(checkpoint.path))


def published_sde(choice: Architecture) -> SDESettings | None:
    """The SDE that the published checkpoints of an architecture were trained with, if it is always the same."""
    by_variant = {
        ("ConditionalUNet", "daclip"): SDESettings(50, convention="daclip"),
        ("ConditionalUNet", "wild-ir"): SDESettings(50, convention="daclip"),
        ("ConditionalUNet", "denoising"): SDESettings(70, convention="irsde"),
        ("ConditionalNAFNet", "denoising"): SDESettings(70, convention="irsde"),
        ("ConditionalUNet", "latent"): SDESettings(50, convention="irsde"),
        ("ConditionalNAFNet", "refusion"): SDESettings(50, convention="irsde"),
        ("ConditionalNAFNet", "latent"): SDESettings(50, convention="irsde"),
    }
    return by_variant.get((choice.which_model_G, choice.variant))


def save_checkpoint(path: str | Path, state: Mapping[str, Tensor], metadata: Metadata, overwrite: bool = False) -> None:
    """Write tensors and metadata as .safetensors; `load_network(path)` gives the network back."""
    file = Path(path)
    if file.suffix != ".safetensors":
        raise ValueError(f"{file}: expected a name ending in .safetensors")
    if file.exists() and not overwrite:
        raise FileExistsError(f"{file}: exists already; it is overwritten only when asked to")
    choice = metadata.architecture
    with torch.device("meta"):
        network = build(choice)
    keys = expected_state(network).keys()
    state = {key: value for key, value in state.items() if key in keys or not key.startswith("visual.")}
    differences = _compare(network, state)
    if differences:
        raise CheckpointError(
            f"{file}: not written, the tensors are not those of {choice}\n  " + "\n  ".join(differences)
        )
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


# Published files.

PUBLISHED = {
    (
        "ConditionalUNet",
        "daclip",
    ): "DA-CLIP's restoration U-Net (universal-ir), 224 keys, 48,975,747 parameters",
    ("ConditionalUNet", "wild-ir"): "DA-CLIP's wild-ir U-Net for ViT-L-14, 221 keys",
    ("ConditionalUNet", "irsde"): "IR-SDE's U-Net, one per task, 151 keys, 137,147,523 parameters",
    ("ConditionalUNet", "latent"): "the diffusion U-Net of Refusion's latent dehazing",
    ("ConditionalUNet", "denoising"): "the U-Net of denoising-sde",
    ("ConditionalNAFNet", "refusion"): "Refusion's NAFNet, one per task, 668 keys, 76,608,387 parameters",
    ("ConditionalNAFNet", "latent"): "the diffusion NAFNet of Refusion's latent dehazing",
    ("ConditionalNAFNet", "denoising"): "the NAFNet of denoising-sde",
    ("UNet", "latent"): "the compressing U-Net of Refusion's latent diffusion",
    ("DaCLIP", "open_clip"): "DA-CLIP's image and degradation encoder, ViT-B-32 631 keys or ViT-L-14",
}


def missing_file_message(path: Path, wanted: Architecture | None = None) -> str:
    what = "a weight file" if wanted is None else PUBLISHED[(wanted.which_model_G, wanted.variant)]
    return (
        f"{path}: no such file. This should be {what}. It comes from its authors and is not downloaded: see "
        "pretrained/README.md for the published files, put it into pretrained/ and give its path "
        "(path.pretrain_model_G, or path.daclip for DA-CLIP's encoder)"
    )
