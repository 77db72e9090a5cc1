"""Tiles cover the image, blend smoothly, and change nothing where the network is local."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from codes.networks import build_network
from codes.networks.memory import base_width, bytes_per_pixel, measured_bytes_per_pixel
from codes.restoration.tiling import tile_starts, tile_within, tiled, window
from codes.runtime.device import GIB

from .evaluation import SETTING


@pytest.mark.parametrize(("length", "tile", "overlap"), [(100, 32, 4), (33, 32, 8), (64, 32, 0), (1000, 256, 32)])
def test_tiles_cover_the_side_and_overlap_enough(length, tile, overlap):
    starts = tile_starts(length, tile, overlap)
    assert starts[0] == 0 and starts[-1] == length - tile
    for before, after in pairwise(starts):
        assert 0 < after - before <= tile - overlap
    assert tile_starts(20, 32, 4) == [0]


@pytest.mark.parametrize("shape", [(1, 3, 70, 90), (2, 3, 20, 100), (1, 3, 16, 16)])
def test_a_pointwise_network_does_not_notice(shape):
    x, mu = torch.rand(2, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def network(x, mu, t):
        return torch.sin(3 * x) + mu * t

    assert torch.allclose(tiled(network, 24, 6)(x, mu, 0.7), network(x, mu, 0.7), atol=1e-14)


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
