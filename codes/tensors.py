"""The one tensor operation that the samplers need."""

import torch
from torch import Tensor


def linear_combination(terms: list[tuple[float, Tensor]]) -> Tensor:
    """`sum of w * tensor` with Python-float weights: one pass over memory per term, one new tensor in all.

    Terms with weight 0 cost nothing. Mixed dtypes are promoted by the first term, so put the state first.
    """
    live = [(w, tensor) for w, tensor in terms if w != 0.0]
    if not live:
        return torch.zeros_like(terms[0][1])
    (w0, first), *rest = live
    out = first * w0
    for w, tensor in rest:
        out.add_(tensor, alpha=w)
    return out
