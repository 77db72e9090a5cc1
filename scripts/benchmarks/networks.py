"""The networks that are measured: published ones with random weights, and those of files."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from codes.networks import build_network
from codes.networks.checkpoints import load_network

NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "daclip-unet": (
        "ConditionalUNet",
        {
            "in_nc": 3,
            "out_nc": 3,
            "nf": 64,
            "ch_mult": [1, 2, 4, 8],
            "context_dim": 512,
            "use_degra_context": True,
            "use_image_context": True,
        },
    ),
    "refusion-nafnet": (
        "ConditionalNAFNet",
        {"width": 64, "enc_blk_nums": [1, 1, 1, 28], "middle_blk_num": 1, "dec_blk_nums": [1, 1, 1, 1]},
    ),
    "irsde-unet": ("ConditionalUNet", {"in_nc": 3, "out_nc": 3, "nf": 64, "depth": 4}),
}


def made(name: str) -> nn.Module:
    """A network of NETWORKS, or that of a file."""
    torch.manual_seed(0)
    return (build_network(*NETWORKS[name]) if name in NETWORKS else load_network(name)[0]).eval()


def contexts(name: str) -> dict[str, Any]:
    """The contexts that a network takes, as arguments of `predictor`."""
    text, image = torch.randn(2, 1, 512, generator=torch.Generator().manual_seed(0))
    return {"text_context": text, "image_context": image} if name == "daclip-unet" else {}


def title(name: str) -> str:
    """The name of a network in tables."""
    return Path(name).stem
