"""Network, schedule and solver put together: from a degraded image to a restored one."""

from __future__ import annotations  # `help` shows the short names of types

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from .. import defaults
from ..data.images import Image, as_image
from ..networks.memory import bytes_per_pixel
from ..networks.predictor import predictor
from ..runtime.device import memory_budget
from ..sde import MeanRevertingSDE
from ..solvers import Plan, PlannedSolver, Solver, StepInfo, make_plan, sample
from ..solvers.sampling import Network
from .tiling import SMALLEST_TILE, tile_within, tiled

if TYPE_CHECKING:
    from ..networks.daclip import DaCLIP
    from ..networks.latent import LatentUNet

log = logging.getLogger(__name__)

Callback = Callable[[StepInfo], None]
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
    """

    samples: Tensor
    seeds: tuple[int, ...] = ()
    nfe: int
    tile: int | None = None
    trajectory: tuple[Tensor, ...] = ()

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
class Restorer:
    """Restores images; `load_restorer` makes one from an option file or a checkpoint.

    network, sde, fit_target   the network, the schedule it was trained with, and what it predicts
    solvers                    those of the option file, with labels and plans; the default solver where there are none
    daclip, latent             DA-CLIP's encoder, the network between images and latents, where the network needs them
    tile                       side of overlapping tiles in pixels, 'off' or 'auto' (tiles where memory demands them)

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

    def __call__(
        self,
        image: Image,
        *,
        nfe: int | None = None,
        seed: int = 0,
        algorithm: str | Solver | None = None,
        tile: Tile | None = None,
        callback: Callback | None = None,
    ) -> Tensor:
        """Restore an image; the result is an image of the same size, on the CPU, in [0, 1].

        image        a tensor (3, H, W) in [0, 1], an array (H, W, 3) or (H, W), or a PIL image
        nfe          number of network evaluations: time against quality
        seed         seed of the sampler's noise; the same seed gives the same image. `test.py` records the seed of
                     each of its images: passed here, it gives that image
        algorithm    the name of a solver, or a `Solver` with all its options. By default the option file's; where that
                     lists several, the project's default if it is among them, else the first
        tile         side of overlapping tiles in pixels, 'off' or 'auto'; by default the restorer's own
        callback     called after each evaluation with a `StepInfo`; an exception it raises stops the restoration
        """
        return self.sample(image, n=1, nfe=nfe, seed=seed, algorithm=algorithm, tile=tile, callback=callback).sample

    def sample(
        self,
        image: Image,
        n: int = 4,
        *,
        nfe: int | None = None,
        seed: int = 0,
        algorithm: str | Solver | None = None,
        tile: Tile | None = None,
        callback: Callback | None = None,
        return_trajectory: bool = False,
    ) -> Restoration:
        """Draw n restorations of an image, with the seeds seed, seed + 1, ...; arguments as in a call.

        callback            called after each evaluation; its `step` of `steps` counts through all samples
        return_trajectory   keep the states between the evaluations
        """
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}")
        restorer = self if tile is None else replace(self, tile=tile)
        lq = as_image(image).to(self.device)
        plan = self.plan(algorithm, nfe)
        seeds = tuple(range(seed, seed + n))
        size = restorer.samples_at_once(lq, n)
        parts: list[Restoration] = []
        for done in range(0, n, size):
            chosen = seeds[done : done + size]
            parts.append(
                restorer.batch(
                    lq.expand(len(chosen), -1, -1, -1),
                    plan,
                    [torch.Generator().manual_seed(s) for s in chosen],
                    callback=_counted(callback, done // size * plan.nfe, -(-n // size) * plan.nfe),
                    return_trajectory=return_trajectory,
                )
            )
        return Restoration(
            samples=_joined([part.samples for part in parts]),
            seeds=seeds,
            nfe=parts[0].nfe,
            tile=parts[0].tile,
            trajectory=tuple(
                _joined(list(states)) for states in zip(*(part.trajectory for part in parts), strict=True)
            ),
        )

    @torch.inference_mode()
    def batch(
        self,
        lq: Tensor,
        plan: Plan,
        generators: Sequence[torch.Generator],
        *,
        callback: Callback | None = None,
        return_trajectory: bool = False,
    ) -> Restoration:
        """Restore equally large images (B, 3, H, W) in [0, 1] with a plan; image i draws its noise from generators[i].

        On a CPU one image at a time: a batch is no faster there, and kernels chosen by batch size would change the
        last bits of the result.
        """
        if self.device.type == "cpu" and len(lq) > 1:
            parts = [
                self.batch(lq[i : i + 1], plan, [generator], callback=callback, return_trajectory=return_trajectory)
                for i, generator in enumerate(generators)
            ]
            states = tuple(torch.cat(step) for step in zip(*(part.trajectory for part in parts), strict=True))
            images = torch.cat([part.samples for part in parts])
            return Restoration(samples=images, nfe=parts[0].nfe, tile=parts[0].tile, trajectory=states)
        tile = self.tile_for(lq)
        while True:
            # A second attempt after an out-of-memory error must draw the same noise again.
            before = [generator.get_state() for generator in generators]
            try:
                return self._restore(lq, plan, generators, tile, callback, return_trajectory)
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
        return_trajectory: bool,
    ) -> Restoration:
        network, mu = self.predictor(lq), lq
        if self.latent is not None:
            mu, skips = self.latent.encode(lq)
            plan = replace(plan, clamp=None, threshold=None)  # latents have no image range
        output = sample(
            network if tile is None else tiled(network, tile),
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

    def solver(self, algorithm: str | Solver | None = None, nfe: int | None = None) -> Solver:
        """The solver that a call with these arguments uses."""
        if isinstance(algorithm, Solver):
            chosen = algorithm
        else:
            fitting = [solver for _, solver, _ in self.solvers if algorithm in (None, solver.algorithm)]
            plain = Solver(algorithm) if algorithm else Solver(**defaults.SOLVER)
            usual = defaults.SOLVER["algorithm"]
            chosen = min(fitting or [plain], key=lambda solver: (solver.algorithm != usual, solver.nfe != defaults.NFE))
        return chosen if nfe is None else replace(chosen, num_sample_steps=nfe)

    def plan(self, algorithm: str | Solver | None = None, nfe: int | None = None) -> Plan:
        """The steps of that solver."""
        chosen = self.solver(algorithm, nfe)
        made = (plan for _, solver, plan in self.solvers if solver == chosen)
        return next(made, None) or make_plan(self.sde, chosen)

    def describe(self, image: Image) -> dict[str, float]:
        """The degradations that DA-CLIP recognises, with their probabilities, most likely first."""
        if self.daclip is None:
            raise ValueError("no DA-CLIP encoder is loaded: name one as path.daclip in the option file")
        (found,) = self.daclip.describe(as_image(image))
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def tile_for(self, lq: Tensor) -> int | None:
        """The side of the tiles that a batch is cut into, None if it is taken whole."""
        height, width = lq.shape[-2:]
        if self.latent is not None or self.tile == "off":
            return None  # a latent image is 8 times smaller
        if isinstance(self.tile, int):
            return self.tile if max(height, width) > self.tile else None
        return tile_within(memory_budget(self.device), bytes_per_pixel(self.network), height, width, len(lq))

    def samples_at_once(self, lq: Tensor, n: int) -> int:
        """How many of n samples are drawn at once: on a GPU as many as need no smaller tiles than a single one."""
        size = n if self.device.type == "cuda" else 1
        alone = self.tile_for(lq[None])
        while size > 1 and self.tile_for(lq.expand(size, -1, -1, -1)) != alone:
            size //= 2
        return size


def _counted(callback: Callback | None, before: int, total: int) -> Callback | None:
    """The callback with steps counted through all samples."""
    if callback is None:
        return None
    return lambda info: callback(replace(info, step=before + info.step, steps=total))


def _joined(parts: list[Tensor]) -> Tensor:
    """One tensor on the CPU that may be changed and differentiated, unlike those made in inference mode."""
    return torch.cat(parts).cpu().clone()
