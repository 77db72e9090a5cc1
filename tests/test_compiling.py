"""Compiled networks see images of a few sizes only. torch.compile itself is not called: it takes minutes on a CPU."""

from types import SimpleNamespace

import pytest
import torch

from codes.data.images import Picture
from codes.data.sets import Loaded
from codes.evaluation import run
from codes.evaluation.job import Job
from codes.networks.compiling import compiled, fixed_side
from codes.networks.layers import reflect_to
from codes.networks.predictor import predictor

from .network_examples import example, inputs

CPU = torch.device("cpu")


@pytest.fixture
def modes(monkeypatch):
    """How functions were compiled; they stay as they are."""
    found = []
    monkeypatch.setattr(torch, "compile", lambda function, **how: found.append(how) or function)
    return found


def test_fixed_sides_are_few_and_near():
    sides = {length: fixed_side(length) for length in range(1, 1025)}
    assert sorted(set(sides.values())) == [
        *(64, 80, 96, 112, 128),
        *(160, 192, 224, 256),
        *(320, 384, 448, 512),
        *(640, 768, 896, 1024),
    ]
    assert all(length <= side < max(1.25 * length, 65) for length, side in sides.items())
    assert all(fixed_side(side) == side for side in sides.values())
    assert fixed_side(4000) == 4096 and fixed_side(3000) == 3072


def test_images_are_mirrored_up_to_a_fixed_size_and_cut_back(modes):
    seen = []

    def network(x, mu, t):
        seen.append((x, mu, t))
        return x + 2 * mu

    x, mu = torch.rand(2, 1, 3, 70, 200, generator=torch.Generator().manual_seed(0))
    result = compiled(network, CPU)(x, mu, 7.0)
    assert torch.equal(result, x + 2 * mu)
    (given,) = seen
    assert torch.equal(given[0], reflect_to(x, 80, 224)) and torch.equal(given[1], reflect_to(mu, 80, 224))
    assert torch.equal(given[0][..., 70:80, :200], x[..., 59:69, :].flip(2)) and given[2] == 7.0
    assert modes == [{"mode": "default", "dynamic": False}]
    compiled(network, torch.device("cuda"))
    assert modes[1]["mode"] == "reduce-overhead"


def test_the_next_call_does_not_change_a_result(modes):
    """A CUDA graph writes all its results to one place."""
    place = torch.zeros(1, 3, 64, 64)
    network = compiled(lambda x: place.copy_(x), CPU)
    first = network(torch.ones(1, 3, 64, 64))
    network(torch.zeros(1, 3, 64, 64))
    assert bool((first == 1).all())


@pytest.mark.parametrize("name", ["refusion", "coded"])
def test_a_compiled_prediction_is_that_of_the_padded_images(modes, name):
    network = example(name).eval()
    x, mu, _ = inputs(name, size=(40, 72))
    plain = predictor(network, degraded=mu)(reflect_to(x, 64, 80), reflect_to(mu, 64, 80), 5.0)
    assert torch.equal(predictor(network, degraded=mu, compile=True)(x, mu, 5.0), plain[..., :40, :72])
    assert len(modes) == 1


def loaded(number, side):
    return Loaded(item=SimpleNamespace(name=str(number)), seed=0, lq=Picture(rgb=torch.zeros(3, side, side)))


@pytest.mark.parametrize(
    ("size", "sides", "expected"),
    [
        (1, [8, 9, 8], ["0", "1", "2"]),
        (2, [8, 9, 8, 9, 8], ["02", "13", "4"]),
        (3, [8, 9, 8, 9, 9, 8], ["134", "025"]),
        (2, [1, 2, 3, 4, 5, 6, 7, 8, 1], ["0", "1", "2", "3", "4", "5", "6", "7", "8"]),  # at most 8 images wait
    ],
)
def test_images_of_one_size_share_a_batch_also_when_others_lie_between(monkeypatch, size, sides, expected):
    monkeypatch.setattr(run, "load_item", lambda task, item, seed, **_: loaded(item.name, sides[int(item.name)]))
    job = Job(folder=None, tasks=(), plans=(), batch_size=size)
    task, items = SimpleNamespace(name="rainy"), [SimpleNamespace(name=str(i)) for i in range(len(sides))]
    stop = SimpleNamespace(is_set=lambda: False)
    with run.ThreadPoolExecutor(2) as readers:
        found = list(run.batches(job, task, items, readers, run.Outcome(problems={"rainy": []}), stop, 0.0))
    assert ["".join(one.item.name for one in batch) for batch in found] == expected
