"""Compiled networks see images of a few sizes only. Graphs are recorded but not compiled, which takes minutes."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from codes import load_restorer
from codes.data.images import Picture
from codes.data.sets import Loaded
from codes.defaults import WEIGHTS
from codes.evaluation import run
from codes.evaluation.job import Job
from codes.networks.compiling import compiled, fixed_side, fixed_side_within
from codes.networks.cpu import Convolution
from codes.networks.layers import reflect_to
from codes.networks.predictor import predictor
from codes.restoration.restorer import Restorer

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
        *(16, 20, 24, 28, 32),
        *(40, 48, 56, 64),
        *(80, 96, 112, 128),
        *(160, 192, 224, 256),
        *(320, 384, 448, 512),
        *(640, 768, 896, 1024),
    ]
    assert all(length <= side < max(1.25 * length, 17) for length, side in sides.items())
    assert all(fixed_side(side) == side for side in sides.values())
    assert fixed_side(4000) == 4096 and fixed_side(3000) == 3072
    largest = {length: max(side for side in (16, *sides.values()) if side <= max(length, 16)) for length in sides}
    assert largest == {length: fixed_side_within(length) for length in sides}


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
    plain = predictor(network, degraded=mu)(reflect_to(x, 40, 80), reflect_to(mu, 40, 80), 5.0)
    assert torch.equal(predictor(network, degraded=mu, compile=True)(x, mu, 5.0), plain[..., :40, :72])
    assert len(modes) == 1


def test_every_size_has_its_graph_and_each_only_one(monkeypatch):
    """torch itself stops after eight sizes. The convolutions that are packed for CPUs must not break graphs apart."""
    graphs = []

    def record(graph, _):
        graphs.append(graph)
        return graph.forward

    compile = torch.compile
    monkeypatch.setattr(torch, "compile", lambda function, **how: compile(function, backend=record, dynamic=False))
    network = torch.nn.Sequential(Convolution(3, 4, 3, padding=1), Convolution(4, 3, 1)).eval()
    function = compiled(network, CPU)
    sides = (16, 20, 24, 28, 32, 40, 48, 56, 64, 80)
    with torch.inference_mode():
        for side in (*sides, *sides):
            function(torch.zeros(1, 3, side - 1, side))
    assert len(graphs) == len(sides)


@pytest.mark.parametrize("compile", [False, True])
def test_tiles_of_a_compiled_network_have_fixed_sides(modes, monkeypatch, compile):
    seen = []
    monkeypatch.setattr("codes.restoration.restorer.memory_budget", lambda device: 6e8)
    restorer = replace(load_restorer(Path(__file__).parents[1] / WEIGHTS, device="cpu"), compile=compile)
    monkeypatch.setattr(Restorer, "predictor", lambda self, lq: lambda x, mu, t: seen.append(x.shape[-2:]) or 0 * x)
    restorer(torch.zeros(3, 1000, 1500), strength=1.0)
    assert len(set(seen)) == 1 and max(seen[0]) < 1000
    assert (all(fixed_side(side) == side for side in seen[0])) == compile


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
