"""The blocks of a NAFNet in training: gradients by hand against those of autograd."""

import copy

import pytest
import torch

from codes.networks.coded import CodedNAFNet
from codes.networks.nafnet import NAFBlock
from codes.training.blocks import TrainedBlock, with_fast_gradients
from codes.training.optimisers import Muon, _batches, _shares, orthogonal

from .helpers import make_run


def random_network(dtype: torch.dtype = torch.float64) -> CodedNAFNet:
    torch.manual_seed(0)
    network = CodedNAFNet(width=8, enc_blk_nums=[1, 1], middle_blk_num=1, dec_blk_nums=[1, 1], encoder_width=8)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return network.to(dtype)


def gradients(network, x, mu, t):
    network.zero_grad()
    x = x.clone().requires_grad_()
    y, logits = network(x, mu, t, named=True)
    (y.square().mean() + logits.sin().mean()).backward()
    return y.detach(), x.grad, {name: p.grad for name, p in network.named_parameters()}


@pytest.mark.parametrize("size", [(16, 24), (11, 9)])
def test_outputs_and_gradients_are_those_of_autograd(size):
    network = random_network()
    fast = with_fast_gradients(copy.deepcopy(network))
    assert sum(type(module) is TrainedBlock for module in fast.modules()) == 5
    assert not any(type(module) is NAFBlock for module in fast.modules())
    x, mu = torch.randn(2, 3, 3, *size, dtype=torch.float64)
    t = torch.tensor([3.0, 50.0, 99.0], dtype=torch.float64)
    y, to_x, to_weights = gradients(network, x, mu, t)
    fast_y, fast_to_x, fast_to_weights = gradients(fast, x, mu, t)
    assert torch.allclose(fast_y, y, rtol=1e-10, atol=1e-12)
    assert torch.allclose(fast_to_x, to_x, rtol=1e-8, atol=1e-12)
    for name, gradient in to_weights.items():
        assert torch.allclose(fast_to_weights[name], gradient, rtol=1e-8, atol=1e-10), name


def test_gradients_in_bf16_are_as_exact_as_those_of_autograd():
    network = random_network(torch.float32)
    fast, exact = with_fast_gradients(copy.deepcopy(network)), copy.deepcopy(network).double()
    x, mu = torch.randn(2, 4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    t = torch.tensor([3.0, 50.0, 80.0, 99.0])
    true = gradients(exact, x.double(), mu.double(), t.double())[2]

    def error(network):
        with torch.autocast("cpu", torch.bfloat16):
            found = gradients(network, x, mu, t)[2]
        return sum(float((found[name] - true[name]).square().sum()) for name in true) ** 0.5

    assert error(fast) < 1.1 * error(network)


def test_without_gradients_the_networks_are_the_same_bit_by_bit():
    network = random_network(torch.float32)
    x, mu = torch.randn(2, 2, 3, 16, 16)
    with torch.no_grad():
        expected = network(x, mu, torch.tensor([3.0, 70.0]))
        assert torch.equal(with_fast_gradients(network)(x, mu, torch.tensor([3.0, 70.0])), expected)


def test_a_training_has_fast_blocks_and_its_average_plain_ones(copy):
    run = make_run(copy)
    assert {type(m) for m in run.models.network.modules() if isinstance(m, NAFBlock)} == {TrainedBlock}
    assert {type(m) for m in run.models.ema.modules() if isinstance(m, NAFBlock)} == {NAFBlock}
    assert run.models.network.state_dict().keys() == run.models.ema.state_dict().keys()


def test_muon_moves_a_matrix_alike_alone_and_among_others():
    """Matrices of one shape are orthogonalised together, turned ones included."""
    torch.manual_seed(0)
    shapes = [(32, 48), (48, 32), (32, 48), (16, 16), (64, 16, 1, 1)]
    together = [torch.nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in shapes]
    alone = [torch.nn.Parameter(p.detach().clone()) for p in together]
    for p, twin in zip(together, alone, strict=True):
        p.grad = torch.randn_like(p)
        twin.grad = p.grad.clone()
    Muon(together, lr=0.1).step()
    for twin in alone:
        Muon([twin], lr=0.1).step()
    assert all(torch.allclose(p, twin, rtol=0, atol=1e-12) for p, twin in zip(together, alone, strict=True))


def test_a_batch_of_matrices_is_orthogonalised_one_by_one():
    matrices = torch.randn(3, 20, 31, dtype=torch.float64)
    each = torch.stack([orthogonal(matrix) for matrix in matrices])
    assert torch.allclose(orthogonal(matrices), each, rtol=0, atol=1e-12)
    assert torch.allclose(orthogonal(matrices.mT), each.mT, rtol=0, atol=1e-12)


def test_processes_share_matrices_evenly_and_completely():
    matrices = [torch.empty(shape) for shape in [(512, 1024)] * 4 + [(256, 512)] * 14 + [(64, 64)] * 30 + [(1024, 512)]]
    batches = _batches(matrices)
    assert sorted(n for batch in batches for n in batch) == list(range(len(matrices)))
    costs = [len(batch) * matrices[batch[0]].numel() for batch in batches]
    for world in (1, 2, 3):
        shares = _shares(costs, world)
        assert sorted(i for share in shares for i in share) == list(range(len(batches)))
        totals = [sum(costs[i] for i in share) for share in shares]
        assert max(totals) - min(totals) <= max(costs)
