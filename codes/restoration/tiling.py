"""Large images in tiles, and which images are large.

The state stays whole: only the network sees tiles, and its predictions are blended at every evaluation. The noise
therefore has no seams, every solver works unchanged, and memory is bounded by the tile. The networks have global
operations (attention, means over the image), so a tiled result differs from a whole one.
"""

import torch
from torch import Tensor

from ..names import scalar_time
from ..solvers.sampling import Network

LEAST_TILE = 64  # that can be asked for
SMALLEST_TILE = 128  # that is chosen
LARGEST_TILE = 512
# State, mu, noise, predictions and the sums of tiles: copies of the image that a run holds.
_COPIES = 12
BYTES_PER_PIXEL = _COPIES * 3 * 4


def tile_within(budget: float, per_pixel: float, height: int, width: int, batch: int) -> int | None:
    """None if the whole images fit the budget in bytes, else the side of tiles (a multiple of 64) that do.

    At most LARGEST_TILE: larger tiles give no better result than these, and are slower on a CPU.
    """
    pixels = batch * height * width
    left = budget - BYTES_PER_PIXEL * pixels
    if per_pixel * pixels <= left:
        return None
    side = int((max(left, 0.0) / (per_pixel * batch)) ** 0.5) // 64 * 64
    return max(min(side, LARGEST_TILE), SMALLEST_TILE)


def tile_starts(length: int, tile: int, overlap: int) -> list[int]:
    """Where tiles start along one side: equal tiles that share at least `overlap`, the last ends with the image."""
    if length <= tile:
        return [0]
    count = -(-(length - overlap) // (tile - overlap))
    return [round(i * (length - tile) / (count - 1)) for i in range(count)]


def tile_count(height: int, width: int, tile: int | None) -> int:
    """Network calls of one evaluation, with the overlap that `tiled` chooses."""
    if tile is None:
        return 1
    return len(tile_starts(height, tile, tile // 8)) * len(tile_starts(width, tile, tile // 8))


def window(length: int, overlap: int, like: Tensor) -> Tensor:
    """Weights along one side of a tile: 1 inside, falling towards both ends over `overlap` pixels, never 0."""
    ramp = (torch.arange(length, device=like.device, dtype=like.dtype) + 0.5) / max(overlap, 1)
    return torch.minimum(ramp, ramp.flip(0)).clamp(max=1.0)


def tiled(network: Network, tile: int, overlap: int | None = None) -> Network:
    """`network` evaluated in tiles of side `tile` that share `overlap` pixels (an eighth of it by default)."""
    shared = tile // 8 if overlap is None else overlap
    if not 0 <= shared < tile:
        raise ValueError(f"overlap must be from 0 to {tile - 1} for tiles of {tile}, got {shared}")

    def evaluate(x: Tensor, mu: Tensor, t: float | Tensor) -> Tensor:
        height, width = x.shape[-2:]
        rows, columns = min(tile, height), min(tile, width)
        total: Tensor | None = None
        weight: Tensor | None = None
        for top in tile_starts(height, tile, shared):
            for left in tile_starts(width, tile, shared):
                part = (..., slice(top, top + rows), slice(left, left + columns))
                y = network(x[part].contiguous(), mu[part].contiguous(), t)
                if total is None or weight is None:
                    total = y.new_zeros(*x.shape[:-2], height, width)
                    weight = y.new_zeros(height, width)
                blend = window(rows, shared, y)[:, None] * window(columns, shared, y)
                total[part].addcmul_(y, blend)
                weight[part].add_(blend)
        assert total is not None and weight is not None
        return total.div_(weight)

    return scalar_time(evaluate) if getattr(network, "takes_scalar_time", False) else evaluate
