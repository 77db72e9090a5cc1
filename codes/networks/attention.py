"""Attention blocks of the U-Nets, under the parameter names of the published checkpoints.

Images are in channels_last memory, so that their pixels are, without a copy, a (B, H*W, C) matrix of tokens.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cpu import add_by_chunks_, chunks
from .layers import NORM_EPS, ChannelNorm, image, tokens

HEADS, HEAD_WIDTH = 4, 32  # of linear attention, whatever its width


class LinearAttention(nn.Module):
    """Attention linear in the number of pixels N: softmax of q over the channels of a head, of k over pixels.

    o_n = sum_m q_n . k_m v_m / N, then a 1x1 convolution and a channel norm. The sum over m is a small matrix
    per head, which is multiplied into the weights of that convolution: o itself never exists. k's softmax is
    taken with a running maximum, so that q, k and v exist for one chunk of pixels at a time (4 GB less at
    1024x1024).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.to_qkv = nn.Conv2d(width, 3 * HEADS * HEAD_WIDTH, 1, bias=False)
        self.to_out = nn.Sequential(nn.Conv2d(HEADS * HEAD_WIDTH, width, 1), ChannelNorm(width))

    def forward(self, x: Tensor, norm: ChannelNorm, values: Tensor | None = None) -> Tensor:
        """x + attention(norm(x)), chunk by chunk; without gradients it is written into x."""
        # Half precision ends here: v / N is far below what float16 can hold.
        with torch.autocast(x.device.type, enabled=False):
            y = tokens(x)
            parts = chunks(y)
            weight = self.to_qkv.weight.flatten(1)
            query, key_value = weight.split([HEADS * HEAD_WIDTH, 2 * HEADS * HEAD_WIDTH])
            mixing = self._mixing(parts, norm, key_value) / y.shape[1]

            def attend(part: Tensor) -> Tensor:
                q = _heads(F.linear(norm.on_tokens(part.to(weight.dtype)), query)).softmax(-1).flatten(2)
                return self._out_norm().on_tokens(torch.baddbmm(self._bias(), q, mixing))

            return image(add_by_chunks_(y, attend), x)

    def _mixing(self, parts: tuple[Tensor, ...], norm: ChannelNorm, weight: Tensor) -> Tensor:
        """(B, heads * d, width): sum of softmax(k) v over pixels, times output weights and the scale of q."""
        top = total = product = torch.zeros((), device=weight.device, dtype=weight.dtype)
        for number, part in enumerate(parts):
            k, v = F.linear(norm.on_tokens(part.to(weight.dtype)), weight).chunk(2, dim=-1)
            highest = k.amax(1, keepdim=True)
            if number:
                highest = torch.maximum(highest, top)
            decay = (top - highest).exp() if number else torch.zeros_like(highest)
            k = (k - highest).exp()
            total = total * decay + k.sum(1, keepdim=True)
            sums = _heads(k).permute(0, 2, 3, 1) @ _heads(v).transpose(1, 2)
            product = product * _heads(decay).permute(0, 2, 3, 1) + sums
            top = highest
        product = product / _heads(total).permute(0, 2, 3, 1) * HEAD_WIDTH**-0.5
        out = self._out_conv().weight.flatten(1).t().unflatten(0, (HEADS, HEAD_WIDTH))
        return (product @ out).flatten(1, 2)

    def _out_conv(self) -> nn.Conv2d:
        conv = self.to_out[0]
        assert isinstance(conv, nn.Conv2d)
        return conv

    def _bias(self) -> Tensor:
        bias = self._out_conv().bias
        assert bias is not None
        return bias

    def _out_norm(self) -> ChannelNorm:
        norm = self.to_out[1]
        assert isinstance(norm, ChannelNorm)
        return norm


def _heads(y: Tensor) -> Tensor:
    return y.unflatten(-1, (HEADS, HEAD_WIDTH))


class SoftmaxAttention(nn.Module):
    """Full attention of the same shape, in the middle of the denoising U-Net."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.to_qkv = nn.Conv2d(width, 3 * HEADS * HEAD_WIDTH, 1, bias=False)
        self.to_out = nn.Conv2d(HEADS * HEAD_WIDTH, width, 1)

    def forward(self, x: Tensor, norm: ChannelNorm, values: Tensor | None = None) -> Tensor:
        y = F.linear(norm.on_tokens(tokens(x)), self.to_qkv.weight.flatten(1))
        q, k, v = y.unflatten(-1, (3, HEADS, HEAD_WIDTH)).permute(2, 0, 3, 1, 4)
        o = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + image(F.linear(o, self.to_out.weight.flatten(1), self.to_out.bias), x)


class TokenAttention(nn.Module):
    def __init__(self, width: int, context_width: int) -> None:
        super().__init__()
        self.heads = width // HEAD_WIDTH
        self.to_q = nn.Linear(width, width, bias=False)
        self.to_k = nn.Linear(context_width, width, bias=False)
        self.to_v = nn.Linear(context_width, width, bias=False)
        self.to_out = nn.Sequential(nn.Linear(width, width))

    def forward(self, y: Tensor) -> Tensor:
        """Self-attention."""
        q, k, v = (
            project(y).unflatten(-1, (self.heads, HEAD_WIDTH)).transpose(1, 2)
            for project in (self.to_q, self.to_k, self.to_v)
        )
        o = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        result: Tensor = self.to_out(o)
        return result

    def value(self, context: Tensor) -> Tensor:
        """Attention to a single token: the softmax over one key is 1, so only the value path is left.

        `to_q`, `to_k` and the norm in front have no influence; they exist because the checkpoints have them.
        """
        result: Tensor = self.to_out(self.to_v(context))
        return result


class GatedLinear(nn.Module):
    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width_in, 2 * width_out)

    def forward(self, y: Tensor) -> Tensor:
        value, gate = self.proj(y).chunk(2, dim=-1)
        return value * F.gelu(gate)


class FeedForward(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        # The identity stands where the published block has a dropout of 0: it keeps the index of the last
        # layer.
        self.net = nn.Sequential(GatedLinear(width, 4 * width), nn.Identity(), nn.Linear(4 * width, width))

    def forward(self, y: Tensor) -> Tensor:
        result: Tensor = self.net(y)
        return result


class TransformerBlock(nn.Module):
    def __init__(self, width: int, context_width: int) -> None:
        super().__init__()
        self.attn1 = TokenAttention(width, width)
        self.attn2 = TokenAttention(width, context_width)
        self.ff = FeedForward(width)
        self.norm1 = nn.LayerNorm(width, eps=NORM_EPS)
        self.norm2 = nn.LayerNorm(width, eps=NORM_EPS)
        self.norm3 = nn.LayerNorm(width, eps=NORM_EPS)

    def forward(self, y: Tensor, value: Tensor) -> Tensor:
        y = y + self.attn1(self.norm1(y)) + value[:, None].to(y.dtype)
        return add_by_chunks_(y, lambda part: self.ff(self.norm3(part)), 16)


class SpatialTransformer(nn.Module):
    """Self-attention between pixels, cross-attention to the image context (one token), feed-forward."""

    def __init__(self, width: int, context_width: int) -> None:
        super().__init__()
        if width % 32:
            raise ValueError(f"use_image_context: the deep widths must be multiples of 32, got {width}")
        self.norm = nn.GroupNorm(32, width, eps=1e-6)
        self.proj_in = nn.Conv2d(width, width, 1)
        self.transformer_blocks = nn.ModuleList([TransformerBlock(width, context_width)])
        self.proj_out = nn.Conv2d(width, width, 1)
        nn.init.zeros_(self.proj_out.weight)
        nn.init.zeros_(self.proj_out.bias)  # type: ignore[arg-type]

    @property
    def block(self) -> TransformerBlock:
        block = self.transformer_blocks[0]
        assert isinstance(block, TransformerBlock)
        return block

    def forward(self, x: Tensor, norm: ChannelNorm, values: Tensor | None = None) -> Tensor:
        assert values is not None
        x_normed = norm(x)
        y = tokens(self.norm(x_normed))
        y = F.linear(y, self.proj_in.weight.flatten(1), self.proj_in.bias)
        y = self.block(y, values)
        y = F.linear(y, self.proj_out.weight.flatten(1), self.proj_out.bias)
        return x + x_normed + image(y, x)  # the published block adds its own, normalised input


Attention = LinearAttention | SoftmaxAttention | SpatialTransformer


class PreNorm(nn.Module):
    def __init__(self, width: int, attention: Attention) -> None:
        super().__init__()
        self.norm = ChannelNorm(width)
        self.fn = attention


class Residual(nn.Module):
    """x + attention(norm(x)), under the published names `fn.norm` and `fn.fn`."""

    def __init__(self, width: int, attention: Attention) -> None:
        super().__init__()
        self.fn = PreNorm(width, attention)

    @property
    def attention(self) -> Attention:
        return self.fn.fn

    def forward(self, x: Tensor, values: Tensor | None = None) -> Tensor:
        return self.attention.forward(x, self.fn.norm, values)
