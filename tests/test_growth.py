"""A NAFNet that grows by a level computes what the smaller one did."""

import pytest
import torch

from codes.networks import architecture, build
from codes.networks.growth import grow

SMALL = {"img_channel": 3, "width": 8, "enc_blk_nums": [0, 2], "middle_blk_num": 3, "dec_blk_nums": [1, 0]}
LARGE = {**SMALL, "enc_blk_nums": [0, 2, 1], "middle_blk_num": 1, "dec_blk_nums": [2, 1, 0]}


def trained_network(name, setting, seed):
    """A network none of whose weights is 0, as new ones of blocks are."""
    torch.manual_seed(seed)
    network = build(architecture(name, setting))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0, 0.2)
    return network


@pytest.mark.parametrize("name", ["ConditionalNAFNet", "CodedNAFNet"])
def test_the_grown_network_computes_the_same(name):
    small, large = trained_network("ConditionalNAFNet", SMALL, 1), trained_network(name, LARGE, 2)
    grow(large, small.state_dict())
    x, mu, t = torch.rand(2, 3, 24, 16), torch.rand(2, 3, 24, 16), torch.tensor([3.0, 80.0])
    with torch.no_grad():
        torch.testing.assert_close(large(x, mu, t), small(x, mu, t), rtol=0, atol=0)


def test_the_new_level_and_the_code_learn_from_the_first_step():
    small, large = trained_network("ConditionalNAFNet", SMALL, 1), trained_network("CodedNAFNet", LARGE, 2)
    grow(large, small.state_dict())
    large(torch.rand(1, 3, 16, 16), torch.rand(1, 3, 16, 16), torch.tensor([9.0])).square().mean().backward()
    assert large.ups[0][0].weight.grad.abs().max() > 0 and large.prompt.weight.grad.abs().max() > 0


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"width": 4}, "time_mlp.1.weight"),
        ({"middle_blk_num": 2}, "middle_blks"),
        ({"middle_blk_num": 4}, "decoders.0.2"),
        ({"enc_blk_nums": [0, 2, 2], "dec_blk_nums": [1, 0, 0]}, "middle_blks|encoders|decoders"),
    ],
)
def test_weights_that_do_not_fit_are_refused(change, named):
    small = build(architecture("ConditionalNAFNet", {**SMALL, **change}))
    with pytest.raises(ValueError, match=f"one level less.*do not fit: .*({named})"):
        grow(build(architecture("CodedNAFNet", LARGE)), small.state_dict())
