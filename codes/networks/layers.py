"""Blocks that the networks share.

Images run through the networks in channels_last memory, so a (B,C,H,W) tensor is also, without a copy, a
(B,H*W,C) matrix of tokens: layer norms, 1x1 convolutions and attention work on that view. Parameter names are
those of the published checkpoints.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cpu import Convolution, add_, modulate_, silu_, stripes

Time = int | float | Tensor

NORM_EPS = 1e-5  # Differs from the published code, which uses 1e-3 in every dtype but float32.


class Context(NamedTuple):
    """What the contexts of an image contribute, the same at every time."""

    prompt: Tensor | None = None  # (B, D), added to the time embedding
    values: Tensor | None = None  # (B, sum of widths), what the cross attentions add to their tokens


class Embedding(NamedTuple):
    """Everything that a network evaluation needs besides the images."""

    modulation: Tensor  # (1 or B, sum of widths): scales and shifts of all blocks in order of execution
    values: Tensor | None = None


def time_tensor(time: Time, like: Tensor) -> Tensor:
    """A time as a 1-D tensor; a Python number goes straight to the dtype of `like`."""
    if isinstance(time, Tensor):
        if time.dim() > 1:
            raise ValueError(f"time: expected a number or a 1-D tensor, got a tensor of shape {tuple(time.shape)}")
        return time.reshape(-1).to(device=like.device, dtype=like.dtype)
    try:
        number = float(time)
    except (TypeError, ValueError):
        raise ValueError(f"time: expected a number or a 1-D tensor, got {time!r}") from None
    return torch.tensor([number], device=like.device, dtype=like.dtype)


def sinusoidal(t: Tensor, width: int) -> Tensor:
    """(B,) times -> (B, width): all sines, then all cosines."""
    half = width // 2
    steps = torch.arange(half, device=t.device, dtype=t.dtype)
    angles = t[:, None] * torch.exp(steps * (-math.log(10000.0) / (half - 1)))
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def check_images(x: Tensor, mu: Tensor | None, channels: int) -> None:
    if x.dim() != 4 or x.shape[1] != channels:
        raise ValueError(f"x: expected an image batch (B, {channels}, H, W), got shape {tuple(x.shape)}")
    if mu is not None and mu.shape != x.shape:
        raise ValueError(f"mu: expected the shape of x, {tuple(x.shape)}, got {tuple(mu.shape)}")


def check_batch(name: str, tensor: Tensor | None, batch: int) -> None:
    if tensor is not None and tensor.shape[0] not in (1, batch):
        raise ValueError(f"{name}: expected 1 or {batch} entries for {batch} images, got {tensor.shape[0]}")


def reflect_pad(x: Tensor, multiple: int) -> Tensor:
    """Pad right and bottom by reflection to a multiple; short sides are reflected repeatedly."""
    height, width = x.shape[-2:]
    bottom, right = -height % multiple, -width % multiple
    # Sides are not known yet in a trace: no branch may depend on them.
    if torch.jit.is_tracing():  # type: ignore[attr-defined]
        return x[:, :, _mirrored(height, bottom)][:, :, :, _mirrored(width, right)]
    return reflect_to(x, height + bottom, width + right)


def reflect_to(x: Tensor, height: int, width: int) -> Tensor:
    """Pad right and bottom by reflection to these sides, none of which is shorter than the image's."""
    bottom, right = height - x.shape[-2], width - x.shape[-1]
    if not (bottom or right):
        return x
    if bottom < x.shape[-2] and right < x.shape[-1]:
        return F.pad(x, (0, right, 0, bottom), mode="reflect")
    rows = _bounce(x.shape[-2], height, x.device)
    columns = _bounce(x.shape[-1], width, x.device)
    return x[:, :, rows][:, :, :, columns]


def _mirrored(side: int, more: int) -> Tensor:
    """Positions of a side, and of its reflection once after it."""
    return (side - 1 - (torch.arange(side + more) - (side - 1)).abs()).abs()


def _bounce(side: int, length: int, device: torch.device) -> Tensor:
    """0 1 2 1 0 1 ...: positions of a reflection that repeats as often as needed."""
    period = max(2 * (side - 1), 1)
    position = torch.arange(length, device=device) % period
    return torch.minimum(position, period - position) if side > 1 else torch.zeros_like(position)


def zero_pad(x: Tensor, multiple: int) -> Tensor:
    height, width = x.shape[-2:]
    return F.pad(x, (0, -width % multiple, 0, -height % multiple))


def tokens(x: Tensor) -> Tensor:
    """(B,C,H,W) -> (B,H*W,C), a view of channels_last memory."""
    return x.permute(0, 2, 3, 1).flatten(1, 2)


def image(y: Tensor, like: Tensor) -> Tensor:
    """(B,H*W,C) -> (B,C,H,W) of the size of `like`, a view in channels_last memory."""
    return y.unflatten(1, like.shape[-2:]).permute(0, 3, 1, 2)


class ChannelNorm(nn.Module):
    """LayerNorm over the channels of each pixel, without bias."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.normalized = (channels,)  # read from a tensor, it would be no constant in an exported graph
        self.g = nn.Parameter(torch.ones(1, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.on_tokens(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    def on_tokens(self, y: Tensor) -> Tensor:
        return F.layer_norm(y, self.normalized, self.g.flatten(), eps=NORM_EPS)


class Projection(nn.Module):
    """A bias-free 3x3 convolution under the name `proj`."""

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.proj = Convolution(width_in, width_out, 3, padding=1, bias=False)


class ResBlock(nn.Module):
    """Two convolutions; the time, if any, scales and shifts the result of the first one."""

    def __init__(self, width_in: int, width_out: int, time_width: int | None = None) -> None:
        super().__init__()
        self.width_out = width_out
        self.mlp = nn.Sequential(nn.SiLU(), nn.Linear(time_width, 2 * width_out)) if time_width else None
        self.block1 = Projection(width_in, width_out)
        self.block2 = Projection(width_out, width_out)
        self.res_conv = Convolution(width_in, width_out, 1, bias=False) if width_in != width_out else None

    def modulation(self, e: Tensor) -> Tensor:
        assert self.mlp is not None
        result: Tensor = self.mlp(e)
        return result

    def forward(self, inputs: Sequence[Tensor], modulation: Tensor | None = None) -> Tensor:
        """Of the concatenation of `inputs`, which is not made as a whole where that would be large."""
        x = inputs[0]
        pieces = stripes(x, self.width_out)
        if len(pieces) == 1:
            return self._convolve(_concatenated(inputs), modulation, slice(None))
        height = x.shape[-2]
        out = torch.empty(
            (len(x), self.width_out, *x.shape[-2:]),
            memory_format=torch.channels_last,
            dtype=x.dtype,
            device=x.device,
        )
        for n in range(len(x)):
            own = modulation if modulation is None or len(modulation) == 1 else modulation[n : n + 1]
            for top, bottom in pieces:
                # Each 3x3 convolution spoils a row at a cut.
                start, end = max(top - 2, 0), min(bottom + 2, height)
                part = _concatenated([i[n : n + 1, :, start:end] for i in inputs])
                out[n : n + 1, :, top:bottom] = self._convolve(part, own, slice(top - start, bottom - start))
        return out

    def _convolve(self, x: Tensor, modulation: Tensor | None, rows: slice) -> Tensor:
        h = silu_(self.block2.proj(silu_(self._first(x, modulation))))[:, :, rows]
        x = x[:, :, rows]
        return add_(h, x if self.res_conv is None else self.res_conv(x))

    def _first(self, x: Tensor, modulation: Tensor | None) -> Tensor:
        convolution = self.block1.proj
        weight = convolution.weight
        if modulation is None:
            result: Tensor = convolution(x)
            return result
        scale, shift = modulation.chunk(2, dim=1)
        if len(modulation) == 1 and x[0, 0].numel() > weight[0].numel():
            # One time for all images: changing the weights is less work than changing the result.
            return F.conv2d(x, weight * (1 + scale[0, :, None, None, None]), shift[0], padding=1)
        return modulate_(convolution(x), scale, shift)


def _concatenated(inputs: Sequence[Tensor]) -> Tensor:
    return inputs[0] if len(inputs) == 1 else torch.cat(list(inputs), dim=1)


def downsample(width_in: int, width_out: int, last: bool) -> nn.Conv2d:
    if last:
        return Convolution(width_in, width_out, 3, padding=1, bias=False)
    return Convolution(width_in, width_out, 4, stride=2, padding=1)


class Upsample(nn.Sequential):
    """Nearest neighbour x2, then a 3x3 convolution with bias (key `1`), at 4/9 of the multiplications.

    Pixel (2h+a, 2w+b) of the result sees only 2x2 pixels of the small image: those at h+a-1, h+a and w+b-1,
    w+b. Its kernel is the 3x3 one with the rows and columns summed that meet the same pixel.
    """

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__(nn.Upsample(scale_factor=2), nn.Conv2d(width_in, width_out, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        convolution = self[1]
        assert isinstance(convolution, nn.Conv2d)
        weight = convolution.weight
        first, second, third = weight.unbind(2)
        rows = (torch.stack([first, second + third], 2), torch.stack([first + second, third], 2))
        batch, _, height, columns = x.shape
        out = x.new_empty(batch, height, 2, columns, 2, len(weight))
        results = []
        for row_kernel in rows:
            left, middle, right = row_kernel.unbind(3)
            results.append(torch.stack([left, middle + right], 3))
            results.append(torch.stack([left + middle, right], 3))
        for phase, kernel in enumerate(results):
            a, b = divmod(phase, 2)
            y = F.conv2d(F.pad(x, (1 - b, b, 1 - a, a)), kernel, convolution.bias)
            out[:, :, a, :, b] = y.permute(0, 2, 3, 1)
        return out.flatten(3, 4).flatten(1, 2).permute(0, 3, 1, 2)


def upsample(width_in: int, width_out: int, last: bool) -> nn.Module:
    if last:
        return Convolution(width_in, width_out, 3, padding=1, bias=False)
    return Upsample(width_in, width_out)


def levels(
    widths: Sequence[int], attention: Callable[[int, int], nn.Module], time_width: int | None = None
) -> tuple[nn.ModuleList, nn.ModuleList]:
    """The way down and the way up of a U-Net: level i goes from width w_i down to w_{i+1}.

    attention   makes that of a width at a level
    """
    downs, ups, deepest = nn.ModuleList(), nn.ModuleList(), len(widths) - 2
    for i, (w, w_next) in enumerate(pairwise(widths)):
        blocks = [ResBlock(w, w, time_width), ResBlock(w, w, time_width)]
        downs.append(nn.ModuleList([*blocks, attention(w, i), downsample(w, w_next, last=i == deepest)]))
        blocks = [ResBlock(w_next + w, w_next, time_width), ResBlock(w_next + w, w_next, time_width)]
        ups.insert(0, nn.ModuleList([*blocks, attention(w_next, i), upsample(w_next, w, last=i == 0)]))
    return downs, ups


def level(modules: nn.Module) -> tuple[ResBlock, ResBlock, nn.Module, nn.Module]:
    """The parts of a U-Net level: two blocks, attention, change of resolution."""
    assert isinstance(modules, nn.ModuleList)
    block0, block1, attention, resize = modules
    assert isinstance(block0, ResBlock) and isinstance(block1, ResBlock)
    return block0, block1, attention, resize
