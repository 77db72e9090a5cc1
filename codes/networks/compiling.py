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
_SMALLEST = 16  # latents are 8 times smaller than images
# Graphs that torch may keep of one function. Left alone it runs every size after the eighth uncompiled, so that the
# last bits of an image would depend on the sizes before it. (These names are torch 2.5's; later ones have them too.)
_GRAPHS: dict[str, Any] = {"cache_size_limit": 1024, "accumulated_cache_size_limit": 1024}


def fixed_side(length: int) -> int:
    """The side that an image's side is padded to: 16, 20, 24, 28, 32, 40, ..., 64, 80, ..., 128, 160, ..."""
    step = max(_SMALLEST, 1 << (length - 1).bit_length() >> 1) // _STEPS
    return max(-(-length // step) * step, _SMALLEST)


def fixed_side_within(length: int) -> int:
    """The largest of these sides that is not above `length`; the smallest of all where there is none."""
    return next((side for side in range(length, _SMALLEST, -1) if fixed_side(side) == side), _SMALLEST)


def compiled(function: Callable[..., Tensor], device: torch.device) -> Callable[..., Tensor]:
    """`function` of images (B, C, H, W), and of other arguments after the first, compiled; sizes are fixed sides."""
    import torch._dynamo.config as dynamo  # with sympy it takes half a second, which others need not wait for

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
        with dynamo.patch(_GRAPHS):
            # A copy: a CUDA graph writes its next result over this one.
            return run(*given)[..., :height, :width].clone()

    return at_fixed_size
