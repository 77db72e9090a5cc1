"""What makes the networks fast on a CPU: packed convolution weights, and image-sized work in pieces.

This is the only file that calls private operators of torch (those of oneDNN, the CPU library). PACKING is their switch:
where it is off, where a torch release lacks them, and wherever they do not apply, a `Convolution` is a plain
`nn.Conv2d` with the same result.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def _operators_exist() -> bool:
    return (
        torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.aten, "mkldnn_reorder_conv2d_weight")
        and hasattr(torch.ops.mkldnn, "_convolution_pointwise")
        and hasattr(torch.ops.mkldnn, "_get_mkldnn_serialized_md")
        and hasattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported")
    )


PACKING = _operators_exist()
# How the weights of a layer are arranged: as they are, or for the results of `shuffled` and `by_blocks`.
Arrangement = Literal["plain", "runs", "blocks"]
# A layer has one or two layouts in practice; the limits only keep a long run over many sizes from collecting memory.
MOST_LAYOUTS = 4
MOST_SIZES = 256

# Without gradients, image-sized tensors beyond this size are made piece by piece (256x256 pixels of 64 channels are
# 16 MB): fresh memory costs more than the arithmetic on it, and pieces reuse memory that is in the cache already.
PIECE_BYTES = 4 << 20
CHUNK_TOKENS = 4096  # the same for attention, in pixels


class Convolution(nn.Conv2d):
    """nn.Conv2d that keeps its weights in oneDNN's layouts until they change.

    nn.Conv2d rearranges them in every call, which at 128x128 pixels takes a tenth (U-Net) to a fifth (NAFNet) of the
    time, and under autocast converts them in every call as well. The packed weights are not saved, not copied and not
    part of the state dict.
    """

    _packed: "PackedWeights | None" = None

    def forward(self, x: Tensor) -> Tensor:
        dtype = None if self.training else _packed_dtype(x, self.weight)
        if dtype is None:
            return super().forward(x)
        weight, bias = self._packed_for(x, dtype)
        # What torch.compile uses on CPUs; unlike torch.mkldnn_convolution it keeps channels_last memory.
        return torch.ops.mkldnn._convolution_pointwise(x.to(dtype), weight, bias, *self._geometry, "none", [], "")

    def added_(self, y: Tensor, h: Tensor, scale: Tensor) -> Tensor:
        """y + scale * self(h), for a scale (1, C, 1, 1); written into `y`, which nothing else may use, where it can."""
        dtype = None if self.training else _packed_dtype(h, self.weight)
        if dtype is None or y.dtype != dtype:
            return torch.addcmul(y, self(h), scale.to(y.dtype))
        weight, bias = self._packed_for(h, dtype, scale)
        return _add_convolution(y, h.to(dtype), weight, bias, self._geometry, in_place=True)

    def added_per_image(self, y: Tensor, h: Tensor, scale: Tensor, channels: Tensor) -> Tensor:
        """y + scale * self(channels * h) for one image and channels (1, C, 1, 1); scales the weights, not the image."""
        weight, bias = self.weight * channels, self.bias
        if _packed_dtype(h, self.weight) is None or y.dtype != h.dtype:
            return torch.addcmul(y, F.conv2d(h, weight, bias), scale.to(y.dtype))
        assert bias is not None
        weight, bias = weight * scale.view(-1, 1, 1, 1), bias * scale.flatten()
        return _add_convolution(y, h, weight.to(h.dtype), bias.to(h.dtype), self._geometry, in_place=False)

    def shuffled(self, x: Tensor, added: Tensor) -> Tensor:
        """nn.PixelShuffle(2) of self(x), plus `added`.

        Packed weights give the channels of a pixel of the result next to each other, so that whole pixels are moved,
        while they are added: four times faster than moving single numbers.
        """
        dtype = None if self.training else _packed_dtype(x, self.weight)
        if dtype is None:
            y = self(x).permute(0, 2, 3, 1).unflatten(-1, (-1, 2, 2)).permute(0, 1, 4, 2, 5, 3)
            return add_(y.flatten(1, 2).flatten(2, 3).permute(0, 3, 1, 2), added)
        weight, bias = self._packed_for(x, dtype, arrangement="runs")
        y = torch.ops.mkldnn._convolution_pointwise(x.to(dtype), weight, bias, *self._geometry, "none", [], "")
        y = y.permute(0, 2, 3, 1).unflatten(-1, (2, 2, -1)).permute(0, 1, 3, 2, 4, 5)
        places = added.permute(0, 2, 3, 1).unflatten(1, (-1, 2)).unflatten(3, (-1, 2))
        return (y + places).flatten(1, 2).flatten(2, 3).permute(0, 3, 1, 2)

    def by_blocks(self, x: Tensor) -> Tensor:
        """self(x) of a convolution with fewer outputs than a vector has places, twice as fast.

        Blocks of 2x2 pixels are computed at once, as four times as many outputs of a kernel one pixel larger.
        """
        dtype = None if self.training else _packed_dtype(x, self.weight)
        if dtype is None or x.shape[-2] % 2 or x.shape[-1] % 2:
            return self(x)
        weight, bias = self._packed_for(x, dtype, arrangement="blocks")
        rest: tuple[Any, ...] = (self.padding, (2, 2), self.dilation, self.groups, "none", [], "")
        y = torch.ops.mkldnn._convolution_pointwise(x.to(dtype), weight, bias, *rest)
        y = y.permute(0, 2, 3, 1).unflatten(-1, (2, 2, -1)).permute(0, 5, 1, 3, 2, 4)
        return y.flatten(4, 5).flatten(2, 3)

    def _packed_for(
        self, x: Tensor, dtype: torch.dtype, scale: Tensor | None = None, arrangement: Arrangement = "plain"
    ) -> tuple[Tensor, Tensor | None]:
        """Weights and bias for an input's size, multiplied by a scale of the output's channels."""
        # Unchanged weights have the same memory and the same count of writes to it. The writes of a fused optimiser
        # are not counted, so a network in training is not packed.
        weight, bias = self.weight, self.bias
        version: Version = (arrangement, weight.data_ptr(), weight._version)
        for tensor in (bias, scale):
            if tensor is not None:
                version = (*version, tensor.data_ptr(), tensor._version)
        packed = self._packed
        if packed is None or packed.version != version:
            packed = self._packed = PackedWeights(version)
        size = (x.shape, dtype)
        found = packed.by_size.get(size)
        if found is None:
            stride = (2, 2) if arrangement == "blocks" else self.stride
            plain = _arranged(weight.detach(), arrangement) if scale is None else weight * scale.view(-1, 1, 1, 1)
            found = torch.ops.aten.mkldnn_reorder_conv2d_weight(
                plain.detach().to(dtype).to_mkldnn(), self.padding, stride, self.dilation, self.groups, x.shape
            )
            packed.add(size, found)
        if dtype not in packed.biases:
            own = bias if scale is None or bias is None else bias * scale.flatten()
            packed.biases[dtype] = None if own is None else _arranged(own.detach(), arrangement).to(dtype)
        return found, packed.biases[dtype]

    @property
    def _geometry(self) -> tuple[Any, ...]:
        return self.padding, self.stride, self.dilation, self.groups

    def __getstate__(self) -> dict[str, object]:
        return {key: value for key, value in self.__dict__.items() if key != "_packed"}


def _arranged(parameter: Tensor, arrangement: Arrangement) -> Tensor:
    """Weights, or a bias, for the results of `shuffled` and `by_blocks`; both begin with the place in a 2x2 block."""
    if arrangement == "runs":
        return parameter.unflatten(0, (-1, 2, 2)).movedim(0, 2).flatten(0, 2)
    if arrangement == "blocks" and parameter.dim() == 1:
        return parameter.repeat(4)
    if arrangement == "blocks":
        return torch.cat([F.pad(parameter, (b, 1 - b, a, 1 - a)) for a in range(2) for b in range(2)])
    return parameter


def _add_convolution(
    y: Tensor, h: Tensor, weight: Tensor, bias: Tensor | None, geometry: tuple[Any, ...], *, in_place: bool
) -> Tensor:
    """y + the convolution of h, in one pass over memory."""
    rest = (weight, bias, *geometry, "add", 1.0, None, [], None)
    if in_place:
        return torch.ops.mkldnn._convolution_pointwise_.binary(y, h, *rest)
    return torch.ops.mkldnn._convolution_pointwise.binary(h, y, *rest)


Version = tuple[str | int, ...]


class PackedWeights:
    """The weights of a layer in the layout that oneDNN prefers for each size of the input.

    The preference depends on the size: for deep 1x1 convolutions it differs between 16x16 and 32x32 pixels. Weights in
    another layout give the same result, but are rearranged in every call, four times slower than plain ones. So every
    size is packed once, and sizes that prefer the same layout share one tensor.
    """

    def __init__(self, version: Version) -> None:
        self.version = version
        self.by_size: dict[tuple[torch.Size, torch.dtype], Tensor] = {}
        self.by_layout: dict[bytes, Tensor] = {}
        self.biases: dict[torch.dtype, Tensor | None] = {}

    def add(self, size: tuple[torch.Size, torch.dtype], weight: Tensor) -> None:
        layout = _layout(weight)
        if len(self.by_size) >= MOST_SIZES or (len(self.by_layout) >= MOST_LAYOUTS and layout not in self.by_layout):
            self.by_size.clear()
            self.by_layout.clear()
        self.by_size[size] = self.by_layout.setdefault(layout, weight)


def _layout(packed: Tensor) -> bytes:
    """The memory layout of a packed tensor: oneDNN's own descriptor.

    Two gaps of the C struct, after the number of dimensions and after the data type, have arbitrary content.
    """
    descriptor = bytes(torch.ops.mkldnn._get_mkldnn_serialized_md(packed).tolist())
    return descriptor[:4] + descriptor[8:108] + descriptor[112:]


def _packed_dtype(x: Tensor, weight: Tensor) -> torch.dtype | None:
    """The dtype of a packed convolution, float32 or autocast's bfloat16; None where the plain one is to be used."""
    if (
        torch.compiler.is_compiling()  # first: torch.compile cannot read some of the others
        or not PACKING
        or x.device.type != "cpu"
        or weight.dtype != torch.float32
        or weight.is_inference()  # made in inference mode: torch does not count the writes to it
        or torch.is_grad_enabled()
        or torch._C._is_tracing()
    ):
        return None
    if not torch.is_autocast_enabled("cpu"):
        return torch.float32 if x.dtype == torch.float32 else None
    half = torch.get_autocast_dtype("cpu") == torch.bfloat16 and x.dtype in (torch.bfloat16, torch.float32)
    return torch.bfloat16 if half and _packs_bf16() else None


@functools.cache
def _packs_bf16() -> bool:
    """Processors with AVX2 alone compute in bf16, slowly, but do not pack."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def stripes(x: Tensor, width: int) -> list[tuple[int, int]]:
    """Rows (from, to) of the pieces in which `width` channels are computed; with gradients one piece."""
    height, columns = x.shape[-2:]
    rows = max(PIECE_BYTES // (x.element_size() * width * columns), 16)
    if torch.is_grad_enabled() or 2 * rows > height:
        return [(0, height)]
    return [(top, min(top + rows, height)) for top in range(0, height, rows)]


def chunks(y: Tensor, share: int = 1) -> tuple[Tensor, ...]:
    """Tokens (B, N, C) in pieces of CHUNK_TOKENS / share along N."""
    return y.split(CHUNK_TOKENS // share, dim=1)


def add_by_chunks_(y: Tensor, function: Callable[[Tensor], Tensor], share: int = 1) -> Tensor:
    """y + function(y) for a function of single tokens; written into `y` where no gradient is recorded."""
    parts = chunks(y, share)
    results = [add_(part, function(part)) for part in parts]
    return y if results[0] is parts[0] else torch.cat(results, dim=1)


def add_(a: Tensor, b: Tensor) -> Tensor:
    """a + b; written into `a`, which nothing else may use, where no gradient is recorded."""
    return a + b if torch.is_grad_enabled() or a.dtype != b.dtype else a.add_(b)


def gelu_(x: Tensor) -> Tensor:
    """GELU; written into `x` where it can.

    On CPUs torch's own rounds the last numbers of each thread's share otherwise than the rest, so that the result would
    depend on the number of threads. Its erf does not.
    """
    if torch.is_grad_enabled() or x.device.type != "cpu" or x.dtype != torch.float32:
        return F.gelu(x)
    return x.mul_((x * math.sqrt(0.5)).erf_().add_(1).mul_(0.5))


def silu_(x: Tensor) -> Tensor:
    return F.silu(x, inplace=not torch.is_grad_enabled())


def modulate_(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """x * (1 + scale) + shift; written into `x` where no gradient is recorded."""
    scale, shift = scale.to(x.dtype)[:, :, None, None], shift.to(x.dtype)[:, :, None, None]
    return torch.addcmul(shift, x, 1 + scale, out=None if torch.is_grad_enabled() else x)
