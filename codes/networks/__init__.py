"""Networks of the published checkpoints, selected as in the published option files.

`network_G: {which_model_G: ConditionalUNet, setting: {...}}` -> `build_network("ConditionalUNet", {...})`.
"""

import difflib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_type_hints

import torch
from torch import nn

from .coded import CodedNAFNet
from .daclip import DaCLIP
from .latent import LatentUNet
from .nafnet import ConditionalNAFNet, DenoisingNAFNet, LatentNAFNet
from .unet import DaclipUNet, DenoisingUNet, IrsdeUNet, LatentDehazingUNet, WildUNet

# Published name -> variants, because the published projects use one name for several architectures.
NETWORKS: dict[str, dict[str, type[nn.Module]]] = {
    "ConditionalUNet": {
        "daclip": DaclipUNet,
        "wild-ir": WildUNet,
        "irsde": IrsdeUNet,
        "latent": LatentDehazingUNet,
        "denoising": DenoisingUNet,
    },
    "ConditionalNAFNet": {
        "refusion": ConditionalNAFNet,
        "latent": LatentNAFNet,
        "denoising": DenoisingNAFNet,
    },
    "CodedNAFNet": {"coded": CodedNAFNet},
    "UNet": {"latent": LatentUNet},
    "DaCLIP": {"open_clip": DaCLIP},
}


@dataclass(frozen=True)
class Architecture:
    """Which network: the published name, the variant where that name has several, and its setting."""

    which_model_G: str
    variant: str
    setting: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        setting = ", ".join(f"{key}: {value}" for key, value in self.setting.items())
        return f"{self.which_model_G} (variant {self.variant}, setting {{{setting}}})"


def default_variant(which_model_G: str, setting: Mapping[str, Any]) -> str:
    """The variant that a published option file with this setting means."""
    if which_model_G == "ConditionalUNet":
        if "depth" in setting:
            return "irsde"
        if "scale" in setting:
            return "wild-ir"
        return (
            "daclip" if {"ch_mult", "context_dim", "use_degra_context", "use_image_context"} & set(setting) else "irsde"
        )
    if which_model_G == "ConditionalNAFNet":
        # Latents have 4 or 8 channels, images 1 or 3.
        return "refusion" if setting.get("img_channel", 3) in (1, 3) else "latent"
    return next(iter(NETWORKS[which_model_G]))


def architecture(which_model_G: str, setting: Mapping[str, Any], variant: str | None = None) -> Architecture:
    """Check an option file's choice; the message names the key and the nearest known one."""
    variants = NETWORKS.get(which_model_G)
    if variants is None:
        raise ValueError(
            f"network_G.which_model_G: unknown network {which_model_G!r}{_nearest(which_model_G, NETWORKS)}"
        )
    variant = default_variant(which_model_G, setting) if variant is None else variant
    if variant not in variants:
        raise ValueError(f"network_G.variant: {which_model_G} has no variant {variant!r}{_nearest(variant, variants)}")
    if which_model_G != "DaCLIP":
        _check_setting(f"{which_model_G} (variant {variant})", variants[variant], setting)
    return Architecture(which_model_G, variant, dict(setting))


def build_network(which_model_G: str, setting: Mapping[str, Any], variant: str | None = None) -> nn.Module:
    """A network with random weights, in channels_last memory and evaluation mode."""
    return build(architecture(which_model_G, setting, variant))


def build(choice: Architecture) -> nn.Module:
    network_class = NETWORKS[choice.which_model_G][choice.variant]
    network = network_class(choice.setting) if choice.which_model_G == "DaCLIP" else network_class(**choice.setting)
    return network.to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]


def _check_setting(network: str, network_class: type[nn.Module], setting: Mapping[str, Any]) -> None:
    parameters = inspect.signature(network_class).parameters
    hints = get_type_hints(network_class.__init__)
    for key, value in setting.items():
        if key not in parameters:
            raise ValueError(f"network_G.setting.{key}: {network} has no such option{_nearest(key, parameters)}")
        if not _fits(value, hints[key]):
            raise ValueError(f"network_G.setting.{key}: expected {_EXPECTED[hints[key]]}, got {value!r}")
    for key, parameter in parameters.items():
        if parameter.default is parameter.empty and key not in setting:
            raise ValueError(f"network_G.setting.{key}: {network} needs it")


_EXPECTED: dict[Any, str] = {
    int: "a positive whole number",
    float: "a number",
    bool: "true or false",
    int | None: "a whole number or null",
    Sequence[int]: "a list of whole numbers",
}


def _fits(value: Any, kind: Any) -> bool:
    if kind is bool:
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kind is int:
        return isinstance(value, int) and value > 0
    if kind is float:
        return isinstance(value, int | float)
    if kind == int | None:
        return value is None or isinstance(value, int)
    # A stage may have no block: then it only changes the resolution.
    return isinstance(value, list | tuple) and all(type(entry) is int and entry >= 0 for entry in value)


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"
