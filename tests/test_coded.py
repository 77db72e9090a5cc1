"""The network that recognises the degradation: large images are encoded in bands, with the statistics of the whole."""

import pytest
import torch

from codes.networks import coded
from codes.networks.memory import PeakMemory

from .network_examples import example


@pytest.mark.parametrize("size", [(64, 40), (75, 33), (129, 17), (16, 16)])
@pytest.mark.parametrize("band", [1, 700, 1600])
def test_bands_have_the_statistics_of_the_whole(size, band, monkeypatch):
    encoder = example("coded").encoder
    mu = torch.rand(2, 3, *size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        whole = encoder(mu)
        monkeypatch.setattr(coded, "WHOLE", 0)
        monkeypatch.setattr(coded, "BAND", band)
        for ours, expected in zip(encoder(mu), whole, strict=True):
            assert torch.allclose(ours, expected, rtol=0, atol=1e-12)


def test_float32_bands_are_equal_up_to_rounding(monkeypatch):
    encoder = example("coded", torch.float32).encoder
    mu = torch.rand(1, 3, 160, 96, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        whole, _ = encoder(mu)
        monkeypatch.setattr(coded, "WHOLE", 0)
        monkeypatch.setattr(coded, "BAND", 96 * 32)
        parts, _ = encoder(mu)
    assert parts.dtype == torch.float32 and torch.allclose(parts, whole, rtol=0, atol=1e-5)


@pytest.mark.parametrize("size", [(289, 761), (289, 760), (255, 131)])
def test_the_number_of_threads_changes_no_bit(size):
    """Shares of the threads that are no multiples of a vector's length once had other roundings at their ends."""
    torch.manual_seed(0)
    encoder = coded.DegradationEncoder(3, 32, 32).eval()
    mu = torch.rand(1, 3, *size, generator=torch.Generator().manual_seed(0))
    found, before = [], torch.get_num_threads()
    with torch.no_grad():
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(torch.cat(encoder(mu), dim=1))
    torch.set_num_threads(before)
    assert torch.equal(*found)


def test_memory_of_the_encoder_is_bounded_by_the_band(monkeypatch):
    encoder = example("coded", torch.float32).encoder
    monkeypatch.setattr(coded, "WHOLE", 64 * 64)
    monkeypatch.setattr(coded, "BAND", 64 * 32)
    peaks = []
    for height in (64, 512):
        mu = torch.zeros(1, 3, height, 64)
        with torch.no_grad(), PeakMemory() as peak:
            encoder(mu)
        peaks.append(peak.bytes)
    assert peaks[1] < peaks[0]


def test_gradients_see_the_whole_image(monkeypatch):
    monkeypatch.setattr(coded, "WHOLE", 0)
    network = example("coded").train()
    network.encoder(torch.rand(1, 3, 24, 24, dtype=torch.float64))[1].sum().backward()
    assert all(p.grad is not None and p.grad.abs().any() for p in network.encoder.stages.parameters())
