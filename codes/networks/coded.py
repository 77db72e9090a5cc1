"""A NAFNet that first recognises what is wrong with an image.

What an image suffers from, and how bright and clear the whole of it is, can be told from the degraded image alone, and
is the same at every time of a sampling. A small encoder reads it once; its code joins the time embedding and so scales
and shifts every block, as DA-CLIP's degradation embedding does in its U-Net. The encoder is trained with the network:
by the restoration itself, and by having to name the degradation.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .layers import ChannelNorm, Context, Convolution, Embedding, Time, sinusoidal, time_tensor
from .nafnet import NAFNet, SimpleGate

KINDS = 11  # the ten degradations, and none


class DegradationEncoder(nn.Module):
    """A degraded image -> its code (B, width) and logits (B, 11) of what it suffers from.

    Four convolutions, each at half the resolution of the one before. Mean and spread of their features over the image,
    from fine grain to large areas, are all that goes on; so images of any size give a code, and the code of a part is
    about that of the whole.
    """

    def __init__(self, channels: int, width: int, code: int) -> None:
        super().__init__()
        widths = (channels, width, 2 * width, 3 * width, 4 * width)
        self.stages = nn.ModuleList(Convolution(a, b, 3, stride=2, padding=1) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(ChannelNorm(b) for b in widths[1:])
        total = 2 * (channels + sum(widths[1:]))
        self.mix = nn.Sequential(nn.Linear(total, 2 * code), SimpleGate(), nn.Linear(code, code))
        self.name = nn.Linear(code, KINDS)

    def forward(self, mu: Tensor) -> tuple[Tensor, Tensor]:
        x = mu.contiguous(memory_format=torch.channels_last)
        found = [_statistics(x)]
        for convolution, norm in zip(self.stages, self.norms):
            x = F.gelu(norm(convolution(x)))
            found.append(_statistics(x))
        code: Tensor = self.mix(torch.cat(found, dim=1))
        return code, self.name(code)


def _statistics(x: Tensor) -> Tensor:
    """Mean and standard deviation over the image, (B, 2 C), in float32 at least: small differences matter."""
    flat = x.to(torch.promote_types(x.dtype, torch.float32)).flatten(2)
    mean = flat.mean(2)
    return torch.cat([mean, ((flat - mean[:, :, None]).square().mean(2) + 1e-6).sqrt()], dim=1)


class CodedNAFNet(NAFNet):
    """ConditionalNAFNet with a degradation code beside the time."""

    def __init__(
        self,
        img_channel: int = 3,
        width: int = 32,
        middle_blk_num: int = 1,
        enc_blk_nums: Sequence[int] = (),
        dec_blk_nums: Sequence[int] = (),
        encoder_width: int = 32,
    ) -> None:
        super().__init__(2 * img_channel, img_channel, width, enc_blk_nums, middle_blk_num, dec_blk_nums)
        self.encoder = DegradationEncoder(img_channel, encoder_width, 4 * width)
        self.prompt = nn.Linear(4 * width, 4 * width)

    def recognise(self, mu: Tensor) -> tuple[Context, Tensor]:
        """The context of degraded images, and logits of the ten degradations and none."""
        code, logits = self.encoder(mu)
        return Context(prompt=self.prompt(code)), logits

    def embed(self, time: Time, context: Context | None = None) -> Embedding:
        """Scales and shifts of all blocks at a time, for images of a context."""
        e: Tensor = self.time_mlp(sinusoidal(time_tensor(time, self.intro.weight), self.width))
        if context is not None and context.prompt is not None:
            e = e + context.prompt
        return Embedding(torch.cat([block.modulation(e) for block in self._blocks()], dim=1))

    def forward(self, x: Tensor, mu: Tensor, time: Time, named: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """The prediction; with `named` also the logits of what the images suffer from."""
        context, logits = self.recognise(mu)
        y = self.evaluate(x, mu, self.embed(time, context))
        return (y, logits) if named else y
