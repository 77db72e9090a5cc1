"""Restoring images from Python.

    from codes import load_restorer, read_image, save_image

    restorer = load_restorer("options/test.yml")
    restored = restorer(read_image("rainy.png"), nfe=8, seed=0)
    save_image(restored, "clean.png")

An image is a torch tensor (3, H, W), float32, RGB in [0, 1]: `read_image` gives one, a restorer takes and returns one,
`save_image` writes one. A restorer also takes what other libraries call an image: a NumPy array (H, W, 3) or (H, W), of
8 bits or in [0, 1], or a PIL image.
"""

from __future__ import annotations  # `help` shows the short names of types

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, overload

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from .. import defaults
from ..config import Options, build_solvers, options_for
from ..data.images import ImageError, read_image, save_image, to_uint8
from ..evaluation import session
from ..runtime.device import choose_device
from ..runtime.paths import locate
from ..solvers import SOLVERS, Plan, Solver, StepInfo, make_plan
from .restorer import ImageRestorer

__all__ = ["PhotoRestorer", "Restoration", "load_restorer", "read_image", "save_image", "to_uint8"]

Image = ArrayLike | Tensor
Callback = Callable[[StepInfo], None]
Tile = int | Literal["auto", "off"]


class How(TypedDict, total=False):
    """The arguments of a restorer that do not change the type of its result."""

    nfe: int | None
    seed: int
    algorithm: str | Solver | None
    tile: Tile | None
    callback: Callback | None


@dataclass(frozen=True, eq=False)
class Restoration:
    """What a restorer found: K restorations of one image, equally likely as far as the model knows.

    samples      (K, 3, H, W), in [0, 1]
    seeds        the seed of each: `restorer(image, seed=seeds[k])` gives `samples[k]` alone
    nfe          network evaluations that each took
    tile         side of the tiles that the image was cut into, None if it was taken whole
    trajectory   on request: the states of the sampler, (K, 3, H, W) each and not clipped to [0, 1]; first the noisy
                 start, then one after each evaluation
    """

    samples: Tensor
    seeds: tuple[int, ...]
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


@dataclass(frozen=True, eq=False)
class PhotoRestorer:
    """Restores images when it is called; `load_restorer` makes one.

    core      the networks with their schedule, on their device
    solvers   those of the option file

    A network that has learned nothing serves as an example:

    >>> from codes.networks import build_network
    >>> from codes.sde import MeanRevertingSDE
    >>> setting = {"width": 8, "enc_blk_nums": [1], "middle_blk_num": 1, "dec_blk_nums": [1]}
    >>> network = build_network("ConditionalNAFNet", setting)
    >>> restorer = PhotoRestorer(ImageRestorer(network, MeanRevertingSDE(), "velocity", torch.device("cpu")))
    >>> image = torch.rand(3, 24, 32)
    >>> restored = restorer(image, nfe=4, seed=0)
    >>> restored.shape
    torch.Size([3, 24, 32])
    >>> several = restorer(image, nfe=4, seed=0, samples=3)
    >>> several.seeds, several.nfe, several.std.shape
    ((0, 1, 2), 4, torch.Size([3, 24, 32]))
    >>> bool((several.sample == restored).all())
    True
    """

    core: ImageRestorer = field(repr=False)
    solvers: tuple[Solver, ...] = ()

    @overload
    def __call__(
        self,
        image: Image,
        *,
        samples: None = None,
        return_trajectory: Literal[False] = False,
        **how: Unpack[How],
    ) -> Tensor: ...

    @overload
    def __call__(
        self, image: Image, *, samples: int, return_trajectory: bool = False, **how: Unpack[How]
    ) -> Restoration: ...

    @overload
    def __call__(
        self, image: Image, *, samples: int | None = None, return_trajectory: Literal[True], **how: Unpack[How]
    ) -> Restoration: ...

    def __call__(
        self,
        image: Image,
        *,
        nfe: int | None = None,
        seed: int = 0,
        algorithm: str | Solver | None = None,
        samples: int | None = None,
        tile: Tile | None = None,
        callback: Callback | None = None,
        return_trajectory: bool = False,
    ) -> Tensor | Restoration:
        """Restore an image; the result is an image of the same size, on the CPU, in [0, 1].

        image        a tensor (3, H, W) in [0, 1], an array (H, W, 3) or (H, W), or a PIL image
        nfe          number of network evaluations: time against quality
        seed         of the noise that the sampler starts from and adds; the same seed gives the same image. `test.py`
                     writes the seed of each of its images into its records: it gives that image here
        algorithm    the name of a solver, or a `Solver` with all its options. By default the option file's; where that
                     lists several, the project's default if it is among them, else the first
        samples      draw this many, with the seeds seed, seed + 1, ...; the result is then a `Restoration`, with their
                     mean and standard deviation (also for samples=1)
        tile         side of overlapping tiles in pixels, 'off' or 'auto'; by default the option file's
        callback     called after each evaluation with a `StepInfo`, where `step` of `steps` counts through all
                     samples; what it raises stops the restoration
        return_trajectory   keep the states on the way; the result is then a `Restoration`
        """
        if samples is not None and samples < 1:
            raise ValueError(f"samples must be at least 1, got {samples}")
        lq = as_image(image).to(self.core.device)
        core = self.core if tile is None else replace(self.core, tile=tile)
        plan = self.plan(algorithm, nfe)
        seeds = tuple(range(seed, seed + (samples or 1)))
        size = largest_batch(core, lq, len(seeds))
        parts, done = [], 0
        while done < len(seeds):
            chosen = seeds[done : done + size]
            parts.append(
                core(
                    lq.expand(len(chosen), -1, -1, -1),
                    plan,
                    [torch.Generator().manual_seed(s) for s in chosen],
                    _counted(callback, done // size * plan.nfe, -(-len(seeds) // size) * plan.nfe),
                    return_trajectory,
                )
            )
            done += len(chosen)
        restoration = Restoration(
            _joined([part.images for part in parts]),
            seeds,
            parts[0].nfe,
            parts[0].tile,
            tuple(_joined(list(states)) for states in zip(*(part.states for part in parts), strict=True)),
        )
        return restoration if samples is not None or return_trajectory else restoration.sample

    def solver(self, algorithm: str | Solver | None = None, nfe: int | None = None) -> Solver:
        """The solver that a call with these arguments uses."""
        if isinstance(algorithm, Solver):
            chosen = algorithm
        else:
            fitting = [solver for solver in self.solvers if algorithm in (None, solver.algorithm)]
            plain = Solver(algorithm) if algorithm else Solver(**defaults.SOLVER)
            usual = defaults.SOLVER["algorithm"]
            chosen = min(fitting or [plain], key=lambda solver: (solver.algorithm != usual, solver.nfe != defaults.NFE))
        return chosen if nfe is None else replace(chosen, num_sample_steps=nfe)

    def plan(self, algorithm: str | Solver | None = None, nfe: int | None = None) -> Plan:
        """What that solver does, step by step."""
        return make_plan(self.core.sde, self.solver(algorithm, nfe))

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The names that `algorithm` takes."""
        return tuple(SOLVERS)

    def describe(self, image: Image) -> dict[str, float]:
        """The degradations that DA-CLIP recognises, with their probabilities, most likely first."""
        if self.core.daclip is None:
            raise ValueError("no DA-CLIP encoder is loaded: name one as path.daclip in the option file")
        (found,) = self.core.daclip.describe(as_image(image))
        return dict(sorted(found.items(), key=lambda item: -item[1]))


def load_restorer(path: str | Path, device: str = "auto", overrides: Sequence[str] = ()) -> PhotoRestorer:
    """Load a restorer from an option file (.yml), or from a checkpoint that is enough by itself (.safetensors).

    path        an option file: its weights, schedule, solvers, tile and precision hold, its datasets do not matter.
                Or weights, whose metadata tell the network, its prediction and its schedule. A path that does not
                exist is also looked for in the project's folder.
    device      'cpu', 'cuda', 'cuda:1'; 'auto' is what the option file says, else a GPU if there is one
    overrides   options as `test.py --set` takes them, e.g. ["precision=bf16", "path.daclip=pretrained/daclip.pt"]

    Raises OptionsError with a line for each thing that is wrong with the file.

    >>> import tempfile
    >>> from codes.networks import architecture, build
    >>> from codes.networks.checkpoints import Metadata, SDESettings, save_checkpoint
    >>> choice = architecture(
    ...     "ConditionalNAFNet", {"width": 8, "enc_blk_nums": [1], "middle_blk_num": 1, "dec_blk_nums": [1]}
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "untrained.safetensors"
    ...     save_checkpoint(file, build(choice).state_dict(), Metadata(choice, "noise", SDESettings(50)))
    ...     restorer = load_restorer(file, device="cpu")
    >>> restorer.core.fit_target, restorer.solver().algorithm
    ('noise', 'mrsampler')
    >>> restorer(np.zeros((16, 20, 3), np.uint8), nfe=2).shape
    torch.Size([3, 16, 20])
    """
    return restorer_of(options_for(locate(str(path)), overrides), device)


def restorer_of(options: Options, device: str = "auto") -> PhotoRestorer:
    """The restorer of options that have been read."""
    core = session.load_restorer(options, choose_device(options.device if device == "auto" else device))
    return PhotoRestorer(core, tuple(solver for _, solver, _ in build_solvers(options, core.sde)))


def as_image(image: Image) -> Tensor:
    """What users call an image as a tensor (3, H, W), float32 in [0, 1].

    >>> as_image(np.full((4, 6, 3), 255, np.uint8)).shape, as_image(np.zeros((4, 6))).shape
    (torch.Size([3, 4, 6]), torch.Size([3, 4, 6]))
    """
    if isinstance(image, Tensor):
        rgb, expected = image.detach(), "a tensor (3, H, W), RGB in [0, 1]"
        if rgb.ndim != 3 or len(rgb) != 3:
            raise ImageError(f"image: expected {expected}, got shape {tuple(rgb.shape)}")
        if not rgb.is_floating_point():
            raise ImageError(f"image: expected {expected}, got {rgb.dtype}")
    else:
        array: np.ndarray[Any, Any] = np.asarray(image)
        expected = "an array (H, W, 3) or (H, W), of uint8 or in [0, 1]"
        if array.ndim == 2:
            array = np.repeat(array[..., None], 3, axis=2)
        if array.ndim != 3 or array.shape[2] != 3:
            raise ImageError(f"image: expected {expected}, got shape {array.shape}")
        if array.dtype != np.uint8 and not np.issubdtype(array.dtype, np.floating):
            raise ImageError(f"image: expected {expected}, got {array.dtype}")
        scale = 255 if array.dtype == np.uint8 else 1
        rgb = torch.from_numpy(np.ascontiguousarray(array.transpose(2, 0, 1), np.float32) / scale)
    if not rgb.numel():
        raise ImageError(f"image: expected {expected}, got an empty one")
    rgb = rgb.to("cpu", torch.float32)
    low, high = float(rgb.min()), float(rgb.max())
    # A little overshoot is what resizing makes; NaN fails here too.
    if not (low >= -0.5 and high <= 1.5):
        raise ImageError(f"image: expected {expected}, got values from {low:g} to {high:g}")
    return rgb


def largest_batch(core: ImageRestorer, lq: Tensor, samples: int) -> int:
    """How many samples are drawn at once: on a GPU as many as need no smaller tiles than a single one does."""
    size = samples if core.device.type == "cuda" else 1
    alone = core.tile_for(lq[None])
    while size > 1 and core.tile_for(lq.expand(size, -1, -1, -1)) != alone:
        size //= 2
    return size


def _counted(callback: Callback | None, before: int, total: int) -> Callback | None:
    """The callback, told the step within all samples."""
    if callback is None:
        return None
    return lambda info: callback(replace(info, step=before + info.step, steps=total))


def _joined(parts: list[Tensor]) -> Tensor:
    """One tensor on the CPU that may be changed and differentiated, unlike those made in inference mode."""
    return torch.cat(parts).cpu().clone()
