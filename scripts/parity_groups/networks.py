"""Networks against the outputs and key lists of the published modules.

Everything is read from the folder's manifests: other configurations, weights and inputs work alike.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from codes.networks import Architecture, architecture, build
from codes.networks.checkpoints import load_weights
from codes.networks.daclip import DaCLIP, clip_transform

from .case import Case

FLOAT64 = 1e-10
FLOAT32 = 5e-5
FLOAT32_DACLIP = 1e-4
Arrays = Mapping[str, NDArray[Any]]


def cases(reference: Path) -> Iterator[Case]:
    folder = reference / "networks"
    for manifest_path in sorted(folder.glob("*_tiny.manifest.json")):
        name = manifest_path.name.removesuffix(".manifest.json")
        manifest = json.loads(manifest_path.read_text())
        choice = architecture_of(manifest)
        with np.load(folder / manifest["file"]) as file:
            arrays = dict(file)
        weights = [p for p in sorted(folder.glob(f"{name}*")) if p.suffix in (".safetensors", ".pth", ".pt")]
        networks = []
        for path in weights:
            network = build(choice)
            load_weights(network, path)
            networks.append(network)
            if len(networks) > 1:
                yield Case(f"networks/{name}/{path.name}", _difference(networks[0], network), 0.0)
        if networks:
            network = networks[0]
            if isinstance(network, DaCLIP):
                yield from _daclip(name, network, arrays)
            else:
                yield from _network(name, network, manifest, arrays)
    for path in sorted(folder.glob("*.keys.json")):
        yield _keys(path)


def architecture_of(manifest: Mapping[str, Any]) -> Architecture:
    """The network of a manifest's `config`; its source distinguishes variants of one name."""
    config, official = manifest["config"], manifest.get("official", manifest.get("option_file", ""))
    if "vision_cfg" in config:
        return architecture("DaCLIP", config)
    if "embed_dim" in config or "in_ch" in config:
        return architecture("UNet", config)
    which, default = ("ConditionalUNet", None) if "nf" in config else ("ConditionalNAFNet", "refusion")
    for folder, variant in (
        ("denoising-sde", "denoising"),
        ("latent-dehazing", "latent"),
        ("wild-ir", "wild-ir"),
    ):
        if folder in official:
            default = variant
    return architecture(which, config, default)


def relative_error(ours: Tensor, theirs: NDArray[Any]) -> float:
    expected = torch.from_numpy(np.asarray(theirs, dtype=np.float64))
    if ours.shape != expected.shape:
        return float("inf")
    return float(((ours.double() - expected).abs() / expected.abs().clamp(min=1)).max())


@torch.no_grad()
def _network(name: str, network: nn.Module, manifest: Mapping[str, Any], arrays: Arrays) -> Iterator[Case]:
    for case in manifest["cases"]:
        for dtype, against in ((torch.float64, ["f64"]), (torch.float32, ["f32", "f64"])):
            result = network.to(dtype)(**_inputs(case, manifest, arrays, dtype))
            tolerance = FLOAT64 if dtype == torch.float64 else FLOAT32
            for kind in against:
                error = relative_error(result, arrays[f"{case}/out_{kind}"])
                yield Case(f"networks/{name}/{case}/{str(dtype)[6:]}-vs-{kind}", error, tolerance)


# What the published modules call their arguments.
_ARGUMENTS = {"xt": "x", "inp": "x", "x": "x", "cond": "mu"}


def _inputs(case: str, manifest: Mapping[str, Any], arrays: Arrays, dtype: torch.dtype) -> dict[str, Any]:
    inputs: dict[str, Any] = {}
    for key, kind in manifest["cases"][case]["inputs"].items():
        name = _ARGUMENTS.get(key, key)
        if kind is None:
            inputs[name] = None
        elif kind.startswith("tensor"):
            tensor = torch.from_numpy(arrays[f"{case}/{key}"])
            inputs[name] = tensor if key == "time" else tensor.to(dtype)
        else:
            inputs[name] = arrays[f"{case}/{key}"].item()
    return inputs


@torch.no_grad()
def _daclip(name: str, network: DaCLIP, arrays: Arrays) -> Iterator[Case]:
    text = torch.from_numpy(arrays["text"])
    for dtype, suffix, tolerance in ((torch.float64, "f64", FLOAT64), (torch.float32, "f32", FLOAT32_DACLIP)):
        network = network.to(dtype)
        image = torch.from_numpy(arrays["image"]).to(dtype)
        for key, value in _daclip_outputs(network, image, text).items():
            if f"{key}_{suffix}" in arrays:
                error = relative_error(value, arrays[f"{key}_{suffix}"])
                yield Case(f"networks/{name}/{key}_{suffix}", error, tolerance)
    for key in arrays:
        if key.startswith("clip_transform/") and "/out_res" in key:
            stem, size = key.split("/out_res")
            pixels = torch.from_numpy(arrays[f"{stem}/rgb_uint8"]).permute(2, 0, 1).float().div(255)
            error = relative_error(clip_transform(pixels[None], int(size))[0], arrays[key])
            yield Case(f"networks/{name}/{key}", error, 1e-6)


def _daclip_outputs(network: DaCLIP, image: Tensor, text: Tensor) -> dict[str, Tensor]:
    plain, normal = network.controlled(image), network.controlled(image, normalize=True)
    caption, degradation = text.chunk(2, dim=-1)
    trained = {
        "image_features": normal.image,
        "text_features": network.encode_text(caption, normalize=True),
        "image_degra_features": normal.degradation,
        "text_degra_features": network.encode_text(degradation, normalize=True),
        "logit_scale": network.logit_scale.exp(),
    }
    return {
        "encode_image_control/image_features": plain.image,
        "encode_image_control/degra_features": plain.degradation,
        "encode_image_control_normalized/image_features": normal.image,
        "encode_image_control_normalized/degra_features": normal.degradation,
        "encode_image_plain": network.clip.encode_image(image),
        "control_hiddens": torch.stack([h.transpose(0, 1) for h in network.control_hiddens(image)[0]]),
        "encode_text_caption": network.encode_text(caption),
        **{f"forward/{key}": value for key, value in trained.items()},
    }


def _difference(a: nn.Module, b: nn.Module) -> float:
    theirs = b.state_dict()
    return max(float((value - theirs[key]).abs().max()) for key, value in a.state_dict().items())


def _keys(path: Path) -> Case:
    """Number of keys of a full-size network that are missing, too many, or of another shape or type."""
    manifest = json.loads(path.read_text())
    with torch.device("meta"):
        network = build(architecture_of(manifest))
    ours = {key: [list(v.shape), str(v.dtype).removeprefix("torch.")] for key, v in network.state_dict().items()}
    theirs = manifest["state_dict"]
    wrong = [key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)]
    return Case(f"networks/{path.name}: {len(theirs)} keys", float(len(wrong)), 0.0)
