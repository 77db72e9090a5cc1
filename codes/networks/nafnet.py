"""The NAFNet of Refusion, with its latent and its denoising variant."""

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cpu import Convolution, modulate_, stripes
from .layers import (
    NORM_EPS,
    ChannelNorm,
    Context,
    Embedding,
    Time,
    check_batch,
    check_images,
    sinusoidal,
    time_tensor,
    zero_pad,
)


class SimpleGate(nn.Module):
    """First half of the channels times the second half."""

    def forward(self, x: Tensor) -> Tensor:
        a, b = x.chunk(2, dim=1)
        return a * b


class NAFBlock(nn.Module):
    def __init__(self, width: int, time_width: int) -> None:
        super().__init__()
        self.width = width
        self.mlp = nn.Sequential(SimpleGate(), nn.Linear(time_width // 2, 4 * width))
        self.conv1 = Convolution(width, 2 * width, 1)
        self.conv2 = Convolution(2 * width, 2 * width, 3, padding=1, groups=2 * width)
        self.conv3 = Convolution(width, width, 1)
        self.sca = nn.Sequential(nn.AdaptiveAvgPool2d(1), Convolution(width, width, 1))
        self.conv4 = Convolution(width, 2 * width, 1)
        self.conv5 = Convolution(width, width, 1)
        self.sg = SimpleGate()
        self.norm1 = ChannelNorm(width)
        self.norm2 = ChannelNorm(width)
        self.beta = nn.Parameter(torch.zeros(1, width, 1, 1))
        self.gamma = nn.Parameter(torch.zeros(1, width, 1, 1))

    def modulation(self, e: Tensor) -> Tensor:
        result: Tensor = self.mlp(e)
        return result

    def forward(self, x: Tensor, modulation: Tensor) -> Tensor:
        first, second = modulation.chunk(2, dim=1)
        pieces = stripes(x, 2 * self.width)
        if len(pieces) == 1:
            h = self._mix(x, first)
            return self._combine(x, h, self.sca(h), second)
        # Differs from the line above only in what is in memory at a time.
        out = torch.empty_like(x)
        for top, bottom in pieces:
            start, end = max(top - 1, 0), min(bottom + 1, x.shape[-2])
            h = self._mix(x[:, :, start:end], first)
            out[:, :, top:bottom] = h[:, :, top - start : bottom - start]
        attention = self.sca(out)
        for top, bottom in pieces:
            rows = slice(top, bottom)
            out[:, :, rows] = self._combine(x[:, :, rows], out[:, :, rows], attention, second)
        return out

    def _mix(self, x: Tensor, modulation: Tensor) -> Tensor:
        h = _modulated(self.norm1, x, modulation)
        h = self.sg(self.conv2(self.conv1(h)))
        return h

    def _combine(self, x: Tensor, h: Tensor, attention: Tensor, modulation: Tensor) -> Tensor:
        """Everything after the mean over all pixels, from which `attention` is made; pixel by pixel."""
        learning = torch.is_grad_enabled()
        if not learning and len(x) == 1 and x[0, 0].numel() > 8 * self.width:
            y = self.conv3.added_per_image(x, h, self.beta, attention)
        else:
            y = _add_scaled(x, self.conv3, self.beta, h * attention)
        h = self.sg(self.conv4(_modulated(self.norm2, y, modulation)))
        # `y` is this block's own, `x` may be a skip connection.
        return _add_scaled(y, self.conv5, self.gamma, h) if learning else self.conv5.added_(y, h, self.gamma)


def _add_scaled(x: Tensor, conv: Convolution, scale: nn.Parameter, h: Tensor) -> Tensor:
    """x + scale * conv(h); in training the scale is a part of the weights: 1.2 times as many patches per second."""
    if not torch.is_grad_enabled():
        return torch.addcmul(x, conv(h), scale.to(x.dtype))
    assert conv.bias is not None
    return x + F.conv2d(h, conv.weight * scale.view(-1, 1, 1, 1), conv.bias * scale.flatten())


def _modulated(norm: ChannelNorm, x: Tensor, modulation: Tensor) -> Tensor:
    """norm(x) * (1 + scale) + shift; with one time for all images it is the norm's own weight and bias."""
    shift, scale = modulation.chunk(2, dim=1)
    if len(modulation) == 1:
        weight = norm.g.flatten() * (1 + scale[0])
        y, channels = x.permute(0, 2, 3, 1), int(x.shape[1])
        if x.dtype == torch.bfloat16 and channels < 128 and not torch.is_grad_enabled():
            y = y.float()  # torch's norm of short bf16 rows is slower than that of float32 and both conversions
        y = F.layer_norm(y, (channels,), weight, shift[0].to(weight), NORM_EPS).to(x.dtype)
        return y.permute(0, 3, 1, 2)
    return modulate_(norm(x), scale, shift)


class NAFNet(nn.Module):
    """The NAFNet of Refusion: encoder stages at halving resolution, middle, decoder stages; skips are added.

    upscale          in the published option files, without effect
    intro_residual   add the result of the first convolution before the last one, as in latent dehazing
    """

    takes_mu = True
    pad = staticmethod(zero_pad)  # to sides that the stages can halve, as published
    # Peak memory of one evaluation in float32: measured between 256 and 512 pixels as 3.2 copies of the widest
    # full-size feature map, with a margin.
    copies_in_memory = 4.5

    def __init__(
        self,
        img_channel: int = 3,
        width: int = 16,
        middle_blk_num: int = 1,
        enc_blk_nums: Sequence[int] = (),
        dec_blk_nums: Sequence[int] = (),
        upscale: int = 1,
        *,
        intro_residual: bool = False,
    ) -> None:
        super().__init__()
        if width < 4 or width % 2:
            raise ValueError(f"width: expected an even number of at least 4, got {width}")
        if len(enc_blk_nums) != len(dec_blk_nums):
            raise ValueError(
                f"dec_blk_nums: expected {len(enc_blk_nums)} stages like enc_blk_nums, got {len(dec_blk_nums)}"
            )
        in_channels = img_channel * (2 if self.takes_mu else 1)
        self.in_channels, self.width, self.stages = in_channels, width, len(enc_blk_nums)
        self.intro_residual = intro_residual
        time_width = 4 * width
        self.time_mlp = nn.Sequential(
            nn.Identity(), nn.Linear(width, 2 * time_width), SimpleGate(), nn.Linear(time_width, time_width)
        )

        def stage(count: int, channels: int) -> nn.ModuleList:
            return nn.ModuleList(NAFBlock(channels, time_width) for _ in range(count))

        self.intro = Convolution(in_channels, width, 3, padding=1)
        self.ending = Convolution(width, img_channel, 3, padding=1)
        self.encoders = nn.ModuleList()
        self.downs = nn.ModuleList()
        self.ups = nn.ModuleList()
        self.decoders = nn.ModuleList()
        channels = width
        for count in enc_blk_nums:
            self.encoders.append(stage(count, channels))
            self.downs.append(Convolution(channels, 2 * channels, 2, stride=2))
            channels *= 2
        self.middle_blks = stage(middle_blk_num, channels)
        for count in dec_blk_nums:
            self.ups.append(nn.Sequential(Convolution(channels, 2 * channels, 1, bias=False), nn.PixelShuffle(2)))
            channels //= 2
            self.decoders.append(stage(count, channels))

    @property
    def bytes_per_pixel(self) -> float:
        """Estimated peak memory of one evaluation, per pixel of the image."""
        return 4 * self.copies_in_memory * self.width

    def embed_context(self, text_context: Tensor | None = None, image_context: Tensor | None = None) -> Context:
        for name, context in (("text_context", text_context), ("image_context", image_context)):
            if context is not None:
                raise ValueError(f"{name}: a NAFNet takes none")
        return Context()

    def embed(self, time: Time, context: Context | None = None) -> Embedding:
        """Scales and shifts of all blocks at a time, for images with a context."""
        e: Tensor = self.time_mlp(sinusoidal(time_tensor(time, self.intro.weight), self.width))
        if context is not None and context.prompt is not None:
            e = e + context.prompt
        return Embedding(torch.cat([block.modulation(e) for block in self._blocks()], dim=1))

    def _blocks(self) -> Iterator[NAFBlock]:
        """In order of execution."""
        for stage in [*self.encoders, self.middle_blks, *self.decoders]:
            yield from stage

    def evaluate(self, x: Tensor, mu: Tensor | None, embedding: Embedding) -> Tensor:
        check_images(x, mu, self.in_channels // (2 if self.takes_mu else 1))
        check_batch("time", embedding.modulation, len(x))
        height, width = x.shape[-2:]
        modulations = iter(embedding.modulation.split([4 * block.width for block in self._blocks()], dim=1))

        x = x if mu is None else torch.cat([x - mu, mu], dim=1)
        x = self.pad(x, 2**self.stages).contiguous(memory_format=torch.channels_last)
        x = self.intro(x)
        intro = x if self.intro_residual else None
        skips = []
        for stage, down in zip(self.encoders, self.downs):
            for block in stage:  # type: ignore[attr-defined]
                x = block(x, next(modulations))
            skips.append(x)
            x = down(x)
        for block in self.middle_blks:
            x = block(x, next(modulations))
        for stage, up in zip(self.decoders, self.ups):
            x = up[0].shuffled(x, skips.pop())  # type: ignore[index]
            for block in stage:  # type: ignore[attr-defined]
                x = block(x, next(modulations))
        x = self.ending.by_blocks(x if intro is None else x + intro)
        return x[:, :, :height, :width].contiguous()

    def forward(self, x: Tensor, mu: Tensor, time: Time) -> Tensor:
        return self.evaluate(x, mu, self.embed(time))


class DenoisingNAFNet(NAFNet):
    """The NAFNet of denoising-sde, which sees no degraded image."""

    takes_mu = False

    def forward(self, x: Tensor, time: Time) -> Tensor:  # type: ignore[override]
        return self.evaluate(x, None, self.embed(time))
