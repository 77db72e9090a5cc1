"""Tiles cover the image, blend smoothly, and change nothing where the network is local."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from codes.networks import build_network
from codes.networks.layers import reflect_pad
from codes.networks.memory import base_width, bytes_per_pixel, measured_bytes_per_pixel
from codes.restoration.tiling import LARGEST_TILE, MULTIPLE, extra_work, tile_within, tiled, tiles_along, window
from codes.runtime.device import GIB

from .evaluation import SETTING


@pytest.mark.parametrize(
    ("length", "most", "overlap"), [(100, 32, 4), (33, 32, 8), (64, 32, 0), (1000, 256, 32), (4000, 1024, 48)]
)
def test_tiles_cover_the_side_and_overlap_enough(length, most, overlap):
    tile, starts = tiles_along(length, most, overlap)
    assert starts[0] == 0 and length <= starts[-1] + tile < length + MULTIPLE
    assert tile <= most and not any(number % MULTIPLE for number in (tile, *starts))
    for before, after in pairwise(starts):
        assert 0 < after - before <= tile - overlap
    assert tiles_along(20, 32, 4) == (32, [0])


def test_little_is_computed_twice():
    """Photos of 4 to 48 megapixels, of any shape: with the tiles that are chosen, less than 15 % of their pixels."""
    sizes = [(1732, 2309), (2000, 3000), (2449, 3266), (3000, 4000), (2736, 4864), (6000, 8000), (1500, 8000)]
    assert all(0 < extra_work(height, width, LARGEST_TILE) < 0.15 for height, width in sizes)
    assert extra_work(3000, 4000, None) == 0


@pytest.mark.parametrize("shape", [(1, 3, 70, 90), (2, 3, 20, 100), (1, 3, 16, 16)])
def test_a_pointwise_network_does_not_notice(shape):
    x, mu = torch.rand(2, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def network(x, mu, t):
        return torch.sin(3 * x) + mu * t

    assert torch.allclose(tiled(network, 48, 16)(x, mu, 0.7), network(x, mu, 0.7), atol=1e-14)


def test_differences_between_tiles_are_blended_without_a_step():
    """A network that depends on its tile: the result moves smoothly from one tile's answer to the next."""
    x = torch.linspace(0, 1, 200, dtype=torch.float64).expand(1, 1, 32, 200)

    def network(x, mu, t):
        return x.mean().expand(x.shape).contiguous()

    out = tiled(network, 64, 32)(x, x, 0.0)
    assert float(out.diff(dim=-1).abs().max()) < 0.02
    assert float(out.max() - out.min()) > 0.5


def test_network_sees_tiles_of_one_size_only():
    seen = set()

    def network(x, mu, t):
        seen.add((tuple(x.shape), tuple(mu.shape)))
        return x

    x = torch.rand(1, 3, 50, 130)
    tiled(network, 48)(x, x, 1.0)
    assert seen == {((1, 3, 48, 48), (1, 3, 48, 48))}


def test_tiles_of_a_local_network_equal_the_whole():
    """A network that halves its image four times and sees no further than the overlap, on sides that it must pad."""

    def network(x, mu, t):
        padded = reflect_pad(x, 16)
        small = F.max_pool2d(padded, 3, stride=1, padding=1) + F.interpolate(F.avg_pool2d(padded, 16), scale_factor=16)
        return small[..., : x.shape[-2], : x.shape[-1]]

    x = torch.rand(1, 3, 150, 331, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole, out = network(x, x, 0.0), tiled(network, 96, 32)(x, x, 0.0)
    # Only where a tile ends, and its weight is least, a maximum misses a neighbour.
    assert out.shape == whole.shape
    assert float(((out - whole).abs() > 1e-12).double().mean()) < 0.05


def test_window_never_vanishes_and_bad_overlap_is_refused():
    assert float(window(32, 8, torch.zeros(1)).min()) > 0
    with pytest.raises(ValueError, match="overlap must be from 0 to 31 for tiles of 32, got 32"):
        tiled(lambda x, mu, t: x, 32, 32)


def test_estimate_follows_the_base_width():
    small, large = (build_network("ConditionalNAFNet", SETTING | {"width": width}) for width in (8, 16))
    assert base_width(small) == 8 and bytes_per_pixel(large) == 2 * bytes_per_pixel(small)
    unet = build_network("ConditionalUNet", {"in_nc": 3, "out_nc": 3, "nf": 16, "depth": 2})
    assert bytes_per_pixel(unet) > 16 * 4 * 6.7  # what was measured


def test_whole_image_where_it_fits_and_tiles_where_not():
    per_pixel = 2048.0
    assert tile_within(5 * GIB, per_pixel, 1024, 1024, 1) is None
    tile = tile_within(5 * GIB, per_pixel, 3000, 4000, 1)
    assert tile is not None and tile % 64 == 0 and per_pixel * tile**2 < 5 * GIB
    assert tile_within(1e6, per_pixel, 3000, 4000, 1) == 128  # as small as it gets
    assert tile_within(2 * GIB, per_pixel, 800, 800, 4) < 800  # a batch needs more


class TwoConvolutions(nn.Module):
    """A foreign network: at its peak two maps of 32 channels are in memory."""

    def __init__(self):
        super().__init__()
        self.calls = 0
        self.first, self.last = nn.Conv2d(6, 32, 3, padding=1), nn.Conv2d(32, 3, 3, padding=1)

    def forward(self, x, mu, t):
        self.calls += 1
        return self.last(torch.relu(self.first(torch.cat([x - mu, mu], dim=1)))) * t.view(-1, 1, 1, 1)


def test_memory_of_a_foreign_network_is_measured_once():
    network = TwoConvolutions()
    assert bytes_per_pixel(network) == 1.5 * 2 * 32 * 4
    assert bytes_per_pixel(network) == 1.5 * 2 * 32 * 4 and network.calls == 2  # two sizes
    network.bytes_per_pixel = 77
    assert bytes_per_pixel(network) == 77


@pytest.mark.parametrize("name", ["ConditionalNAFNet", "ConditionalUNet"])
def test_measurement_agrees_with_the_estimates_of_our_networks(name):
    setting = SETTING if name == "ConditionalNAFNet" else {"in_nc": 3, "out_nc": 3, "nf": 8, "depth": 2}
    network = build_network(name, setting)
    assert 0.5 < measured_bytes_per_pixel(network) / bytes_per_pixel(network) < 2.5


def test_memory_is_guessed_where_the_trial_fails():
    class Picky(nn.Conv2d):
        def forward(self, x, mu, t):
            raise ValueError("expected 6 channels")

    assert bytes_per_pixel(Picky(6, 20, 3)) == 4 * 16 * 20
