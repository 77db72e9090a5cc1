"""Large images in tiles, and which images are large.

The state stays whole: only the network sees tiles, and its predictions are blended at every evaluation. The noise
therefore has no seams, every solver works unchanged, and memory is bounded by the tile. The networks have global
operations (attention, means over the image), so a tiled result differs from a whole one.
"""

import torch
from torch import Tensor

from ..names import scalar_time
from ..networks.layers import reflect_pad
from ..solvers.sampling import Network

LEAST_TILE = 64  # that can be asked for
SMALLEST_TILE = 128  # that is chosen
LARGEST_TILE = 1024
OVERLAP = 48
MULTIPLE = 16  # of the sides of tiles, into which the networks divide an image
# State, mu, noise, predictions and the sums of tiles: copies of the image that a run holds.
_COPIES = 12
BYTES_PER_PIXEL = _COPIES * 3 * 4


def tile_within(budget: float, per_pixel: float, height: int, width: int, batch: int) -> int | None:
    """None if the whole images fit the budget in bytes, else the side of tiles (a multiple of 64) that do.

    At most LARGEST_TILE, so that the network's memory does not grow with the photo.
    """
    pixels = batch * height * width
    left = budget - BYTES_PER_PIXEL * pixels
    if per_pixel * pixels <= left:
        return None
    side = int((max(left, 0.0) / (per_pixel * batch)) ** 0.5) // 64 * 64
    return max(min(side, LARGEST_TILE), SMALLEST_TILE)


def tiles_along(length: int, most: int, overlap: int, *, fitted: bool = True) -> tuple[int, list[int]]:
    """The side of tiles, at most `most`, and where they start along an image's side; all are multiples of MULTIPLE.

    As few equal tiles as share at least `overlap`; `fitted` ones are no longer than that needs, so that little is
    computed twice, others are as long as they may be.
    They start where the network would divide the whole image, so that it sees the same blocks of pixels in both.
    """
    blocks, largest, shared = (-(-side // MULTIPLE) for side in (length, most // MULTIPLE * MULTIPLE, overlap))
    if blocks <= largest:
        return blocks * MULTIPLE, [0]
    count = -(-(blocks - shared) // (largest - shared))
    tile = -(-(blocks + (count - 1) * shared) // count) if fitted else largest
    return tile * MULTIPLE, [i * (blocks - tile) // (count - 1) * MULTIPLE for i in range(count)]


def overlap_of(tile: int) -> int:
    """Pixels that tiles of at most some side share, unless told otherwise."""
    return min(max(tile // 8 // MULTIPLE * MULTIPLE, MULTIPLE), OVERLAP)


def tile_count(height: int, width: int, tile: int | None) -> int:
    """Network calls of one evaluation, with the overlap that `tiled` chooses."""
    if tile is None:
        return 1
    (_, rows), (_, columns) = (tiles_along(side, tile, overlap_of(tile)) for side in (height, width))
    return len(rows) * len(columns)


def extra_work(height: int, width: int, tile: int | None) -> float:
    """Share of an image's pixels that are computed more than once because tiles overlap."""
    if tile is None:
        return 0.0
    (rows, tops), (columns, lefts) = (tiles_along(side, tile, overlap_of(tile)) for side in (height, width))
    return len(tops) * rows * len(lefts) * columns / (height * width) - 1


def window(length: int, overlap: int, like: Tensor) -> Tensor:
    """Weights along one side of a tile: 1 inside, falling towards both ends over `overlap` pixels, never 0."""
    ramp = (torch.arange(length, device=like.device, dtype=like.dtype) + 0.5) / max(overlap, 1)
    return torch.minimum(ramp, ramp.flip(0)).clamp(max=1.0)


def tiled(network: Network, tile: int, overlap: int | None = None, *, fitted: bool = True) -> Network:
    """`network` evaluated in tiles of sides up to `tile` that share `overlap` pixels, both multiples of MULTIPLE.

    By default tiles share what `overlap_of` says. Those that are not `fitted` to the image have one size for all
    images, which compiled networks need.
    """
    shared = overlap_of(tile) if overlap is None else overlap
    if not 0 <= shared < tile // MULTIPLE * MULTIPLE:
        raise ValueError(f"overlap must be from 0 to {tile - 1} for tiles of {tile}, got {shared}")

    def evaluate(x: Tensor, mu: Tensor, t: float | Tensor) -> Tensor:
        height, width = x.shape[-2:]
        (rows, tops), (columns, lefts) = (tiles_along(side, tile, shared, fitted=fitted) for side in (height, width))
        x, mu = reflect_pad(x, MULTIPLE), reflect_pad(mu, MULTIPLE)
        total: Tensor | None = None
        weight: Tensor | None = None
        for top in tops:
            for left in lefts:
                part = (..., slice(top, top + rows), slice(left, left + columns))
                y = network(x[part].contiguous(), mu[part].contiguous(), t)
                if total is None or weight is None:
                    total = y.new_zeros(x.shape)
                    weight = y.new_zeros(x.shape[-2:])
                blend = window(rows, shared, y)[:, None] * window(columns, shared, y)
                total[part].addcmul_(y, blend)
                weight[part].add_(blend)
        assert total is not None and weight is not None
        return total.div_(weight)[..., :height, :width].contiguous()

    return scalar_time(evaluate) if getattr(network, "takes_scalar_time", False) else evaluate
