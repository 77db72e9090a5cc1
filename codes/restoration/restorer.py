"""Networks, schedule and sampler put together: from degraded images to restored ones."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..evaluation.run import Restored
from ..networks.latent import LatentUNet
from ..networks.nafnet import NAFNet
from ..networks.predictor import predictor
from ..networks.unet import UNet
from ..runtime.device import memory_budget
from ..sde import MeanRevertingSDE
from ..solvers import Plan, StepInfo, sample
from ..solvers.sampling import Network
from .tiling import tiled

if TYPE_CHECKING:
    from ..networks.daclip import DaCLIP

log = logging.getLogger(__name__)

SMALLEST_TILE = 128
LARGEST_TILE = 1024
# Peak memory of one evaluation in float32, in units of (base width x pixels x 4 bytes): measured between 256 and 512
# pixels as 6.7 (DA-CLIP's U-Net) and 3.2 (Refusion's NAFNet), with a margin.
_WIDTHS_PER_PIXEL = {UNet: 8.0, NAFNet: 4.5}
# State, mu, noise, predictions and the sums of tiles: copies of the image that a run holds.
_COPIES = 12


@dataclass(frozen=True)
class ImageRestorer:
    """Restores batches of images; `tile` is a side in pixels, None for whole images, or 'auto'."""

    network: nn.Module
    sde: MeanRevertingSDE
    fit_target: str
    device: torch.device
    daclip: "DaCLIP | None" = None
    latent: LatentUNet | None = None
    precision: str = "auto"
    compile: bool = False
    tile: int | str | None = "auto"

    @torch.inference_mode()
    def __call__(
        self,
        lq: Tensor,
        plan: Plan,
        generators: Sequence[torch.Generator],
        callback: Callable[[StepInfo], None] | None = None,
        return_trajectory: bool = False,
    ) -> Restored:
        """Restore (B, 3, H, W) images in [0, 1].

        On a CPU one image at a time: a batch is no faster there, and kernels chosen by batch size would change the
        last bits of the result.
        """
        if self.device.type == "cpu" and len(lq) > 1:
            parts = [
                self(lq[i : i + 1], plan, generators[i : i + 1], callback, return_trajectory) for i in range(len(lq))
            ]
            states = tuple(torch.cat(step) for step in zip(*(part.states for part in parts), strict=True))
            return Restored(torch.cat([part.images for part in parts]), parts[0].nfe, parts[0].tile, states)
        tile = self.tile_for(lq)
        while True:
            try:
                return self._restore(lq, plan, generators, callback, return_trajectory, tile)
            except torch.OutOfMemoryError:
                smaller = max(min(lq.shape[-2:]) if tile is None else tile, SMALLEST_TILE) // 2
                if smaller < SMALLEST_TILE:
                    raise
                tile = smaller
                torch.cuda.empty_cache()
                log.warning("out of memory: going on with tiles of %d pixels", tile)

    def _restore(
        self,
        lq: Tensor,
        plan: Plan,
        generators: Sequence[torch.Generator],
        callback: Callable[[StepInfo], None] | None,
        return_trajectory: bool,
        tile: int | None,
    ) -> Restored:
        # A second try after an out-of-memory error must draw the same noise again.
        before = [generator.get_state() for generator in generators]
        try:
            network, mu = self.predictor(lq), lq
            if self.latent is not None:
                mu, skips = self.latent.encode(lq)
                plan = replace(plan, clamp=None, threshold=None)  # latents have no image range
            if tile is not None:
                network = tiled(network, tile)
            output = sample(
                network,
                self.sde,
                mu,
                plan,
                fit_target=self.fit_target,
                generator=generators,
                callback=callback,
                return_trajectory=return_trajectory,
                mu_range=None,  # latents have none, and noise added on the fly is not clipped
            )
            images, states = output.sample, output.states
            if self.latent is not None:
                images = self.latent.decode(images, skips)
                states = tuple(self.latent.decode(state, skips) for state in states)
            return Restored(images.clamp(0, 1), output.nfe, tile, states)
        except torch.OutOfMemoryError:
            for generator, state in zip(generators, before, strict=True):
                generator.set_state(state)
            raise

    def predictor(self, lq: Tensor) -> Network:
        """The network for a batch of images, with their contexts."""
        text_context = image_context = None
        if self.daclip is not None:
            features = self.daclip.controlled(self.daclip.preprocess(lq))
            # The published names: the degradation's features go in as text context.
            image_context, text_context = features.image.float(), features.degradation.float()
        return predictor(
            self.network,
            degraded=lq,
            text_context=text_context,
            image_context=image_context,
            precision=self.precision,
            compile=self.compile,
        )

    def tile_for(self, lq: Tensor) -> int | None:
        """The side of the tiles that a batch is cut into, None if it is taken whole."""
        height, width = lq.shape[-2:]
        if self.latent is not None:
            return None  # the latent image is 8 times smaller
        if isinstance(self.tile, int):
            return self.tile if max(height, width) > self.tile else None
        if self.tile is None or self.tile == "off":
            return None
        return tile_within(memory_budget(self.device), bytes_per_pixel(self.network), height, width, len(lq))


def bytes_per_pixel(network: nn.Module) -> float:
    """Estimated peak memory of one evaluation per pixel of the image."""
    for kind, factor in _WIDTHS_PER_PIXEL.items():
        if isinstance(network, kind):
            return 4 * factor * base_width(network)
    raise ValueError(f"no memory estimate for {type(network).__name__}")


def base_width(network: nn.Module) -> int:
    """Channels at full resolution: those of the first convolution's output."""
    first = next(module for module in network.modules() if isinstance(module, nn.Conv2d))
    return int(first.out_channels)


def tile_within(budget: float, per_pixel: float, height: int, width: int, batch: int) -> int | None:
    """None if the whole image fits the budget, else a tile (a multiple of 64) that does.

    At most LARGEST_TILE: larger ones are no better once the image is cut at all, and slower on a CPU.
    """
    pixels = batch * height * width
    left = budget - _COPIES * 3 * 4 * pixels
    if per_pixel * pixels <= left:
        return None
    side = int((max(left, 0.0) / (per_pixel * batch)) ** 0.5) // 64 * 64
    return max(min(side, LARGEST_TILE), SMALLEST_TILE)
