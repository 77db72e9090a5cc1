"""A NAFNet that first recognises what is wrong with an image.

The degradation of an image, and how bright and clear all of it is, follow from the degraded image alone and are the
same at every time of a sampling run. A small encoder computes them once, as a code that is added to the time embedding
and so scales and shifts every block, like DA-CLIP's degradation features in its U-Net. The encoder is trained together
with the network: by the restoration, and by classifying the degradation.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from .cpu import Convolution, add_, gelu_
from .layers import ChannelNorm, Context, Time, reflect_pad
from .nafnet import NAFNet, SimpleGate

KINDS = 11  # the ten degradations, and none
EPS = 1e-6  # keeps the gradient of a standard deviation finite
# Without gradients, images of more than WHOLE pixels are encoded in bands of about BAND pixels, so that the encoder
# needs less memory than the network, which then computes in tiles.
WHOLE, BAND = 2 << 20, 1 << 20


class DegradationEncoder(nn.Module):
    """From a degraded image to its code (B, width) and to logits (B, 11) of its degradation.

    Five convolutions, each at half the resolution of the previous one and followed by a residual layer that mixes the
    channels of a pixel. Only mean and standard deviation of their features over the image are used, from fine grain to
    large areas: an image of any size has a code, and the code of a part is close to that of the whole.
    """

    def __init__(self, channels: int, width: int, code: int) -> None:
        super().__init__()
        widths = (channels, *(width * k for k in range(1, 6)))
        self.stages = nn.ModuleList(Convolution(a, b, 3, stride=2, padding=1) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(ChannelNorm(b) for b in widths[1:])
        # Called one by one, for a GELU that does not depend on the number of threads.
        self.mixers = nn.ModuleList(
            nn.Sequential(Convolution(b, 2 * b, 1), nn.GELU(), Convolution(2 * b, b, 1)) for b in widths[1:]
        )
        total = 2 * (channels + sum(widths[1:]))
        self.mix = nn.Sequential(nn.Linear(total, 2 * code), SimpleGate(), nn.Linear(code, code))
        self.name = nn.Linear(code, KINDS)

    def forward(self, mu: Tensor) -> tuple[Tensor, Tensor]:
        if torch.is_grad_enabled() or mu.shape[-2] * mu.shape[-1] <= WHOLE:
            found = [_statistics(x) for x in self._features(mu)]
        else:
            found = self._statistics_by_bands(mu)
        code: Tensor = self.mix(torch.cat(found, dim=1))
        return code, self.name(code)

    def _features(self, mu: Tensor) -> Iterator[Tensor]:
        """The image itself, then the features of each convolution."""
        x = mu.contiguous(memory_format=torch.channels_last)
        yield x
        for convolution, norm, mixer in zip(self.stages, self.norms, self.mixers, strict=True):
            x = gelu_(norm(convolution(x)))
            first, _, second = mixer.children()
            x = add_(x, second(gelu_(first(x))))
            yield x

    def _statistics_by_bands(self, mu: Tensor) -> list[Tensor]:
        """The statistics of the whole image, up to rounding, from one horizontal band of it after the other.

        A 3x3 convolution of stride 2 needs one row above its band. Each band therefore starts as many rows earlier as
        make one row of the coarsest features, and those rows are left out of the statistics.
        """
        height, width = mu.shape[-2:]
        step = 2 ** len(self.stages)
        rows = max(BAND // width // step, 1) * step
        moments = [Moments() for _ in range(len(self.stages) + 1)]
        for top in range(0, height, rows):
            lead = min(step, top)
            band = mu[:, :, top - lead : top + rows]
            for scale, (moment, x) in enumerate(zip(moments, self._features(band), strict=True)):
                moment.add(x[:, :, lead >> scale :])
        return [moment.statistics() for moment in moments]


class Moments:
    """Mean and variance over an image of which one part after the other is added (Chan et al. 1979)."""

    def __init__(self) -> None:
        self.count = 0
        self.dtype = torch.float32
        self.mean: Tensor | float = 0.0  # (B, C)
        self.squares: Tensor | float = 0.0  # sum of squared deviations from the mean

    def add(self, x: Tensor) -> None:
        self.dtype = torch.promote_types(x.dtype, torch.float32)
        flat = x.to(self.dtype).flatten(2)
        mean = flat.mean(2)
        squares = (flat - mean[:, :, None]).square_().sum(2).double()
        new, delta = flat.shape[2], mean.double() - self.mean
        total = self.count + new
        self.squares = self.squares + squares + delta.square() * (self.count * new / total)
        self.mean = self.mean + delta * (new / total)
        self.count = total

    def statistics(self) -> Tensor:
        """As `_statistics` of the whole."""
        assert isinstance(self.mean, Tensor) and isinstance(self.squares, Tensor)
        return torch.cat([self.mean, (self.squares / self.count + EPS).sqrt()], dim=1).to(self.dtype)


def _statistics(x: Tensor) -> Tensor:
    """Mean and standard deviation over the image, (B, 2 C), in float32 at least: small differences matter."""
    flat = x.to(torch.promote_types(x.dtype, torch.float32)).flatten(2)
    mean = flat.mean(2)
    return torch.cat([mean, ((flat - mean[:, :, None]).square().mean(2) + EPS).sqrt()], dim=1)


class CodedNAFNet(NAFNet):
    """Refusion's NAFNet, with a code of the degradation added to the time embedding."""

    # A black border looks like a hole or a shadow, and spoils the image around it.
    pad = staticmethod(reflect_pad)

    def __init__(
        self,
        img_channel: int = 3,
        width: int = 32,
        middle_blk_num: int = 1,
        enc_blk_nums: Sequence[int] = (),
        dec_blk_nums: Sequence[int] = (),
        encoder_width: int = 32,
    ) -> None:
        super().__init__(img_channel, width, middle_blk_num, enc_blk_nums, dec_blk_nums)
        self.encoder = DegradationEncoder(img_channel, encoder_width, 4 * width)
        self.prompt = nn.Linear(4 * width, 4 * width)

    def recognise(self, mu: Tensor) -> tuple[Context, Tensor]:
        """The context of degraded images, and logits of the ten degradations and of none."""
        code, logits = self.encoder(mu)
        return Context(prompt=self.prompt(code)), logits

    def forward(  # type: ignore[override]
        self, x: Tensor | None, mu: Tensor, time: Time, named: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """The prediction; with `named` also the logits of the degradations; without a state `x` the logits alone."""
        context, logits = self.recognise(mu)
        if x is None:
            return logits
        y = self.evaluate(x, mu, self.embed(time, context))
        return (y, logits) if named else y
