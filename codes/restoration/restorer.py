"""Network, schedule and solver put together: from a degraded image to a restored one."""

from __future__ import annotations  # `help` shows the short names of types

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import defaults
from ..data.images import Image, as_image
from ..data.varied import KINDS
from ..networks.compiling import fixed_side, fixed_side_within
from ..networks.memory import bytes_per_pixel
from ..networks.predictor import predictor
from ..networks.protocols import Recognises
from ..networks.recommended import NONE, CarefulRule
from ..runtime.device import memory_budget
from ..sde import MeanRevertingSDE
from ..solvers import Plan, PlannedSolver, Solver, make_plan, sample
from ..solvers.sampling import Network
from .bounds import check_strength, check_tile, check_whole
from .hub import OnTheHub
from .progress import Callback, Progress, counted, reporting, within
from .tiling import BYTES_PER_PIXEL, SMALLEST_TILE, tile_count, tile_within, tiled

if TYPE_CHECKING:
    from ..networks.checkpoints import Metadata
    from ..networks.daclip import DaCLIP
    from ..networks.latent import LatentUNet

log = logging.getLogger(__name__)

Tile = int | Literal["auto", "off"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Restoration:
    """Restored images: K restorations of one image, equally likely as far as the model knows, or a batch.

    samples      (K, 3, H, W), in [0, 1]
    seeds        the seed of each: `restorer(image, seed=seeds[k])` gives `samples[k]` alone
    nfe          network evaluations that each took
    tile         side of the tiles that the image was cut into, None if it was taken whole
    trajectory   on request: the states of the sampler, (K, 3, H, W) each and not clipped to [0, 1]; first the noisy
                 start, then one after each evaluation
    strength     share of the restoration that was applied: 0 is the image as it was given, 1 the whole restoration
    recognised   probabilities of the degradations, as from `Restorer.recognise`; None where nothing recognises them
    """

    samples: Tensor
    seeds: tuple[int, ...] = ()
    nfe: int
    tile: int | None = None
    trajectory: tuple[Tensor, ...] = ()
    strength: float = 1.0
    recognised: dict[str, float] | None = None

    @property
    def sample(self) -> Tensor:
        """The first restoration, (3, H, W)."""
        return self.samples[0]

    @property
    def mean(self) -> Tensor:
        """The mean restoration, (3, H, W): smoother than a single one, and nearer the truth in PSNR."""
        return self.samples.mean(dim=0)

    @property
    def std(self) -> Tensor:
        """The standard deviation of each pixel, (3, H, W): what the model is unsure of. Zero for one sample."""
        return self.samples.std(dim=0) if len(self.samples) > 1 else torch.zeros_like(self.sample)


@dataclass(frozen=True, eq=False, kw_only=True)
class Restorer(OnTheHub):
    """Restores images; `load_restorer` makes one from an option file or a checkpoint.

    network, sde, fit_target   the network, the schedule it was trained with, and what it predicts
    solvers                    those of the option file, with labels and plans; the default solver where there are none
    daclip, latent             DA-CLIP's encoder, the network between images and latents, where the network needs them
    precision                  fp32, bf16 or fp16; `load_restorer` has chosen where the options say auto
    tile                       side of overlapping tiles in pixels, 'off' or 'auto' (tiles where memory demands them)
    memory                     bytes by which 'auto' decides on tiles; None: those that are free at that moment count
    recommended, careful       what the checkpoint recommends: a solver, and when to leave an image as it is
    metadata                   what the checkpoint records; `save_pretrained` needs it

    A network that has learned nothing serves as an example:

    >>> from codes.networks import build_network
    >>> setting = {"width": 8, "enc_blk_nums": [1], "middle_blk_num": 1, "dec_blk_nums": [1]}
    >>> network = build_network("ConditionalNAFNet", setting)
    >>> restorer = Restorer(network=network, sde=MeanRevertingSDE(), fit_target="velocity")
    >>> image = torch.rand(3, 24, 32)
    >>> restored = restorer(image, nfe=4, seed=0)
    >>> restored.shape
    torch.Size([3, 24, 32])
    >>> several = restorer.sample(image, n=3, nfe=4, seed=0)
    >>> several.seeds, several.nfe, several.std.shape
    ((0, 1, 2), 4, torch.Size([3, 24, 32]))
    >>> bool((several.sample == restored).all())
    True
    """

    network: nn.Module = field(repr=False)
    sde: MeanRevertingSDE
    fit_target: str
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    solvers: tuple[PlannedSolver, ...] = ()
    daclip: DaCLIP | None = field(default=None, repr=False)
    latent: LatentUNet | None = field(default=None, repr=False)
    precision: str = "auto"
    compile: bool = False
    tile: Tile = "auto"
    memory: float | None = None
    recommended: Solver | None = None
    careful: CarefulRule | None = None
    metadata: Metadata | None = field(default=None, repr=False)

    def __call__(
        self,
        image: Image,
        *,
        nfe: int | None = None,
        seed: int = 0,
        algorithm: str | Solver | None = None,
        tile: Tile | None = None,
        strength: float | None = None,
        callback: Callback | None = None,
    ) -> Tensor:
        """Restore an image; the result is an image of the same size, on the CPU, in [0, 1].

        image        a tensor (3, H, W) in [0, 1], an array (H, W, 3) or (H, W), or a PIL image
        nfe          number of network evaluations: time against quality
        seed         seed of the sampler's noise; the same seed gives the same image. `test.py` records the seed of
                     each of its images: passed here, it gives that image
        algorithm    the name of a solver, or a `Solver` with all its options. A name stands for the option file's
                     settings of it, but never for the published version (`compat: official`), which a `Solver` asks
                     for. By default the option file's, else the checkpoint's; where a file lists several, the
                     recommended one if it is among them, else the first
        tile         side of overlapping tiles in pixels, 'off' or 'auto'; by default the restorer's own
        strength     from 0, the image as it is, to 1, the whole restoration. By default the checkpoint's rule decides:
                     1 for what is clearly degraded, 0 for what looks clean; 1 where a checkpoint has no rule
        callback     called after each evaluation with a `StepInfo`; an exception it raises stops the restoration
        """
        return self.sample(
            image, n=1, nfe=nfe, seed=seed, algorithm=algorithm, tile=tile, strength=strength, callback=callback
        ).sample

    def sample(
        self,
        image: Image,
        n: int = 4,
        *,
        nfe: int | None = None,
        seed: int = 0,
        algorithm: str | Solver | None = None,
        tile: Tile | None = None,
        strength: float | None = None,
        callback: Callback | None = None,
        progress: Progress | None = None,
        return_trajectory: bool = False,
    ) -> Restoration:
        """Draw n restorations of an image, with the seeds seed, seed + 1, ...; arguments as in a call.

        callback            called after each evaluation; its `step` of `steps` counts through all samples
        progress            called after each evaluation of a tile with the share of the work that is done, from 0 to 1;
                            an exception it raises stops the restoration
        return_trajectory   keep the states between the evaluations
        """
        check_whole("n", n, 1, defaults.MOST_SAMPLES)
        check_whole("seed", seed, 0, defaults.LARGEST_SEED - n)
        check_strength(strength)
        if tile is not None:
            check_tile(tile)
        restorer = self if tile is None else replace(self, tile=tile)
        lq = as_image(image)
        plan = self.plan(algorithm, nfe)
        seeds = tuple(range(seed, seed + n))
        recognised = self.recognise(lq)
        if self.left_alone(strength, recognised):
            unchanged = lq.clamp(0, 1).expand(n, -1, -1, -1).clone()
            return Restoration(samples=unchanged, seeds=seeds, nfe=0, strength=0.0, recognised=recognised)
        parts = restorer._samples(lq.to(self.device), plan, seeds, callback, progress, return_trajectory)
        samples = _joined([part.samples for part in parts])
        if strength is None:
            strength = self.careful_strength(recognised, lq, samples[0])
        return Restoration(
            samples=blended(lq, samples, strength),
            seeds=seeds,
            nfe=parts[0].nfe,
            tile=parts[0].tile,
            trajectory=tuple(
                _joined(list(states)) for states in zip(*(part.trajectory for part in parts), strict=True)
            ),
            strength=strength,
            recognised=recognised,
        )

    def _samples(
        self,
        lq: Tensor,
        plan: Plan,
        seeds: Sequence[int],
        callback: Callback | None,
        progress: Progress | None,
        return_trajectory: bool,
    ) -> list[Restoration]:
        """Restorations of one image at full strength, as many at once as fit."""
        n = len(seeds)
        size = self.samples_at_once(lq, n)
        parts: list[Restoration] = []
        for done in range(0, n, size):
            chosen = seeds[done : done + size]
            parts.append(
                self.batch(
                    lq.expand(len(chosen), -1, -1, -1),
                    plan,
                    [torch.Generator().manual_seed(s) for s in chosen],
                    callback=counted(callback, done // size * plan.nfe, -(-n // size) * plan.nfe),
                    progress=within(progress, done / n, len(chosen) / n),
                    return_trajectory=return_trajectory,
                )
            )
        return parts

    @torch.inference_mode()
    def batch(
        self,
        lq: Tensor,
        plan: Plan,
        generators: Sequence[torch.Generator],
        *,
        callback: Callback | None = None,
        progress: Progress | None = None,
        return_trajectory: bool = False,
    ) -> Restoration:
        """Restore equally large images (B, 3, H, W) in [0, 1] with a plan; image i draws its noise from generators[i].

        On a CPU one image at a time: a batch is no faster there, and kernels chosen by batch size would change the
        last bits of the result. On a GPU as many as need no smaller tiles than a single image.
        """
        count = self.samples_at_once(lq[0], len(lq))
        if count < len(lq):
            share = count / len(lq)
            parts = [
                self.batch(
                    lq[i : i + count],
                    plan,
                    generators[i : i + count],
                    callback=callback,
                    progress=within(progress, i / len(lq), share),
                    return_trajectory=return_trajectory,
                )
                for i in range(0, len(lq), count)
            ]
            states = tuple(torch.cat(step) for step in zip(*(part.trajectory for part in parts), strict=True))
            images = torch.cat([part.samples for part in parts])
            return Restoration(samples=images, nfe=parts[0].nfe, tile=parts[0].tile, trajectory=states)
        tile = self.tile_for(lq)
        while True:
            # A second attempt after an out-of-memory error must draw the same noise again.
            before = [generator.get_state() for generator in generators]
            try:
                return self._restore(lq, plan, generators, tile, callback, progress, return_trajectory)
            except torch.OutOfMemoryError:
                for generator, state in zip(generators, before, strict=True):
                    generator.set_state(state)
                smaller = max(min(lq.shape[-2:]) if tile is None else tile, SMALLEST_TILE) // 2
                if smaller < SMALLEST_TILE:
                    raise
                tile = smaller
                torch.cuda.empty_cache()
                log.warning("out of memory: retrying with tiles of %d pixels", tile)

    def _restore(
        self,
        lq: Tensor,
        plan: Plan,
        generators: Sequence[torch.Generator],
        tile: int | None,
        callback: Callback | None,
        progress: Progress | None,
        return_trajectory: bool,
    ) -> Restoration:
        network, mu = self.predictor(lq), lq
        if progress is not None:
            height, width = lq.shape[-2:]
            network = reporting(network, progress, plan.nfe * tile_count(height, width, tile))
        if self.latent is not None:
            mu, skips = self.latent.encode(lq)
            plan = replace(plan, clamp=None, threshold=None)  # latents have no image range
        output = sample(
            network if tile is None else tiled(network, tile, fitted=not self.compile),
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
        return Restoration(samples=images.clamp(0, 1), nfe=output.nfe, tile=tile, trajectory=states)

    def predictor(self, lq: Tensor) -> Network:
        """The network for a batch of images, with their contexts."""
        text_context = image_context = None
        if self.daclip is not None:
            features = self.daclip.controlled(self.daclip.preprocess(lq))
            # The published names: the degradation's features go in as text context. Some networks take one of the two.
            if getattr(self.network, "takes_image_context", True):
                image_context = features.image.float()
            if getattr(self.network, "takes_text_context", True):
                text_context = features.degradation.float()
        return predictor(
            self.network,
            degraded=lq,
            text_context=text_context,
            image_context=image_context,
            precision=self.precision,
            compile=self.compile,
        )

    def solver(self, algorithm: str | Solver | None = None, nfe: int | None = None) -> Solver:
        """The solver that a call with these arguments uses."""
        if isinstance(algorithm, Solver):
            chosen = algorithm
        else:
            fitting = [solver for _, solver, _ in self.solvers if algorithm in (None, solver.algorithm)]
            if algorithm is not None:  # a name means our solver, also where a file has the published version of it
                fitting = [solver for solver in fitting if solver.compat is None]
            usual = self.recommended or Solver(**defaults.SOLVER)
            plain = usual if algorithm in (None, usual.algorithm) and self.recommended else None
            plain = plain or (Solver(algorithm) if algorithm else usual)
            chosen = min(
                fitting or [plain], key=lambda each: (each.algorithm != usual.algorithm, each.nfe != usual.nfe)
            )
        if nfe is None:
            return chosen
        # The published denoising has one number of evaluations.
        return replace(chosen, num_sample_steps=nfe, compat=chosen.compat if self.sde.reverts else None)

    def plan(self, algorithm: str | Solver | None = None, nfe: int | None = None) -> Plan:
        """The steps of that solver."""
        chosen = self.solver(algorithm, nfe)
        made = (plan for _, solver, plan in self.solvers if solver == chosen)
        return next(made, None) or make_plan(self.sde, chosen)

    @property
    def recognises(self) -> bool:
        """Whether `recognise` has an answer."""
        return self.daclip is not None or isinstance(self.network, Recognises)

    def recognise(self, image: Image) -> dict[str, float] | None:
        """The degradations of an image with their probabilities, most likely first; None if nothing recognises them.

        By DA-CLIP where it is loaded: the ten degradations, since it has never seen a clean image. Otherwise by the
        network itself, where it has learned to: the ten degradations, and 'none'.
        """
        rgb = as_image(image)
        if self.daclip is not None:
            (found,) = self.daclip.describe(rgb.to(self.device))
        elif isinstance(self.network, Recognises):
            with torch.inference_mode():
                logits = self.network.recognise(rgb[None].to(self.device))[1]
            found = dict(zip(KINDS, logits[0].double().softmax(0).tolist(), strict=True))
        else:
            return None
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def left_alone(self, strength: float | None, recognised: dict[str, float] | None) -> bool:
        """Whether the strength is 0 whatever the restoration would be, so that none is computed."""
        if strength is not None or self.careful is None:
            return strength == 0
        return self.careful.bounds(_none(recognised))[1] == 0

    def careful_strength(self, recognised: dict[str, float] | None, lq: Tensor, restored: Tensor) -> float:
        """The strength by the checkpoint's rule, from what was recognised and the change that was made."""
        if self.careful is None:
            return 1.0
        return self.careful.strength(_none(recognised), decibels(float(F.mse_loss(restored, lq))))

    def tile_for(self, lq: Tensor) -> int | None:
        """The side of the tiles that a batch is cut into, None if it is taken whole."""
        height, width = lq.shape[-2:]
        if self.latent is not None or self.tile == "off":
            return None  # a latent image is 8 times smaller
        if isinstance(self.tile, int):
            return self.tile if max(height, width) > self.tile else None
        if self.compile:
            height, width = fixed_side(height), fixed_side(width)
        budget = memory_budget(self.device) if self.memory is None else self.memory
        tile = tile_within(budget, bytes_per_pixel(self.network), height, width, len(lq))
        return fixed_side_within(tile) if self.compile and tile is not None else tile

    def memory_for(self, pixels: int, n: int = 1) -> float:
        """About the bytes that n restorations of an image take on a CPU, where they are drawn one after the other."""
        side = math.isqrt(pixels) + 1
        tile = self.tile_for(torch.empty(1, 3, side, side, device="meta"))
        at_once = pixels if tile is None else min(pixels, tile**2)
        return (BYTES_PER_PIXEL + 12 * n) * pixels + bytes_per_pixel(self.network) * at_once

    def samples_at_once(self, lq: Tensor, n: int) -> int:
        """How many of n samples are drawn at once: on a GPU as many as need no smaller tiles than a single one."""
        size = n if self.device.type == "cuda" else 1
        alone = self.tile_for(lq[None]) if size > 1 else None
        while size > 1 and self.tile_for(lq.expand(size, -1, -1, -1)) != alone:
            size //= 2
        return size


def decibels(error: float) -> float:
    """A mean squared error as PSNR, at most 120 dB."""
    return -10 * math.log10(max(error, 1e-12))


def blended(lq: Tensor, samples: Tensor, strength: float) -> Tensor:
    """From the image as it is (0) to its restorations (1); the ends are exact."""
    if strength == 1:
        return samples
    return torch.lerp(lq.clamp(0, 1).expand_as(samples), samples, strength)


def _none(recognised: dict[str, float] | None) -> float:
    """The probability of no degradation, even odds where nothing is known."""
    return 0.5 if recognised is None else recognised.get(NONE, 0.5)


def _joined(parts: list[Tensor]) -> Tensor:
    """One tensor on the CPU that may be changed and differentiated, unlike those made in inference mode."""
    return torch.cat(parts).cpu().clone()
