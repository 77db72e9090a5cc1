"""A larger NAFNet that begins with what a smaller one has learned.

The larger network has one more level: the blocks in the middle of the smaller one become the blocks before and after
the new level, whose result is zero at first, as is the influence of a degradation code. So both networks compute the
same, and training continues from there.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from .coded import CodedNAFNet
from .nafnet import NAFNet


def grow(network: NAFNet, weights: Mapping[str, Tensor]) -> None:
    """Load the weights of a NAFNet with one level less into a network; raises ValueError where they do not fit."""
    before = len(network.encoders[-1]) if network.stages else 0  # type: ignore[arg-type]
    own = network.state_dict()
    found = {_place(key, before, network.stages - 1): value for key, value in weights.items()}
    odd = [key for key, value in found.items() if key not in own or own[key].shape != value.shape]
    blocks = {key.split(".")[1] for key in weights if key.startswith("middle_blks.")}
    if odd or len(blocks) != before + (len(network.decoders[0]) if network.stages else 0):  # type: ignore[arg-type]
        raise ValueError(
            "expected a NAFNet of the same width with one level less, whose middle blocks are as many as the blocks "
            f"on both sides of the new level; these weights do not fit: {', '.join(odd[:3]) or 'middle_blks'}"
        )
    with torch.no_grad():
        for key, value in found.items():
            own[key].copy_(value)
        network.ups[0][0].weight.zero_()  # type: ignore[index]
        if isinstance(network, CodedNAFNet):
            network.prompt.weight.zero_()
            network.prompt.bias.zero_()


def _place(key: str, before: int, new: int) -> str:
    """Where the larger network has a tensor of the smaller one."""
    middle = re.fullmatch(r"middle_blks\.(\d+)\.(.+)", key)
    if middle:
        i, rest = int(middle[1]), middle[2]
        return f"encoders.{new}.{i}.{rest}" if i < before else f"decoders.0.{i - before}.{rest}"
    return re.sub(r"^(ups|decoders)\.(\d+)", lambda found: f"{found[1]}.{int(found[2]) + 1}", key)
