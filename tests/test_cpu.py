"""Packed weights: the same result as plain convolutions, whatever was computed before."""

import copy

import pytest
import torch

from codes.networks import cpu
from codes.networks.checkpoints import load_network
from codes.networks.cpu import Convolution
from codes.networks.predictor import half_precision_problem

from .network_examples import example, inputs


def run(network, x, mu, time):
    with torch.no_grad():
        return network(x, mu, time)


def test_packed_weights_follow_changes_and_are_not_copied():
    network = example("refusion", torch.float32)
    x, mu, _ = inputs("refusion", dtype=torch.float32)
    before = run(network, x, mu, 3)
    clone = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.5)
    changed = run(network, x, mu, 3)
    assert torch.equal(run(clone, x, mu, 3), before)
    network.load_state_dict(clone.state_dict())
    assert torch.equal(run(network, x, mu, 3), before)
    assert (changed - before).abs().max() > 0.1


def test_a_network_in_training_is_asked_with_its_newest_weights():
    """A fused optimiser changes weights without a trace in torch's count of writes."""
    network = example("refusion", torch.float32).train()
    x, mu, _ = inputs("refusion", dtype=torch.float32)
    optimiser = torch.optim.AdamW(network.parameters(), lr=0.01, fused=True)
    for _ in range(2):
        asked = run(network, x, mu, 3)
        learned = network(x, mu, 3)
        assert torch.allclose(asked, learned.detach(), rtol=0, atol=1e-5)
        learned.abs().sum().backward()
        optimiser.step()


@pytest.mark.parametrize("name", ["refusion", "irsde", "coded"])
def test_without_the_private_operators_the_result_is_the_same(name, monkeypatch):
    network = example(name, torch.float32)
    x, mu, _ = inputs(name, size=(40, 56), dtype=torch.float32)
    packed = run(network, x, mu, 30)
    monkeypatch.setattr(cpu, "PACKING", False)
    assert torch.allclose(run(network, x, mu, 30), packed, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["refusion", "irsde", "coded"])
def test_packed_half_precision_is_as_exact_as_plain_half_precision(name, monkeypatch):
    """Against float64: packing converts the weights once instead of in every call, and fuses sums."""
    problem = half_precision_problem("bf16")
    if problem:
        pytest.skip(problem)
    exact, network = example(name, torch.float64), example(name, torch.float32)
    x, mu, _ = inputs(name, size=(40, 56), dtype=torch.float64)
    wanted = run(exact, x, mu, 30)
    errors = []
    for packing in (True, False):
        monkeypatch.setattr(cpu, "PACKING", packing and cpu.PACKING)
        with torch.autocast("cpu", torch.bfloat16):
            errors.append(float((run(network, x.float(), mu.float(), 30).double() - wanted).square().mean().sqrt()))
    assert errors[0] < 1.3 * errors[1] and errors[0] < 0.02 * float(wanted.square().mean().sqrt())


def layer(width_in: int, width_out: int) -> Convolution:
    torch.manual_seed(0)
    return Convolution(width_in, width_out, 1).to(memory_format=torch.channels_last).eval()


def image(channels: int, side: int) -> torch.Tensor:
    x = torch.rand(1, channels, side, side, generator=torch.Generator().manual_seed(side))
    return x.contiguous(memory_format=torch.channels_last)


@pytest.mark.skipif(not cpu.PACKING, reason="this torch has no packed convolutions")
def test_every_size_has_the_weights_that_a_fresh_layer_would_pack():
    """A layout for another size gives the same numbers, but is rearranged in every call."""
    used, sides = layer(512, 1024), (8, 64, 32, 16, 32, 8)
    with torch.no_grad():
        for side in sides:
            x, fresh = image(512, side), layer(512, 1024)
            assert torch.equal(used(x), fresh(x))
            own, theirs = (net._packed.by_size[x.shape, torch.float32] for net in (used, fresh))
            assert cpu._layout(own) == cpu._layout(theirs)
    assert len(used._packed.by_size) == len(set(sides))
    # Sizes of one layout share one tensor.
    assert len({id(weight) for weight in used._packed.by_size.values()}) == len(used._packed.by_layout)
    assert len(used._packed.by_layout) <= 2


@pytest.mark.skipif(not cpu.PACKING, reason="this torch has no packed convolutions")
def test_many_sizes_do_not_collect_memory(monkeypatch):
    monkeypatch.setattr(cpu, "MOST_SIZES", 4)
    convolution = layer(4, 8)
    with torch.no_grad():
        for side in range(1, 20):
            convolution(image(4, side))
    assert len(convolution._packed.by_size) <= 4


@pytest.mark.parametrize("arrangement", ["shuffled", "by_blocks"])
@pytest.mark.parametrize("size", [(6, 10), (5, 7)])
def test_rearranged_weights_give_what_their_names_say(arrangement, size):
    torch.manual_seed(0)
    convolution = Convolution(4, 8 if arrangement == "shuffled" else 3, 3, padding=1).eval()
    x = torch.rand(2, 4, *size).contiguous(memory_format=torch.channels_last)
    added = torch.rand(2, 2, 2 * size[0], 2 * size[1]).contiguous(memory_format=torch.channels_last)

    def compute():
        return convolution.shuffled(x, added) if arrangement == "shuffled" else convolution.by_blocks(x)

    plain = torch.nn.functional.conv2d(x, convolution.weight, convolution.bias, padding=1)
    wanted = torch.nn.functional.pixel_shuffle(plain, 2) + added if arrangement == "shuffled" else plain
    with torch.no_grad():
        assert torch.allclose(compute(), wanted, rtol=0, atol=1e-6)
        convolution.weight.mul_(2)  # seen at once
        convolution.bias.mul_(2)
        assert not torch.allclose(compute(), wanted, rtol=0, atol=1e-3)
    learned = compute()
    learned.sum().backward()
    assert convolution.weight.grad.abs().sum() > 0


def test_weights_read_in_inference_mode_are_packed_like_others(tmp_path, weights):
    """`load_network` leaves the mode: torch does not count the writes to tensors that are made in it."""
    with torch.inference_mode():
        network = load_network(weights)[0].eval()
    assert not any(parameter.is_inference() for parameter in network.parameters())
    x, mu = torch.rand(2, 1, 3, 16, 16)
    with torch.inference_mode():
        inside = network(x, mu, 3.0)
    assert torch.equal(run(network, x, mu, 3.0), inside)
    assert network.intro._packed is not None or not cpu.PACKING


@pytest.mark.parametrize("name", ["irsde", "coded", "daclip"])
def test_every_kind_of_network_works_in_inference_mode(name):
    expected = example(name, torch.float32)
    x, mu, contexts = inputs(name, dtype=torch.float32)
    with torch.no_grad():
        wanted = expected(x, mu, 3, **contexts)
    with torch.inference_mode():
        network = example(name, torch.float32)
        network.load_state_dict(expected.state_dict())
        assert torch.allclose(network(x, mu, 3, **contexts), wanted, rtol=0, atol=1e-5)
    with torch.no_grad():
        assert torch.allclose(network(x, mu, 3, **contexts), wanted, rtol=0, atol=1e-5)


def test_a_network_loaded_in_inference_mode_works_inside_and_outside():
    expected = example("refusion", torch.float32)
    x, mu, _ = inputs("refusion", dtype=torch.float32)
    y = run(expected, x, mu, 3)
    with torch.inference_mode():
        network = example("refusion", torch.float32)
        assert torch.allclose(network(x, mu, 3), y, rtol=0, atol=1e-6)
        network.load_state_dict({key: 2 * value for key, value in expected.state_dict().items()})
        assert (network(x, mu, 3) - y).abs().max() > 1e-3
        network.load_state_dict(expected.state_dict())
    assert torch.allclose(run(network, x, mu, 3), y, rtol=0, atol=1e-6)
    with torch.inference_mode():  # weights from outside, used and changed inside
        expected.load_state_dict({key: 2 * value for key, value in expected.state_dict().items()})
        doubled = expected(x, mu, 3)
    assert (doubled - y).abs().max() > 1e-3
