"""The blocks of a NAFNet in training, with gradients by hand.

With autograd, what lies between a block's convolutions takes as long as these: every product and every half of a gate
is a pass over memory of its own. Here the passes are fewer, and the gradient of a depthwise convolution is a
convolution with the mirrored filter, which oneDNN computes faster.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

from ..networks.layers import NORM_EPS
from ..networks.nafnet import NAFBlock


class TrainedBlock(NAFBlock):
    """A NAFBlock of the same weights; differs only in how it computes gradients."""

    def forward(self, x: Tensor, modulation: Tensor) -> Tensor:
        if not torch.is_grad_enabled() or x.dtype is not modulation.dtype or len(modulation) != len(x):
            return super().forward(x, modulation)
        shift1, scale1, shift2, scale2 = modulation[:, :, None, None].chunk(4, dim=1)
        norms = (self.norm1.g * (1 + scale1), shift1, self.norm2.g * (1 + scale2), shift2)
        beta, gamma = self.beta.flatten(), self.gamma.flatten()
        convolutions = (*_pair(self.conv1), *_pair(self.conv2), *_pair(self.sca[1]), *_pair(self.conv3, beta))
        weights = (*convolutions, *_pair(self.conv4), *_pair(self.conv5, gamma))
        with torch.autocast(x.device.type, enabled=False):
            given = [one.to(x.dtype) for one in (*norms, *weights)]
            result: Tensor = _Block.apply(x, *given)  # type: ignore[no-untyped-call]
        return result


def with_fast_gradients(network: nn.Module) -> nn.Module:
    """The same network, whose NAFBlocks have become TrainedBlocks."""
    for module in network.modules():
        if type(module) is NAFBlock:
            module.__class__ = TrainedBlock
    return network


def _pair(convolution: Any, scale: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Weight and bias, multiplied by a scale of the output's channels."""
    weight, bias = convolution.weight, convolution.bias
    return (weight, bias) if scale is None else (weight * scale.view(-1, 1, 1, 1), bias * scale)


class _Block(torch.autograd.Function):
    """x, then scale and shift (B, C, 1, 1) of both norms, then weight and bias of the convolutions in order."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, x: Tensor, a1: Tensor, s1: Tensor, a2: Tensor, s2: Tensor, *weights: Tensor
    ) -> Tensor:
        w1, b1, w2, b2, w_attention, b_attention, w3, b3, w4, b4, w5, b5 = weights
        n1, *moments1 = _norm(x)
        h0 = torch.addcmul(s1, n1, a1)
        h1 = F.conv2d(h0, w1, b1)
        h2 = F.conv2d(h1, w2, b2, padding=1, groups=len(w2))
        h3 = _gate(h2)
        mean = h3.mean((2, 3), keepdim=True)
        attention = F.conv2d(mean, w_attention, b_attention)
        h4 = h3 * attention
        y = F.conv2d(h4, w3, b3).add_(x)
        n2, *moments2 = _norm(y)
        h5 = torch.addcmul(s2, n2, a2)
        h6 = F.conv2d(h5, w4, b4)
        h7 = _gate(h6)
        given = (x, a1, a2, w1, w2, w_attention, w3, w4, w5)
        made = (n1, h0, h1, h2, h3, mean, attention, h4, y, n2, h5, h6, h7)
        ctx.save_for_backward(*given, *moments1, *moments2, *made)
        return F.conv2d(h7, w5, b5).add_(y)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, a1, a2, w1, w2, w_attention, w3, w4, w5, *rest = ctx.saved_tensors
        m1, r1, m2, r2, n1, h0, h1, h2, h3, mean, attention, h4, y, n2, h5, h6, h7 = rest
        g = g.contiguous(memory_format=torch.channels_last)
        g7, gw5, gb5 = _convolution_backward(g, h7, w5)
        g5, gw4, gb4 = _convolution_backward(_gate_backward(g7, h6), h5, w4)
        gy, ga2, gs2 = _norm_backward(g5, y, n2, m2, r2, a2)
        gy.add_(g)
        g4, gw3, gb3 = _convolution_backward(gy, h4, w3)
        g_attention = (g4 * h3).sum((2, 3), keepdim=True)
        g_mean, gw_attention, gb_attention = _convolution_backward(g_attention, mean, w_attention)
        g2 = _gate_backward(torch.addcmul(g_mean / h3[0, 0].numel(), g4, attention), h2)
        gw2, gb2 = _convolution_backward(g2, h1, w2, padding=1, to_input=False)[1:]
        g1 = F.conv2d(g2, w2.flip(2, 3), padding=1, groups=len(w2))
        g0, gw1, gb1 = _convolution_backward(g1, h0, w1)
        gx, ga1, gs1 = _norm_backward(g0, x, n1, m1, r1, a1)
        gx.add_(gy)
        norms = (ga1, gs1, ga2, gs2)
        return gx, *norms, gw1, gb1, gw2, gb2, gw_attention, gb_attention, gw3, gb3, gw4, gb4, gw5, gb5


def _norm(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Norm over the channels of each pixel; also means and inverse deviations, in float32 at least."""
    rows = x.permute(0, 2, 3, 1)
    y, mean, inverse = torch.native_layer_norm(rows, rows.shape[-1:], _ones(x), None, NORM_EPS)
    return y.permute(0, 3, 1, 2), mean, inverse


def _norm_backward(
    g: Tensor, x: Tensor, n: Tensor, mean: Tensor, inverse: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of input, scale and shift of scale * norm(x) + shift; `n` is norm(x)."""
    to_shift = g.sum((2, 3), keepdim=True)
    to_scale = (g * n).sum((2, 3), keepdim=True)
    rows = (one.permute(0, 2, 3, 1) for one in (g * scale, x))
    to_x = torch.ops.aten.native_layer_norm_backward(
        *rows, (x.shape[1],), mean, inverse, _ones(x), None, [True, False, False]
    )[0]
    return to_x.permute(0, 3, 1, 2), to_scale, to_shift


def _ones(x: Tensor) -> Tensor:
    """A norm's weights; their dtype is that of the means and deviations."""
    return torch.ones(x.shape[1], dtype=torch.promote_types(x.dtype, torch.float32), device=x.device)


def _gate(x: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=1)
    return a * b


def _gate_backward(g: Tensor, x: Tensor) -> Tensor:
    # Twice as fast as two products with halves, whose memory is not contiguous.
    a, b = x.permute(0, 2, 3, 1).chunk(2, dim=-1)
    rows = g.permute(0, 2, 3, 1)
    return torch.cat([b, a], dim=-1).mul_(torch.cat([rows, rows], dim=-1)).permute(0, 3, 1, 2)


def _convolution_backward(
    g: Tensor, x: Tensor, weight: Tensor, padding: int = 0, to_input: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of input, weight and bias of a convolution, depthwise if its weight says so."""
    groups = x.shape[1] // weight.shape[1]
    at, one = (padding, padding), (1, 1)
    mask = [to_input, True, True]
    found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
        g, x, weight, [len(weight)], one, at, one, False, (0, 0), groups, mask
    )
    return found
