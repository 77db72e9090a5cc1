"""What a weight file is: recognised by its keys and shapes, and compared with a network.

The functions of one argument, a state dict, belong to the rows of codes/networks/rows.py: each returns the setting of
its network if the tensors are that network's, else None (or KeyError for a key that is not there).
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..runtime.files import first_line
from ..runtime.paths import looked
from . import Architecture, architecture, build
from .rows import ROWS, SDESettings, load

State = Mapping[str, Tensor]
Found = dict[str, Any] | None
SHOWN = 10
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def identify(state: State) -> Architecture | None:
    """The architecture that a state dict's keys and shapes belong to; None if it is that of no row.

    What leaves no trace in the shapes is taken to be as published: the NAFNet variants `refusion` and `latent` have the
    same keys, and CLIP's heads are 64 wide.
    """
    for row in ROWS:
        if row.setting_of is None:
            continue
        try:
            setting = load(row.setting_of)(state)
            if setting is None:
                continue
            choice = architecture(row.name, setting, row.variant)
            if not differences(choice, state):
                return choice
        except Exception:  # anything: the functions expect the tensors of their network
            continue
    return None


def published_sde(choice: Architecture) -> SDESettings | None:
    """The SDE that the published checkpoints of an architecture were trained with, if it is always the same."""
    return choice.row.sde


def missing_file_message(path: Path, wanted: Architecture | None = None) -> str:
    """What to do about a weight file that does not exist."""
    what = "a weight file" if wanted is None else wanted.row.title
    return (
        f"{path}: no such file{looked(path)}. Expected {what}. Its authors publish it, it is not downloaded "
        "automatically: see pretrained/README.md for the published files, put it into pretrained/ and give its path "
        "(path.pretrain_model_G, or path.daclip for DA-CLIP's encoder)"
    )


def expected_state(network: nn.Module) -> dict[str, Tensor]:
    """The tensors that a file for this network must have: its state dict without those that repeat others."""
    repeated = getattr(network, "repeated_keys", None)  # a prefix
    return {key: value for key, value in network.state_dict().items() if not (repeated and key.startswith(repeated))}


def compare(network: nn.Module, state: State) -> list[str]:
    """The differences between a network's tensors and a state dict: one line for each kind of difference."""
    expected = expected_state(network)
    missing = [key for key in expected if key not in state]
    unexpected = [key for key in state if key not in expected]
    shapes = [
        f"{key} {tuple(state[key].shape)} instead of {tuple(value.shape)}"
        for key, value in expected.items()
        if key in state and state[key].shape != value.shape
    ]
    types = [
        f"{key} {_short(state[key].dtype)} instead of {_short(value.dtype)}"
        for key, value in expected.items()
        if key in state and not _same_type(state[key].dtype, value.dtype)
    ]
    kinds = (
        ("missing", missing),
        ("unexpected", unexpected),
        ("of another shape", shapes),
        ("of another type", types),
    )
    return [f"{len(found)} {kind}: {listed(found)}" for kind, found in kinds if found]


def _same_type(given: torch.dtype, expected: torch.dtype) -> bool:
    """Whether numbers may be converted: between those of the usual floating-point types."""
    return given == expected or (given in _FLOATS and expected in _FLOATS)


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def on_meta(choice: Architecture) -> nn.Module:
    """A network without memory for its tensors; raises ValueError for one that cannot be built."""
    try:
        with torch.device("meta"):
            return build(choice)
    except Exception as error:  # the constructors of networks, torch's among them, raise anything for an odd setting
        raise ValueError(f"{choice} cannot be built: {first_line(error)}") from None


def differences(choice: Architecture, state: State) -> list[str]:
    """The same for a network that is not built yet."""
    return compare(on_meta(choice), state)


def listed(keys: list[str]) -> str:
    """The first keys of a list, and how many follow."""
    more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
    return ", ".join(keys[:SHOWN]) + more


def _count(state: State, prefix: str) -> int:
    return len({key[len(prefix) :].split(".")[0] for key in state if key.startswith(prefix)})


def _unet(state: State, wanted: str) -> Found:
    variant, setting = _any_unet(state)
    return setting if variant == wanted else None


daclip_unet = partial(_unet, wanted="daclip")
wild_unet = partial(_unet, wanted="wild-ir")
irsde_unet = partial(_unet, wanted="irsde")
latent_dehazing_unet = partial(_unet, wanted="latent")
denoising_unet = partial(_unet, wanted="denoising")


def _any_unet(state: State) -> tuple[str, dict[str, Any]]:
    """Variant and setting of a ConditionalUNet."""
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
        return "denoising", {**setting, "in_nc": channels, "depth": depth}
    prompt = state.get("text_mlp.0.weight")
    cross = state.get("mid_attn.fn.fn.transformer_blocks.0.attn2.to_k.weight")
    half = "downsample.weight" in state
    if prompt is None and cross is None and not half:
        if widths == [nf * 2**i for i in range(depth + 1)]:
            return "irsde", {**setting, "depth": depth}
        return "latent", {**setting, "ch_mult": ch_mult}
    context = prompt if prompt is not None else cross
    setting |= {
        "ch_mult": ch_mult,
        "context_dim": None if context is None else context.shape[1],
        "use_degra_context": prompt is not None,
        "use_image_context": cross is not None,
    }
    # wild-ir has transformers at the deepest level, DA-CLIP from the fourth one on.
    deepest = f"downs.{depth - 1}.2.fn.fn.proj_in.weight" in state
    if half or (cross is not None and deepest != (depth >= 4)):
        return "wild-ir", {**setting, "scale": 0.5 if half else 1.0}
    return "daclip", setting


def _named_nafnet(state: State, wanted: str) -> Found:
    setting = _nafnet(state)
    if state["intro.weight"].shape[1] == setting["img_channel"]:
        found = "denoising"  # it sees no mu
    else:
        found = "refusion" if setting["img_channel"] in (1, 3) else "latent"
    return setting if found == wanted else None


refusion_nafnet = partial(_named_nafnet, wanted="refusion")
latent_nafnet = partial(_named_nafnet, wanted="latent")
denoising_nafnet = partial(_named_nafnet, wanted="denoising")


def coded_nafnet(state: State) -> Found:
    return {**_nafnet(state), "encoder_width": state["encoder.stages.0.weight"].shape[0]}


def _nafnet(state: State) -> dict[str, Any]:
    stages = _count(state, "encoders.")
    return {
        "img_channel": state["ending.weight"].shape[0],
        "width": state["intro.weight"].shape[0],
        "enc_blk_nums": [_count(state, f"encoders.{i}.") for i in range(stages)],
        "middle_blk_num": _count(state, "middle_blks."),
        "dec_blk_nums": [_count(state, f"decoders.{i}.") for i in range(stages)],
    }


def latent_unet(state: State) -> Found:
    ch, in_ch = state["init_conv.weight"].shape[:2]
    depth = _count(state, "encoder.")
    widths = [state[f"encoder.{i}.0.block1.proj.weight"].shape[0] for i in range(depth)]
    widths.append(state["latent_conv.weight"].shape[1])
    return {
        "in_ch": in_ch,
        "out_ch": state["final_conv.weight"].shape[0],
        "ch": ch,
        "ch_mult": [width // ch for width in widths[1:]],
        "embed_dim": state["latent_conv.weight"].shape[0],
    }


def daclip(state: State) -> Found:
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
    return {"embed_dim": embed_dim, "vision_cfg": vision, "text_cfg": text}
