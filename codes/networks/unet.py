"""The U-Nets of DA-CLIP, wild-ir, IR-SDE, latent dehazing and denoising-sde: one skeleton, five choices.

All predict the noise of `x` at time t, given the degraded image `mu` (except the denoising one). The
constructors take the `setting` of the published option files.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from .attention import LinearAttention, Residual, SoftmaxAttention, SpatialTransformer
from .cpu import Convolution
from .layers import (
    Context,
    Embedding,
    ResBlock,
    Time,
    check_batch,
    check_images,
    downsample,
    level,
    levels,
    reflect_pad,
    sinusoidal,
    time_tensor,
    upsample,
)


class UNet(nn.Module):
    """The skeleton: level i goes from width w_i down to w_{i+1}; two blocks and one attention per level."""

    takes_mu = True
    # Peak memory of one evaluation in float32: measured between 256 and 512 pixels as 6.7 copies of the widest
    # full-size feature map, with a margin.
    copies_in_memory = 8.0

    def __init__(
        self,
        in_channels: int,
        out_nc: int,
        nf: int,
        widths: Sequence[int],
        *,
        transformer_from: int | None = None,
        context_dim: int = 0,
        prompt: bool = False,
        half_resolution: bool = False,
        softmax_middle: bool = False,
    ) -> None:
        super().__init__()
        if nf < 4 or nf % 2:
            raise ValueError(f"nf: expected an even number of at least 4, got {nf}")
        depth = len(widths) - 1
        time_width = 4 * nf
        self.in_channels, self.nf, self.depth = in_channels, nf, depth
        self.context_dim = context_dim
        self.takes_image_context = transformer_from is not None

        def attention(width: int, level: int) -> Residual:
            if transformer_from is not None and level >= transformer_from:
                return Residual(width, SpatialTransformer(width, context_dim))
            return Residual(width, LinearAttention(width))

        self.init_conv = Convolution(in_channels, nf, 7, padding=3, bias=False)
        self.time_mlp = nn.Sequential(
            nn.Identity(), nn.Linear(nf, time_width), nn.GELU(), nn.Linear(time_width, time_width)
        )
        self.takes_text_context = prompt
        self.takes_contexts = self.takes_text_context or self.takes_image_context
        if prompt:
            self.prompt = nn.Parameter(torch.rand(1, time_width))
            self.text_mlp = nn.Sequential(
                nn.Linear(context_dim, time_width), nn.SiLU(), nn.Linear(time_width, time_width)
            )
            self.prompt_mlp = nn.Linear(time_width, time_width)
        self.downsample = downsample(nf, nf, last=False) if half_resolution else None
        self.upsample = upsample(nf, nf, last=False) if half_resolution else None

        self.downs, self.ups = levels(widths, attention, time_width)
        middle = widths[-1]
        self.mid_block1 = ResBlock(middle, middle, time_width)
        self.mid_attn = Residual(middle, SoftmaxAttention(middle)) if softmax_middle else attention(middle, 1 << 30)
        self.mid_block2 = ResBlock(middle, middle, time_width)
        self.final_res_block = ResBlock(2 * nf, nf, time_width)
        self.final_conv = Convolution(nf, out_nc, 3, padding=1)

    @property
    def bytes_per_pixel(self) -> float:
        """Estimated peak memory of one evaluation, per pixel of the image."""
        return 4 * self.copies_in_memory * self.nf

    def embed_context(self, text_context: Tensor | None = None, image_context: Tensor | None = None) -> Context:
        """The share of the contexts, computed once per image. Contexts are (B, context_dim)."""
        if self.takes_image_context and image_context is None:
            raise ValueError("image_context: this network was built with use_image_context and cannot do without it")
        prompt = values = None
        if text_context is not None:
            text_context = self._checked("text_context", text_context, self.takes_text_context)
            weights: Tensor = self.text_mlp(text_context)
            prompt = self.prompt_mlp(weights.softmax(dim=1) * self.prompt)
        if image_context is not None:
            image_context = self._checked("image_context", image_context, self.takes_image_context)
            values = torch.cat([st.block.attn2.value(image_context) for st in self._transformers()], dim=1)
        return Context(prompt, values)

    def _checked(self, name: str, context: Tensor, wanted: bool) -> Tensor:
        if not wanted:
            raise ValueError(f"{name}: this network was built without it")
        if context.dim() != 2 or context.shape[1] != self.context_dim:
            raise ValueError(f"{name}: expected shape (B, {self.context_dim}), got {tuple(context.shape)}")
        return context.to(self.final_conv.weight)

    def embed(self, time: Time, context: Context | None = None) -> Embedding:
        """Scales and shifts of all blocks at a time."""
        context = self.embed_context() if context is None else context
        e: Tensor = self.time_mlp(sinusoidal(time_tensor(time, self.final_conv.weight), self.nf))
        if context.prompt is not None:
            check_batch("time", e, max(len(e), len(context.prompt)))
            e = e + context.prompt
        return Embedding(torch.cat([block.modulation(e) for block in self._blocks()], dim=1), context.values)

    def _blocks(self) -> Iterator[ResBlock]:
        """In order of execution."""
        for modules in self.downs:
            yield from level(modules)[:2]
        yield from (self.mid_block1, self.mid_block2)
        for modules in self.ups:
            yield from level(modules)[:2]
        yield self.final_res_block

    def _transformers(self) -> Iterator[SpatialTransformer]:
        """In order of execution."""
        attentions = [level(m)[2] for m in self.downs] + [self.mid_attn] + [level(m)[2] for m in self.ups]
        for m in attentions:
            if isinstance(m, Residual) and isinstance(m.attention, SpatialTransformer):
                yield m.attention

    def evaluate(self, x: Tensor, mu: Tensor | None, embedding: Embedding) -> Tensor:
        check_images(x, mu, self.in_channels // (2 if self.takes_mu else 1))
        check_batch("time", embedding.modulation, len(x))
        check_batch("image_context", embedding.values, len(x))
        height, width = x.shape[-2:]
        x = x if mu is None else torch.cat([x - mu, mu], dim=1)
        x = reflect_pad(x, 2**self.depth).contiguous(memory_format=torch.channels_last)
        return self._levels(x, embedding)[:, :, :height, :width].contiguous()

    def _levels(self, x: Tensor, embedding: Embedding) -> Tensor:
        modulations = iter(embedding.modulation.split([2 * b.width_out for b in self._blocks()], dim=1))
        values: Iterator[Tensor] = iter(())
        if embedding.values is not None:
            sizes = [st.proj_in.out_channels for st in self._transformers()]
            values = iter(embedding.values.split(sizes, dim=1))

        def attend(attn: nn.Module, x: Tensor) -> Tensor:
            assert isinstance(attn, Residual)
            wants = isinstance(attn.attention, SpatialTransformer)
            result: Tensor = attn(x, next(values) if wants else None)
            return result

        x = self.init_conv(x)
        skips = [x]
        if self.downsample is not None:
            x = self.downsample(x)
        for block0, block1, attn, down in map(level, self.downs):
            x = block0([x], next(modulations))
            skips.append(x)
            x = attend(attn, block1([x], next(modulations)))
            skips.append(x)
            x = down(x)
        x = self.mid_block1([x], next(modulations))
        x = attend(self.mid_attn, x)
        x = self.mid_block2([x], next(modulations))
        for block0, block1, attn, up in map(level, self.ups):
            x = block0([x, skips.pop()], next(modulations))
            x = block1([x, skips.pop()], next(modulations))
            x = attend(attn, x)
            x = up(x)
        if self.upsample is not None:
            x = self.upsample(x)
        x = self.final_res_block([x, skips.pop()], next(modulations))
        x = self.final_conv(x)
        return x

    def forward(
        self,
        x: Tensor,
        mu: Tensor,
        time: Time,
        text_context: Tensor | None = None,
        image_context: Tensor | None = None,
    ) -> Tensor:
        return self.evaluate(x, mu, self.embed(time, self.embed_context(text_context, image_context)))


class ContextUNet(UNet):
    """ConditionalUNet of DA-CLIP (daclip-sde) and of wild-ir, which take the features of a degraded image.

    upscale          in the published option files, without effect
    scale            0.5 computes everything but the first and the last layers at half resolution (wild-ir)
    transformers_at  where the image context acts: from the 'fourth' level on (DA-CLIP), or at the 'deepest' (wild-ir)
    """

    def __init__(
        self,
        in_nc: int,
        out_nc: int,
        nf: int,
        ch_mult: Sequence[int] = (1, 2, 4, 4),
        context_dim: int | None = 512,
        use_degra_context: bool = True,
        use_image_context: bool = False,
        upscale: int = 1,
        scale: float = 1.0,
        *,
        transformers_at: Literal["fourth", "deepest"] = "fourth",
    ) -> None:
        context = context_dim or 0
        level = 3 if transformers_at == "fourth" else len(ch_mult) - 1
        super().__init__(
            2 * in_nc,
            out_nc,
            nf,
            _widths(nf, ch_mult),
            transformer_from=level if use_image_context and context > 0 else None,
            context_dim=context,
            prompt=use_degra_context and context > 0,
            half_resolution=scale == 0.5,
        )


class IrsdeUNet(UNet):
    """ConditionalUNet of IR-SDE: widths double at each of `depth` levels, linear attention everywhere.

    upscale   in the published option files, without effect
    """

    softmax_middle = False

    def __init__(self, in_nc: int, out_nc: int, nf: int, depth: int = 4, upscale: int = 1) -> None:
        widths = [nf * 2**i for i in range(depth + 1)]
        channels = in_nc * (2 if self.takes_mu else 1)
        super().__init__(channels, out_nc, nf, widths, softmax_middle=self.softmax_middle)


class DenoisingUNet(IrsdeUNet):
    """ConditionalUNet of denoising-sde, which sees no degraded image; full attention in the middle."""

    takes_mu = False
    softmax_middle = True

    def forward(self, x: Tensor, time: Time) -> Tensor:  # type: ignore[override]
        return self.evaluate(x, None, self.embed(time))


class LatentDehazingUNet(UNet):
    """ConditionalUNet of Refusion's latent dehazing: IR-SDE's with free widths.

    upscale   in the published option files, without effect
    """

    def __init__(
        self, in_nc: int, out_nc: int, nf: int, ch_mult: Sequence[int] = (1, 2, 4, 4), upscale: int = 1
    ) -> None:
        super().__init__(2 * in_nc, out_nc, nf, _widths(nf, ch_mult))


def _widths(nf: int, ch_mult: Sequence[int]) -> list[int]:
    if min(ch_mult, default=0) < 1:
        raise ValueError(f"ch_mult: expected a list of positive whole numbers, got {list(ch_mult)}")
    return [nf, *(nf * multiple for multiple in ch_mult)]
