"""Networks compiled by torch.compile, for a fixed set of image sizes.

A graph is compiled for one size, which takes from seconds to minutes; photos have any size. So images are padded by
reflection to the next of a few sizes, and the result is cut back. On GPUs graphs are replayed as CUDA graphs.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .layers import reflect_to

# Between two powers of 2 there are this many sides, so that a side grows by a quarter at the most.
_STEPS = 4
_SMALLEST = 64


def fixed_side(length: int) -> int:
    """The side that an image's side is padded to: 64, 80, 96, 112, 128, 160, ..., 256, 320, ..."""
    step = max(_SMALLEST, 1 << (length - 1).bit_length() >> 1) // _STEPS
    return max(-(-length // step) * step, _SMALLEST)


def compiled(function: Callable[..., Tensor], device: torch.device) -> Callable[..., Tensor]:
    """`function` of images (B, C, H, W), and of other arguments after the first, compiled; sizes are fixed sides."""
    # This mode records CUDA graphs, where it can.
    mode = "reduce-overhead" if device.type == "cuda" else "default"
    run: Callable[..., Tensor] = torch.compile(function, mode=mode, dynamic=False)

    def at_fixed_size(x: Tensor, *others: Any) -> Tensor:
        height, width = x.shape[-2:]
        sides = fixed_side(height), fixed_side(width)
        given = [
            reflect_to(one, *sides) if isinstance(one, Tensor) and one.shape[-2:] == x.shape[-2:] else one
            for one in (x, *others)
        ]
        # A copy: a CUDA graph writes its next result over this one.
        return run(*given)[..., :height, :width].clone()

    return at_fixed_size
