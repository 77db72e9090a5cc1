"""The U-Net of Refusion that compresses images: the diffusion then runs on its latents.

z, skips = net.encode(lq); latent = <sample from z>; restored = net.decode(latent, skips)
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .attention import LinearAttention, Residual
from .cpu import Convolution
from .layers import check_images, level, levels, reflect_pad


class Skips(NamedTuple):
    """What `decode` needs of the encoded image. Not consumed: several latents can be decoded with it."""

    features: list[Tensor]
    size: tuple[int, int]


class LatentUNet(nn.Module):
    """UNet of Refusion: no time, attention only at the deepest level, a latent of `embed_dim` channels."""

    def __init__(
        self,
        in_ch: int = 3,
        out_ch: int = 3,
        ch: int = 64,
        ch_mult: Sequence[int] = (1, 2, 4, 4),
        embed_dim: int = 4,
    ) -> None:
        super().__init__()
        widths = [ch, *(ch * multiple for multiple in ch_mult)]
        depth = len(ch_mult)
        self.in_channels, self.depth = in_ch, depth
        self.init_conv = Convolution(in_ch, ch, 3, padding=1, bias=False)

        def attention(width: int, level: int) -> nn.Module:
            return Residual(width, LinearAttention(width)) if level == depth - 1 else nn.Identity()

        self.encoder, self.decoder = levels(widths, attention)
        self.latent_conv = Convolution(widths[-1], embed_dim, 1, bias=False)
        self.post_latent_conv = Convolution(embed_dim, widths[-1], 1, bias=False)
        self.final_conv = Convolution(ch, out_ch, 3, padding=1)

    def encode(self, x: Tensor) -> tuple[Tensor, Skips]:
        """(B, in_ch, H, W) -> (B, embed_dim, padded H / 2^(depth-1), padded W / 2^(depth-1)) and for decode."""
        check_images(x, None, self.in_channels)
        size = (x.shape[-2], x.shape[-1])
        x = self.init_conv(reflect_pad(x, 2**self.depth).contiguous(memory_format=torch.channels_last))
        features = [x]
        for block0, block1, attn, down in map(level, self.encoder):
            x = block0([x])
            features.append(x)
            x = attn(block1([x]))
            features.append(x)
            x = down(x)
        return self.latent_conv(x).contiguous(), Skips(features, size)

    def decode(self, z: Tensor, skips: Skips) -> Tensor:
        features = list(skips.features)
        x = self.post_latent_conv(z.contiguous(memory_format=torch.channels_last))
        for block0, block1, attn, up in map(level, self.decoder):
            x = block0([x, features.pop()])
            x = up(attn(block1([x, features.pop()])))
        x = self.final_conv(x + features.pop())
        height, width = skips.size
        return x[:, :, :height, :width].contiguous()

    def forward(self, x: Tensor) -> Tensor:
        return self.decode(*self.encode(x))
