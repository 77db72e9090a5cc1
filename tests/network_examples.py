"""Small networks with random weights, shared by the tests of networks and checkpoints."""

from pathlib import Path

import torch
from torch import nn

from codes.networks import build_network

GOLDEN = Path(__file__).parent / "golden" / "networks"

DACLIP_SETTING = {
    "in_nc": 3,
    "out_nc": 3,
    "nf": 32,
    "ch_mult": [1, 1, 1, 2],
    "context_dim": 64,
    "use_degra_context": True,
    "use_image_context": True,
}
NAFNET_SETTING = {"width": 8, "enc_blk_nums": [1, 2], "middle_blk_num": 1, "dec_blk_nums": [1, 1]}
TINY_DACLIP = {
    "embed_dim": 32,
    "vision_cfg": {"image_size": 32, "layers": 3, "width": 64, "patch_size": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 64, "heads": 1, "layers": 1},
}
VIT_B_32 = {
    "embed_dim": 512,
    "vision_cfg": {"image_size": 224, "layers": 12, "width": 768, "patch_size": 32},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 512, "heads": 8, "layers": 12},
}
VIT_L_14 = {
    "embed_dim": 768,
    "vision_cfg": {"image_size": 224, "layers": 24, "width": 1024, "patch_size": 14},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 768, "heads": 12, "layers": 12},
}
LATENT_SETTING = {"in_ch": 3, "out_ch": 3, "ch": 8, "ch_mult": [1, 2, 2], "embed_dim": 4}
# One of each architecture: published name, variant, setting.
EXAMPLES = {
    "coded": (
        "CodedNAFNet",
        "coded",
        {"width": 8, "enc_blk_nums": [1, 1], "middle_blk_num": 1, "dec_blk_nums": [1, 1], "encoder_width": 4},
    ),
    "daclip": ("ConditionalUNet", "daclip", DACLIP_SETTING),
    "daclip-no-context": (
        "ConditionalUNet",
        "daclip",
        {"in_nc": 3, "out_nc": 3, "nf": 8, "ch_mult": [1, 2], "context_dim": 16, "use_degra_context": True},
    ),
    "wild-ir": (
        "ConditionalUNet",
        "wild-ir",
        {
            "in_nc": 3,
            "out_nc": 3,
            "nf": 32,
            "ch_mult": [1, 1, 2],
            "context_dim": 48,
            "use_degra_context": False,
            "use_image_context": True,
            "scale": 0.5,
        },
    ),
    "irsde": ("ConditionalUNet", "irsde", {"in_nc": 3, "out_nc": 3, "nf": 8, "depth": 3}),
    "latent-unet": ("ConditionalUNet", "latent", {"in_nc": 4, "out_nc": 4, "nf": 8, "ch_mult": [1, 2, 4]}),
    "denoising-unet": ("ConditionalUNet", "denoising", {"in_nc": 3, "out_nc": 3, "nf": 8, "depth": 2}),
    "refusion": ("ConditionalNAFNet", "refusion", NAFNET_SETTING),
    "latent-nafnet": ("ConditionalNAFNet", "latent", {"img_channel": 8, **NAFNET_SETTING}),
    "denoising-nafnet": ("ConditionalNAFNet", "denoising", NAFNET_SETTING),
    "latent": ("UNet", "latent", LATENT_SETTING),
}


def example(name: str, dtype: torch.dtype = torch.float64) -> nn.Module:
    """A network in which every parameter matters: also those that are initialised to constants are random."""
    which, variant, setting = EXAMPLES[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = build_network(which, setting, variant)
        with torch.no_grad():
            for parameter in network.parameters():
                if parameter.std(correction=0) == 0:
                    parameter.normal_(mean=0.5, std=0.2)
    return network.to(dtype)


def inputs(name: str, batch: int = 2, size: tuple[int, int] = (16, 24), dtype: torch.dtype = torch.float64):
    """Arguments (images, contexts) of `example(name)`."""
    setting = EXAMPLES[name][2]
    channels = int(setting.get("in_nc", setting.get("img_channel", 3)))  # type: ignore[call-overload]
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(2, batch, channels, *size, generator=generator, dtype=dtype)
    width = int(setting.get("context_dim") or 0)  # type: ignore[call-overload]
    contexts = torch.randn(2, batch, width, generator=generator, dtype=dtype)
    text = contexts[0] if setting.get("use_degra_context") else None
    image = contexts[1] if setting.get("use_image_context") else None
    return images[0], images[1], {"text_context": text, "image_context": image} if width else {}
