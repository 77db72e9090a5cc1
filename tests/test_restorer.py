"""Memory decides on tiles before anything is allocated, and running out of it costs a retry, not the run."""

import pytest
import torch

from codes.networks import build_network
from codes.restoration.restorer import Restorer
from codes.sde import MeanRevertingSDE
from codes.solvers import Solver, make_plan

from .evaluation import SETTING

SDE = MeanRevertingSDE()


def restorer(network=None, **options):
    torch.manual_seed(0)
    network = build_network("ConditionalNAFNet", SETTING) if network is None else network
    return Restorer(network=network, sde=SDE, fit_target="data", **options)


def generators(n=1):
    return [torch.Generator().manual_seed(i) for i in range(n)]


def test_tiles_of_a_given_side_only_for_larger_images():
    plan = make_plan(SDE, Solver("mrsampler-pc", 2))
    small, large = torch.rand(1, 3, 64, 64), torch.rand(1, 3, 64, 100)
    assert restorer(tile=64).batch(small, plan, generators()).tile is None
    assert restorer(tile=64).batch(large, plan, generators()).tile == 64
    assert restorer(tile="off").batch(large, plan, generators()).tile is None


def test_running_out_of_memory_falls_back_to_tiles_with_the_same_noise(monkeypatch):
    plan = make_plan(SDE, Solver("mrsampler-pc", 3))
    image = torch.rand(1, 3, 300, 280, generator=torch.Generator().manual_seed(1))
    expected = restorer(tile=140).batch(image, plan, generators())
    tried = []
    original = Restorer.predictor

    def limited(self, lq):
        network = original(self, lq)

        def evaluate(x, mu, t):
            tried.append(tuple(x.shape[-2:]))
            if x.shape[-1] > 200:
                raise torch.OutOfMemoryError("no")
            return network(x, mu, t)

        return evaluate

    monkeypatch.setattr(Restorer, "predictor", limited)
    out = restorer(tile="off").batch(image, plan, generators())
    assert tried[0] == (300, 280) and out.tile == 140
    assert torch.equal(out.samples, expected.samples)
    monkeypatch.setattr(Restorer, "predictor", lambda self, lq: _always_full)
    with pytest.raises(torch.OutOfMemoryError):
        restorer(tile="off").batch(image, plan, generators())


def _always_full(x, mu, t):
    raise torch.OutOfMemoryError("no")


def test_latent_images_are_decoded_and_not_clamped():
    """With a latent network the sampler works on latents; the result is the decoder's."""
    torch.manual_seed(0)
    latent = build_network("UNet", {"in_ch": 3, "out_ch": 3, "ch": 8, "ch_mult": [1, 2], "embed_dim": 4})
    network = build_network("ConditionalNAFNet", SETTING | {"img_channel": 4})
    images = torch.rand(1, 3, 36, 30)
    plan = make_plan(SDE, Solver("mrsampler-pc", 2))
    out = restorer(network, latent=latent).batch(images, plan, generators())
    with torch.no_grad():
        mu, skips = latent.encode(images)
        from dataclasses import replace

        from codes.networks.predictor import predictor
        from codes.solvers import sample

        whole = sample(
            predictor(network), SDE, mu, replace(plan, clamp=None), fit_target="data", generator=generators()
        )
        expected = latent.decode(whole.sample, skips).clamp(0, 1)
    assert out.samples.shape == images.shape and torch.equal(out.samples, expected)
