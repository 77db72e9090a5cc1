"""Tiles cover the image, blend smoothly, and change nothing where the network is local."""

from itertools import pairwise

import pytest
import torch

from codes.restoration.tiling import tile_starts, tiled, window


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
