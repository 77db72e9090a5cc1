"""Blocks that the networks share.

Images run through the networks in channels_last memory, so a (B,C,H,W) tensor is also, without a copy, a
(B,H*W,C) matrix of tokens: layer norms, 1x1 convolutions and attention work on that view. Parameter names are
those of the published checkpoints.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Time = int | float | Tensor

NORM_EPS = 1e-5  # Differs from the published code, which uses 1e-3 in every dtype but float32.
HEADS, HEAD_WIDTH = 4, 32  # of linear attention, whatever its width
# Without gradients, image-sized tensors beyond this size are made piece by piece (256x256 pixels of 64
# channels are 16 MB): fresh memory costs more than the arithmetic on it, and pieces reuse memory that is in
# the cache already.
PIECE_BYTES = 4 << 20
CHUNK_TOKENS = 4096  # the same for linear attention, in pixels


class Context(NamedTuple):
    """What the contexts of an image contribute, the same at every time."""

    prompt: Tensor | None = None  # (B, D), added to the time embedding
    values: Tensor | None = None  # (B, sum of widths), what the cross attentions add to their tokens


class Embedding(NamedTuple):
    """Everything that a network evaluation needs besides the images."""

    modulation: Tensor  # (1 or B, sum of widths): scales and shifts of all blocks in order of execution
    values: Tensor | None = None


# Time.


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


# Images.


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
    if not (bottom or right):
        return x
    if bottom < height and right < width:
        return F.pad(x, (0, right, 0, bottom), mode="reflect")
    rows = _bounce(height, height + bottom, x.device)
    columns = _bounce(width, width + right, x.device)
    return x[:, :, rows][:, :, :, columns]


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


def stripes(x: Tensor, width: int) -> list[tuple[int, int]]:
    """Rows (from, to) of the pieces that `width` channels are worked on in; with gradients one piece."""
    height, columns = x.shape[-2:]
    rows = max(PIECE_BYTES // (x.element_size() * width * columns), 16)
    if torch.is_grad_enabled() or 2 * rows > height:
        return [(0, height)]
    return [(top, min(top + rows, height)) for top in range(0, height, rows)]


def add_(a: Tensor, b: Tensor) -> Tensor:
    """a + b; written into `a`, which must be nobody else's, where no gradient is recorded."""
    return a + b if torch.is_grad_enabled() or a.dtype != b.dtype else a.add_(b)


def silu_(x: Tensor) -> Tensor:
    return F.silu(x, inplace=not torch.is_grad_enabled())


def modulate_(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """x * (1 + scale) + shift; written into `x` where no gradient is recorded."""
    scale, shift = scale.to(x.dtype)[:, :, None, None], shift.to(x.dtype)[:, :, None, None]
    return torch.addcmul(shift, x, 1 + scale, out=None if torch.is_grad_enabled() else x)


def add_by_chunks_(y: Tensor, function: Callable[[Tensor], Tensor], chunk: int) -> Tensor:
    """y + function(y), tokens being independent; written into `y` where no gradient is recorded."""
    parts = y.split(chunk, dim=1)
    results = [add_(part, function(part)) for part in parts]
    return y if results[0] is parts[0] else torch.cat(results, dim=1)


# Blocks.


class Convolution(nn.Conv2d):
    """nn.Conv2d that keeps its weights in the CPU library's own layout as long as nobody changes them.

    Otherwise they are rearranged in every call, which at 128x128 pixels takes a tenth (U-Net) to a fifth
    (NAFNet) of the time. Nothing of this is saved, copied or seen from outside.
    """

    _packed: tuple[tuple[object, ...], Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        # A fused optimiser's writes are not counted: what is being trained is not packed.
        if self.training or not _packable(x, self.weight):
            return super().forward(x)
        # The weights are recognised as unchanged by their memory and by torch's count of writes to it.
        key = (self.weight.data_ptr(), self.weight._version)
        if self._packed is None or self._packed[0] != key:
            self._packed = (key, self._pack(x))
        geometry = (self._padding(), self.stride, self.dilation, self.groups)
        # What torch.compile uses on CPUs; unlike torch.mkldnn_convolution it keeps channels_last memory.
        return torch.ops.mkldnn._convolution_pointwise(x, self._packed[1], self.bias, *geometry, "none", [], "")

    def _pack(self, x: Tensor) -> Tensor:
        return torch.ops.aten.mkldnn_reorder_conv2d_weight(
            self.weight.detach().to_mkldnn(), self._padding(), self.stride, self.dilation, self.groups, x.shape
        )

    def _padding(self) -> tuple[int, ...]:
        assert not isinstance(self.padding, str)
        return self.padding

    def __getstate__(self) -> dict[str, object]:
        return {key: value for key, value in self.__dict__.items() if key != "_packed"}


def _packable(x: Tensor, weight: Tensor) -> bool:
    return (
        x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._is_tracing()
        and not torch.compiler.is_compiling()
        and torch.backends.mkldnn.is_available()
    )


class ChannelNorm(nn.Module):
    """LayerNorm over the channels of each pixel, without bias."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.g = nn.Parameter(torch.ones(1, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.on_tokens(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    def on_tokens(self, y: Tensor) -> Tensor:
        return F.layer_norm(y, y.shape[-1:], self.g.flatten(), eps=NORM_EPS)


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


class LinearAttention(nn.Module):
    """Attention linear in the number of pixels N: softmax of q over the channels of a head, of k over pixels.

    o_n = sum_m q_n . k_m v_m / N, then a 1x1 convolution and a channel norm. The sum over m is a small matrix
    per head, which is multiplied into the weights of that convolution: o itself never exists. k's softmax is
    taken with a running maximum, so that q, k and v exist for one chunk of pixels at a time (4 GB less at
    1024x1024).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.to_qkv = nn.Conv2d(width, 3 * HEADS * HEAD_WIDTH, 1, bias=False)
        self.to_out = nn.Sequential(nn.Conv2d(HEADS * HEAD_WIDTH, width, 1), ChannelNorm(width))

    def forward(self, x: Tensor, norm: ChannelNorm, values: Tensor | None = None) -> Tensor:
        """x + attention(norm(x)), chunk by chunk; without gradients it is written into x."""
        # Half precision ends here: v / N is far below what float16 can hold.
        with torch.autocast(x.device.type, enabled=False):
            y = tokens(x)
            parts = y.split(CHUNK_TOKENS, dim=1)
            weight = self.to_qkv.weight.flatten(1)
            query, key_value = weight.split([HEADS * HEAD_WIDTH, 2 * HEADS * HEAD_WIDTH])
            mixing = self._mixing(parts, norm, key_value) / y.shape[1]

            def attend(part: Tensor) -> Tensor:
                q = _heads(F.linear(norm.on_tokens(part.to(weight.dtype)), query)).softmax(-1).flatten(2)
                return self._out_norm().on_tokens(torch.baddbmm(self._bias(), q, mixing))

            return image(add_by_chunks_(y, attend, CHUNK_TOKENS), x)

    def _mixing(self, parts: tuple[Tensor, ...], norm: ChannelNorm, weight: Tensor) -> Tensor:
        """(B, heads * d, width): sum of softmax(k) v over pixels, times output weights and the scale of q."""
        top = total = product = torch.zeros((), device=weight.device, dtype=weight.dtype)
        for number, part in enumerate(parts):
            k, v = F.linear(norm.on_tokens(part.to(weight.dtype)), weight).chunk(2, dim=-1)
            highest = k.amax(1, keepdim=True)
            if number:
                highest = torch.maximum(highest, top)
            decay = (top - highest).exp() if number else torch.zeros_like(highest)
            k = (k - highest).exp()
            total = total * decay + k.sum(1, keepdim=True)
            sums = _heads(k).permute(0, 2, 3, 1) @ _heads(v).transpose(1, 2)
            product = product * _heads(decay).permute(0, 2, 3, 1) + sums
            top = highest
        product = product / _heads(total).permute(0, 2, 3, 1) * HEAD_WIDTH**-0.5
        out = self._out_conv().weight.flatten(1).t().unflatten(0, (HEADS, HEAD_WIDTH))
        return (product @ out).flatten(1, 2)

    def _out_conv(self) -> nn.Conv2d:
        conv = self.to_out[0]
        assert isinstance(conv, nn.Conv2d)
        return conv

    def _bias(self) -> Tensor:
        bias = self._out_conv().bias
        assert bias is not None
        return bias

    def _out_norm(self) -> ChannelNorm:
        norm = self.to_out[1]
        assert isinstance(norm, ChannelNorm)
        return norm


def _heads(y: Tensor) -> Tensor:
    return y.unflatten(-1, (HEADS, HEAD_WIDTH))


class SoftmaxAttention(nn.Module):
    """Full attention of the same shape, in the middle of the denoising U-Net."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.to_qkv = nn.Conv2d(width, 3 * HEADS * HEAD_WIDTH, 1, bias=False)
        self.to_out = nn.Conv2d(HEADS * HEAD_WIDTH, width, 1)

    def forward(self, x: Tensor, norm: ChannelNorm, values: Tensor | None = None) -> Tensor:
        y = F.linear(norm.on_tokens(tokens(x)), self.to_qkv.weight.flatten(1))
        q, k, v = y.unflatten(-1, (3, HEADS, HEAD_WIDTH)).permute(2, 0, 3, 1, 4)
        o = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + image(F.linear(o, self.to_out.weight.flatten(1), self.to_out.bias), x)


class TokenAttention(nn.Module):
    def __init__(self, width: int, context_width: int) -> None:
        super().__init__()
        self.heads = width // HEAD_WIDTH
        self.to_q = nn.Linear(width, width, bias=False)
        self.to_k = nn.Linear(context_width, width, bias=False)
        self.to_v = nn.Linear(context_width, width, bias=False)
        self.to_out = nn.Sequential(nn.Linear(width, width))

    def forward(self, y: Tensor) -> Tensor:
        """Self-attention."""
        q, k, v = (
            project(y).unflatten(-1, (self.heads, HEAD_WIDTH)).transpose(1, 2)
            for project in (self.to_q, self.to_k, self.to_v)
        )
        o = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        result: Tensor = self.to_out(o)
        return result

    def value(self, context: Tensor) -> Tensor:
        """Attention to a single token: the softmax over one key is 1, so only the value path is left.

        `to_q`, `to_k` and the norm in front have no influence; they exist because the checkpoints have them.
        """
        result: Tensor = self.to_out(self.to_v(context))
        return result


class GatedLinear(nn.Module):
    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width_in, 2 * width_out)

    def forward(self, y: Tensor) -> Tensor:
        value, gate = self.proj(y).chunk(2, dim=-1)
        return value * F.gelu(gate)


class FeedForward(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        # The identity stands where the published block has a dropout of 0: it keeps the index of the last
        # layer.
        self.net = nn.Sequential(GatedLinear(width, 4 * width), nn.Identity(), nn.Linear(4 * width, width))

    def forward(self, y: Tensor) -> Tensor:
        result: Tensor = self.net(y)
        return result


class TransformerBlock(nn.Module):
    def __init__(self, width: int, context_width: int) -> None:
        super().__init__()
        self.attn1 = TokenAttention(width, width)
        self.attn2 = TokenAttention(width, context_width)
        self.ff = FeedForward(width)
        self.norm1 = nn.LayerNorm(width, eps=NORM_EPS)
        self.norm2 = nn.LayerNorm(width, eps=NORM_EPS)
        self.norm3 = nn.LayerNorm(width, eps=NORM_EPS)

    def forward(self, y: Tensor, value: Tensor) -> Tensor:
        y = y + self.attn1(self.norm1(y)) + value[:, None].to(y.dtype)
        return add_by_chunks_(y, lambda part: self.ff(self.norm3(part)), CHUNK_TOKENS // 16)


class SpatialTransformer(nn.Module):
    """Self-attention between pixels, cross-attention to the image context (one token), feed-forward."""

    def __init__(self, width: int, context_width: int) -> None:
        super().__init__()
        if width % 32:
            raise ValueError(f"use_image_context: the deep widths must be multiples of 32, got {width}")
        self.norm = nn.GroupNorm(32, width, eps=1e-6)
        self.proj_in = nn.Conv2d(width, width, 1)
        self.transformer_blocks = nn.ModuleList([TransformerBlock(width, context_width)])
        self.proj_out = nn.Conv2d(width, width, 1)
        nn.init.zeros_(self.proj_out.weight)
        nn.init.zeros_(self.proj_out.bias)  # type: ignore[arg-type]

    @property
    def block(self) -> TransformerBlock:
        block = self.transformer_blocks[0]
        assert isinstance(block, TransformerBlock)
        return block

    def forward(self, x: Tensor, norm: ChannelNorm, values: Tensor | None = None) -> Tensor:
        assert values is not None
        x_normed = norm(x)
        y = tokens(self.norm(x_normed))
        y = F.linear(y, self.proj_in.weight.flatten(1), self.proj_in.bias)
        y = self.block(y, values)
        y = F.linear(y, self.proj_out.weight.flatten(1), self.proj_out.bias)
        return x + x_normed + image(y, x)  # the published block adds its own, normalised input


Attention = LinearAttention | SoftmaxAttention | SpatialTransformer


class PreNorm(nn.Module):
    def __init__(self, width: int, attention: Attention) -> None:
        super().__init__()
        self.norm = ChannelNorm(width)
        self.fn = attention


class Residual(nn.Module):
    """x + attention(norm(x)), under the published names `fn.norm` and `fn.fn`."""

    def __init__(self, width: int, attention: Attention) -> None:
        super().__init__()
        self.fn = PreNorm(width, attention)

    @property
    def attention(self) -> Attention:
        return self.fn.fn

    def forward(self, x: Tensor, values: Tensor | None = None) -> Tensor:
        return self.attention.forward(x, self.fn.norm, values)


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


def level(modules: nn.Module) -> tuple[ResBlock, ResBlock, nn.Module, nn.Module]:
    """The parts of a U-Net level: two blocks, attention, change of resolution."""
    assert isinstance(modules, nn.ModuleList)
    block0, block1, attention, resize = modules
    assert isinstance(block0, ResBlock) and isinstance(block1, ResBlock)
    return block0, block1, attention, resize
