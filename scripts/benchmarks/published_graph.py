"""The published graph of the networks, as a yardstick for ours: same weights, same results, more work.

NCHW memory, channel norms from mean and variance, attention by einsum with explicit softmax matrices,
embeddings computed in every call. Written as functions of one of our networks, whose parameters they use.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from codes.networks.attention import (
    HEAD_WIDTH,
    HEADS,
    LinearAttention,
    Residual,
    SoftmaxAttention,
    SpatialTransformer,
    TokenAttention,
)
from codes.networks.layers import ChannelNorm, ResBlock, level
from codes.networks.nafnet import NAFBlock, NAFNet
from codes.networks.unet import UNet


def evaluate(
    network: nn.Module,
    x: Tensor,
    mu: Tensor,
    time: float,
    text_context: Tensor | None = None,
    image_context: Tensor | None = None,
) -> Tensor:
    """One evaluation; for the published memory layout put the network into torch.contiguous_format first."""
    if isinstance(network, UNet):
        return _unet(network, x, mu, time, text_context, image_context)
    if isinstance(network, NAFNet):
        return _nafnet(network, x, mu, time)
    raise TypeError(f"no published graph for {type(network).__name__}")


def _sinusoidal(time: float, width: int, like: Tensor) -> Tensor:
    half = width // 2
    frequencies = torch.exp(torch.arange(half, dtype=like.dtype) * -(math.log(10000) / (half - 1)))
    angles = torch.tensor([time], dtype=like.dtype)[:, None] * frequencies[None, :]
    return torch.cat((angles.sin(), angles.cos()), dim=-1)


def _convolve(convolution: nn.Module, x: Tensor) -> Tensor:
    """Without what our convolutions do to be faster."""
    c = convolution
    assert isinstance(c, nn.Conv2d) and not isinstance(c.padding, str)
    return F.conv2d(x, c.weight, c.bias, c.stride, c.padding, c.dilation, c.groups)


def _upsample(up: nn.Module, x: Tensor) -> Tensor:
    return _convolve(up[1], F.interpolate(x, scale_factor=2)) if isinstance(up, nn.Sequential) else _convolve(up, x)


def _norm(norm: ChannelNorm, x: Tensor) -> Tensor:
    variance = torch.var(x, dim=1, unbiased=False, keepdim=True)
    mean = torch.mean(x, dim=1, keepdim=True)
    return (x - mean) * (variance + 1e-5).rsqrt() * norm.g


def _res_block(block: ResBlock, x: Tensor, e: Tensor) -> Tensor:
    scale, shift = block.modulation(e)[:, :, None, None].chunk(2, dim=1)
    h = F.conv2d(x, block.block1.proj.weight, padding=1)
    h = F.silu(h * (scale + 1) + shift)
    h = F.silu(F.conv2d(h, block.block2.proj.weight, padding=1))
    return h + (x if block.res_conv is None else _convolve(block.res_conv, x))


def _linear_attention(attention: LinearAttention, x: Tensor) -> Tensor:
    batch, _, height, width = x.shape
    qkv = _convolve(attention.to_qkv, x).chunk(3, dim=1)
    q, k, v = (part.reshape(batch, HEADS, HEAD_WIDTH, height * width) for part in qkv)
    q = q.softmax(dim=-2) * HEAD_WIDTH**-0.5
    k = k.softmax(dim=-1)
    v = v / (height * width)
    product = torch.einsum("bhdn,bhen->bhde", k, v)
    o = torch.einsum("bhde,bhdn->bhen", product, q).reshape(batch, HEADS * HEAD_WIDTH, height, width)
    convolution, norm = attention.to_out
    assert isinstance(norm, ChannelNorm)
    return _norm(norm, _convolve(convolution, o))


def _softmax_attention(attention: SoftmaxAttention, x: Tensor) -> Tensor:
    batch, _, height, width = x.shape
    qkv = _convolve(attention.to_qkv, x).chunk(3, dim=1)
    q, k, v = (part.reshape(batch, HEADS, HEAD_WIDTH, height * width) for part in qkv)
    weights = torch.einsum("bhdi,bhdj->bhij", q * HEAD_WIDTH**-0.5, k).softmax(dim=-1)
    o = torch.einsum("bhij,bhdj->bhid", weights, v).transpose(2, 3)
    return _convolve(attention.to_out, o.reshape(batch, HEADS * HEAD_WIDTH, height, width))


def _token_attention(attention: TokenAttention, y: Tensor, context: Tensor) -> Tensor:
    batch = len(y)

    def heads(z: Tensor) -> Tensor:
        z = z.unflatten(-1, (attention.heads, HEAD_WIDTH)).transpose(1, 2)
        return z.reshape(batch * attention.heads, -1, HEAD_WIDTH)

    q, k, v = heads(attention.to_q(y)), heads(attention.to_k(context)), heads(attention.to_v(context))
    weights = (torch.einsum("bid,bjd->bij", q, k) * HEAD_WIDTH**-0.5).softmax(dim=-1)
    o = torch.einsum("bij,bjd->bid", weights, v).unflatten(0, (batch, attention.heads))
    result: Tensor = attention.to_out(o.transpose(1, 2).flatten(2))
    return result


def _transformer(st: SpatialTransformer, x: Tensor, context: Tensor) -> Tensor:
    batch, width, rows, columns = x.shape
    block = st.block
    y = _convolve(st.proj_in, st.norm(x)).flatten(2).transpose(1, 2).contiguous()
    normed = block.norm1(y)
    y = _token_attention(block.attn1, normed, normed) + y
    y = _token_attention(block.attn2, block.norm2(y), context[:, None]) + y
    y = block.ff(block.norm3(y)) + y
    y = y.transpose(1, 2).reshape(batch, width, rows, columns).contiguous()
    return _convolve(st.proj_out, y) + x


def _attend(residual: nn.Module, x: Tensor, image_context: Tensor | None) -> Tensor:
    assert isinstance(residual, Residual)
    normed, attention = _norm(residual.fn.norm, x), residual.attention
    if isinstance(attention, LinearAttention):
        return _linear_attention(attention, normed) + x
    if isinstance(attention, SoftmaxAttention):
        return _softmax_attention(attention, normed) + x
    assert image_context is not None
    return _transformer(attention, normed, image_context) + x


def _unet(
    net: UNet, x: Tensor, mu: Tensor, time: float, text_context: Tensor | None, image_context: Tensor | None
) -> Tensor:
    height, width = x.shape[-2:]
    multiple = 2**net.depth
    x = torch.cat([x - mu, mu], dim=1)
    x = F.pad(x, (0, -width % multiple, 0, -height % multiple), "reflect")
    x = _convolve(net.init_conv, x)
    skip = x.clone()
    e = net.time_mlp(_sinusoidal(time, net.nf, x))
    if text_context is not None:
        e = e + net.prompt_mlp(net.text_mlp(text_context).softmax(dim=1) * net.prompt)
    if net.downsample is not None:
        x = _convolve(net.downsample, x)
    features = []
    for block0, block1, attn, down in map(level, net.downs):
        x = _res_block(block0, x, e)
        features.append(x)
        x = _attend(attn, _res_block(block1, x, e), image_context)
        features.append(x)
        x = _convolve(down, x)
    x = _res_block(net.mid_block1, x, e)
    x = _attend(net.mid_attn, x, image_context)
    x = _res_block(net.mid_block2, x, e)
    for block0, block1, attn, up in map(level, net.ups):
        x = _res_block(block0, torch.cat([x, features.pop()], dim=1), e)
        x = _res_block(block1, torch.cat([x, features.pop()], dim=1), e)
        x = _upsample(up, _attend(attn, x, image_context))
    if net.upsample is not None:
        x = _upsample(net.upsample, x)
    x = _res_block(net.final_res_block, torch.cat([x, skip], dim=1), e)
    return _convolve(net.final_conv, x)[..., :height, :width]


def _naf_block(block: NAFBlock, inp: Tensor, e: Tensor) -> Tensor:
    shift1, scale1, shift2, scale2 = block.modulation(e)[:, :, None, None].chunk(4, dim=1)
    x = _norm(block.norm1, inp) * (scale1 + 1) + shift1
    x = block.sg(_convolve(block.conv2, _convolve(block.conv1, x)))
    x = _convolve(block.conv3, x * _convolve(block.sca[1], block.sca[0](x)))
    y = inp + x * block.beta
    x = _norm(block.norm2, y) * (scale2 + 1) + shift2
    x = _convolve(block.conv5, block.sg(_convolve(block.conv4, x)))
    return y + x * block.gamma


def _nafnet(net: NAFNet, x: Tensor, mu: Tensor, time: float) -> Tensor:
    height, width = x.shape[-2:]
    multiple = 2**net.stages
    e = net.time_mlp(_sinusoidal(time, net.width, x))
    x = torch.cat([x - mu, mu], dim=1)
    x = _convolve(net.intro, F.pad(x, (0, -width % multiple, 0, -height % multiple)))
    intro = x
    skips = []
    for stage, down in zip(net.encoders, net.downs):
        for block in stage:  # type: ignore[attr-defined]
            x = _naf_block(block, x, e)
        skips.append(x)
        x = _convolve(down, x)
    for block in net.middle_blks:
        x = _naf_block(block, x, e)  # type: ignore[arg-type]
    for stage, up in zip(net.decoders, net.ups):
        assert isinstance(up, nn.Sequential)
        x = F.pixel_shuffle(_convolve(up[0], x), 2) + skips.pop()
        for block in stage:  # type: ignore[attr-defined]
            x = _naf_block(block, x, e)
    x = _convolve(net.ending, x + intro if net.intro_residual else x)
    return x[..., :height, :width]
