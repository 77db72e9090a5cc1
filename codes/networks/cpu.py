"""What makes the networks fast on a CPU: packed convolution weights, and image-sized work in pieces.

This is the only file that calls private operators of torch (those of oneDNN, the CPU library). PACKING is their switch:
where it is off, where a torch release lacks them, and wherever they do not apply, a `Convolution` is a plain
`nn.Conv2d` with the same result.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def _operators_exist() -> bool:
    return (
        torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.aten, "mkldnn_reorder_conv2d_weight")
        and hasattr(torch.ops.mkldnn, "_convolution_pointwise")
        and hasattr(torch.ops.mkldnn, "_get_mkldnn_serialized_md")
    )


PACKING = _operators_exist()
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
    time. The packed weights are not saved, not copied and not part of the state dict.
    """

    _packed: "PackedWeights | None" = None

    def forward(self, x: Tensor) -> Tensor:
        # The writes of a fused optimiser are not counted, so a network in training is not packed.
        if self.training or not _packable(x, self.weight):
            return super().forward(x)
        # Unchanged weights have the same memory and the same count of writes to it.
        version = (self.weight.data_ptr(), self.weight._version)
        if self._packed is None or self._packed.version != version:
            self._packed = PackedWeights(version)
        weight = self._packed.by_size.get(x.shape)
        if weight is None:
            weight = self._packed.add(x.shape, self._pack(x))
        geometry = (self._padding(), self.stride, self.dilation, self.groups)
        # What torch.compile uses on CPUs; unlike torch.mkldnn_convolution it keeps channels_last memory.
        return torch.ops.mkldnn._convolution_pointwise(x, weight, self.bias, *geometry, "none", [], "")

    def _pack(self, x: Tensor) -> Tensor:
        return torch.ops.aten.mkldnn_reorder_conv2d_weight(
            self.weight.detach().to_mkldnn(), self._padding(), self.stride, self.dilation, self.groups, x.shape
        )

    def _padding(self) -> tuple[int, ...]:
        assert not isinstance(self.padding, str)
        return self.padding

    def __getstate__(self) -> dict[str, object]:
        return {key: value for key, value in self.__dict__.items() if key != "_packed"}


class PackedWeights:
    """The weights of a layer in the layout that oneDNN prefers for each size of the input.

    The preference depends on the size: for deep 1x1 convolutions it differs between 16x16 and 32x32 pixels. Weights in
    another layout give the same result, but are rearranged in every call, four times slower than plain ones. So every
    size is asked for once, and sizes that prefer the same layout share one tensor.
    """

    def __init__(self, version: tuple[int, int]) -> None:
        self.version = version
        self.by_size: dict[torch.Size, Tensor] = {}
        self.by_layout: dict[bytes, Tensor] = {}

    def add(self, size: torch.Size, weight: Tensor) -> Tensor:
        layout = _layout(weight)
        if len(self.by_size) >= MOST_SIZES or (len(self.by_layout) >= MOST_LAYOUTS and layout not in self.by_layout):
            self.by_size.clear()
            self.by_layout.clear()
        self.by_size[size] = self.by_layout.setdefault(layout, weight)
        return self.by_size[size]


def _layout(packed: Tensor) -> bytes:
    """The memory layout of a packed tensor: oneDNN's own descriptor.

    Two gaps of the C struct, after the number of dimensions and after the data type, have arbitrary content.
    """
    descriptor = bytes(torch.ops.mkldnn._get_mkldnn_serialized_md(packed).tolist())
    return descriptor[:4] + descriptor[8:108] + descriptor[112:]


def _packable(x: Tensor, weight: Tensor) -> bool:
    return (
        PACKING
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and not weight.is_inference()  # made in inference mode: torch does not count the writes to it
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
        and not torch._C._is_tracing()
        and not torch.compiler.is_compiling()
    )


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


def silu_(x: Tensor) -> Tensor:
    return F.silu(x, inplace=not torch.is_grad_enabled())


def modulate_(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """x * (1 + scale) + shift; written into `x` where no gradient is recorded."""
    scale, shift = scale.to(x.dtype)[:, :, None, None], shift.to(x.dtype)[:, :, None, None]
    return torch.addcmul(shift, x, 1 + scale, out=None if torch.is_grad_enabled() else x)
