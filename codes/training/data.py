"""Training data: pairs of patches, with a time and noise for each.

A sample is a function of the seed, the step and its index in the batch of all processes, and of nothing else: neither
the number of reading or training processes nor interruptions of the run change it.
"""

import functools
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from ..data.degradations import DEGRADATIONS, LEAST, Degrade, TooSmall, enlarged
from ..data.images import ImageError, from_uint8, read_image, to_uint8
from ..data.pairs import Item
from ..data.resizing import scaled
from ..data.varied import tensor_pair

Pixels = NDArray[np.uint8]  # (H, W, 3)

# Degradations whose structure scales with the image, so a larger region is degraded before the patch is cut.
WIDE = tuple(name for name, row in DEGRADATIONS.items() if row.wide)
# Distance in pixels from which blur, drops and streaks reach into a patch.
MARGIN = 64
# Side of the whole images that patches should look like parts of.
WHOLE = 256
# Shares of self-generated states that hold the degraded image, and an estimate at a time between t and T.
_DEGRADED, _IN_BETWEEN = 0.1, 0.4
# Side of JPEG's blocks: patches start at a block's corner, as whole images do.
BLOCK = 8


@dataclass(frozen=True, kw_only=True)
class TrainTask:
    """Images of one kind: pairs, or clean images and how to degrade them."""

    name: str
    items: tuple[Item, ...]
    degradation: Callable[[], Degrade] | None = None
    enlarge: int = 1
    varied: bool = False  # degraded in several ways and strengths (codes/data/varied)
    mixed_share: float = 0.0  # with `varied`: how often a second degradation follows


@dataclass(frozen=True)
class Times:
    """How times are drawn: `weights[t - 1]` for t = 1..T.

    prior_share  share of samples whose state is exactly the prior, at t = T
    self_share   share of samples at other times whose state is self-generated, against exposure bias: a tenth hold the
                 degraded image, the others the network's own estimate at a later time, in place of the clean image
    """

    weights: tuple[float, ...]
    prior_share: float = 0.0
    self_share: float = 0.0

    @functools.cached_property
    def cumulative(self) -> NDArray[np.float64]:
        total = np.cumsum(np.asarray(self.weights, np.float64))
        return np.asarray(total / total[-1])

    def draw(self, rng: np.random.Generator) -> tuple[int, bool, int]:
        """The time t, whether the state is the prior, and the query time (see Objective.state_content).

        The query time is 0 for a state made from the clean image, t for one made from the degraded image, and later
        than t for one made from the network's estimate at that time.
        """
        share, position = rng.uniform(size=2)
        last = len(self.weights)
        if share < self.prior_share:
            return last, True, 0
        t = min(int(np.searchsorted(self.cumulative, position, side="right")), last - 1) + 1
        if share < self.prior_share + self.self_share:
            # A tenth: the degraded image. Half: the estimate at T, where every sampler begins. The others: in between.
            kind = rng.uniform()
            if kind >= _IN_BETWEEN:
                return t, False, t if kind > 1 - _DEGRADED else last
            return t, False, t + math.ceil((last - t) * kind / _IN_BETWEEN)
        return t, False, 0


@dataclass(frozen=True, kw_only=True)
class DataPlan:
    """All choices about the data. `batch` counts the samples of a step over all processes."""

    tasks: tuple[TrainTask, ...]
    times: Times
    patch: int
    batch: int
    seed: int = 0
    flip: bool = True
    rotate: bool = True
    # Clean images are shrunk by a random factor between this and 1 before they are degraded.
    min_scale: float = 1.0
    shuffle: bool = True
    swap: bool = False  # exchange the degraded and the clean image of half of the pairs
    # Whether the tasks share their images (clean ones, degraded on the fly) or have a folder each (mode MD).
    shared_images: bool = False
    weights: tuple[float, ...] | None = None  # of the tasks; None: equal
    noise_shape: tuple[int, int, int] | None = None  # of latents; None: that of the patch
    clip_size: int | None = None  # side of DA-CLIP's input images; None without DA-CLIP
    patches: tuple[tuple[int, int], ...] = ()  # (step, side): the side from this step on, in order
    cache: int = 1 << 30  # bytes of decoded images that a reading process keeps

    @property
    def length(self) -> int:
        """Images of an epoch."""
        return len(self.tasks[0].items) if self.shared_images else sum(len(task.items) for task in self.tasks)

    def patch_at(self, step: int) -> int:
        """The side of a step's patches."""
        return next((patch for start, patch in reversed(self.patches) if step >= start), self.patch)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Samples as tensors: degraded `lq` and clean `gt` in [0, 1], noise, and what `Times.draw` returns."""

    lq: Tensor
    gt: Tensor
    noise: Tensor
    t: Tensor
    from_prior: Tensor
    query_time: Tensor
    lots: Tensor  # (B, 2) uniform numbers, for further random choices about a sample
    names: tuple[str, ...]
    clip: Tensor | None = None  # the degraded patches as DA-CLIP's input
    kinds: Tensor | None = None  # shares of the degradations in the images, where they are known

    def __len__(self) -> int:
        return len(self.lq)

    def part(self, rows: slice) -> "Batch":
        """Some of the samples."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{key: value[rows] for key, value in given.items() if value is not None})

    def pin_memory(self) -> "Batch":
        """The same with images in pinned memory; DataLoader calls it where there is a GPU."""
        return self._with_images(torch.Tensor.pin_memory)

    def to(self, device: torch.device) -> "Batch":
        """The same on a device; times and random choices stay on the CPU, where they index tables."""
        return self._with_images(lambda image: image.to(device, non_blocking=True))

    def _with_images(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        given = {key: getattr(self, key) for key in ("lq", "gt", "noise", "clip", "kinds")}
        changed: dict[str, Any] = {key: change(value) for key, value in given.items() if value is not None}
        return replace(self, **changed)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One row of a batch, or the reason why there is none."""

    lq: Tensor | None = None
    gt: Tensor | None = None
    noise: Tensor | None = None
    t: int = 0
    from_prior: bool = False
    query_time: int = 0
    lots: tuple[float, ...] = ()
    name: str = ""
    clip: Tensor | None = None
    kinds: Tensor | None = None
    problem: str = ""


@dataclass
class ImageCache:
    """Decoded images by path: the most recently used ones, up to a number of bytes."""

    limit: int
    size: int = 0
    images: OrderedDict[str, Pixels] = field(default_factory=OrderedDict)

    def read(self, path: str) -> Pixels:
        """The pixels of a file, from memory if possible."""
        if path in self.images:
            self.images.move_to_end(path)
            return self.images[path]
        pixels = to_uint8(read_image(path))
        self.images[path] = pixels
        self.size += pixels.nbytes
        while self.size > self.limit and len(self.images) > 1:
            self.size -= self.images.popitem(last=False)[1].nbytes
        return pixels


class TrainingSet(Dataset[Sample]):
    """The samples of all steps: number n is index n mod batch of step n // batch."""

    def __init__(self, plan: DataPlan) -> None:
        self.plan = plan
        self._cache = ImageCache(plan.cache)
        self._order: tuple[int, NDArray[np.int64]] | None = None
        self._degrade: dict[str, Degrade] = {}

    def __getitem__(self, number: int) -> Sample:
        step, index = divmod(number, self.plan.batch)
        try:
            return self._sample(number, step, index)
        except ImageError as error:
            return Sample(problem=str(error))

    def _sample(self, number: int, step: int, index: int) -> Sample:
        plan = self.plan
        # Separate streams: the number of draws a degradation makes must not change time and noise.
        rng, late = (np.random.default_rng((plan.seed, step, index, stream)) for stream in (0, 1))
        task, item = self._choose(number, rng)
        kinds = None
        if task.varied:
            gt, lq, kinds = self._varied(task, item, plan.patch_at(step), rng)
        elif task.degradation is not None:
            gt, lq = self._degraded(task, item, plan.patch_at(step), rng)
        else:
            gt, lq = self._pair(task, item, plan.patch_at(step), rng)
        t, from_prior, query_time = plan.times.draw(late)
        noise = late.standard_normal(plan.noise_shape or tuple(gt.shape), dtype=np.float32)
        clip = None
        if plan.clip_size is not None:
            from ..networks.daclip import clip_transform

            clip = clip_transform(lq[None], plan.clip_size)[0]
        return Sample(
            lq=lq,
            gt=gt,
            noise=torch.from_numpy(noise),
            t=t,
            from_prior=from_prior,
            query_time=query_time,
            lots=tuple(late.uniform(size=2)),
            name=f"{task.name}/{item.name}",
            clip=clip,
            kinds=kinds,
        )

    def _choose(self, number: int, rng: np.random.Generator) -> tuple[TrainTask, Item]:
        """The task and image of a sample: every image once per epoch; in mode MD tasks in turn, each with any image."""
        plan = self.plan
        epoch, position = divmod(number, plan.length)
        drawn, uniform = rng.uniform(size=2)
        if plan.shuffle:
            if self._order is None or self._order[0] != epoch:
                self._order = epoch, np.random.default_rng((plan.seed, epoch, 0, 2)).permutation(plan.length)
            position = int(self._order[1][position])
        weighted = plan.weights is not None or plan.shared_images
        if weighted and len(plan.tasks) > 1:
            share = np.cumsum(plan.weights or (1.0,) * len(plan.tasks))
            task = plan.tasks[min(int(np.searchsorted(share, drawn * share[-1], side="right")), len(plan.tasks) - 1)]
        else:
            task = plan.tasks[position % len(plan.tasks)]
        own = plan.shared_images or len(plan.tasks) == 1
        return task, task.items[position if own else int(uniform * len(task.items))]

    def _degraded(self, task: TrainTask, item: Item, patch: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """A patch of a clean image, degraded as part of something larger.

        A patch degraded by itself would not look like part of a degraded image: haze would thicken within 64 pixels,
        and blur would have mirrored borders. The region is flipped before, so that rain still falls down.
        """
        assert task.degradation is not None
        if task.name not in self._degrade:
            self._degrade[task.name] = task.degradation()
        clean = self._region(task, item, patch, rng)
        try:
            degraded = self._degrade[task.name](clean, rng)
        except TooSmall as error:
            raise ImageError(f"{item.gt}: {error}") from error
        return self._patch(clean, patch, rng, degraded)

    def _varied(
        self, task: TrainTask, item: Item, patch: int, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """`_degraded` with the generators of codes/data/varied.py; also the shares of degradations in the patch."""
        clean, degraded, kinds = tensor_pair(task.name, task.mixed_share)(self._region(task, item, patch, rng), rng)
        return (*self._patch(clean, patch, rng, degraded), kinds)

    def _region(self, task: TrainTask, item: Item, patch: int, rng: np.random.Generator) -> Tensor:
        """The region that is degraded for a patch: a larger part of the image, shrunk and flipped."""
        assert item.gt is not None
        pixels = self._cache.read(str(item.gt))
        around = patch + MARGIN
        side = max(around, min(3 * patch, WHOLE)) if task.name in WIDE else around
        # Not every rule needs LEAST pixels: the published noise does not, and those that do say so.
        _check_size(pixels, max(patch, LEAST) if task.varied else patch, str(item.gt))
        short = min(pixels.shape[:2])
        # Log-uniform, but large enough to leave a whole patch, and what can be degraded.
        scale = max(self.plan.min_scale ** rng.uniform(), max(patch, min(LEAST, short)) / short)
        height, width = (min(round(side / scale), length) for length in pixels.shape[:2])
        region = _window(pixels, height, width, _corner(pixels, height, width, rng))
        return from_uint8(self._turned(scaled(region, scale), rng.uniform(size=3)))

    def _patch(self, clean: Tensor, patch: int, rng: np.random.Generator, degraded: Tensor) -> tuple[Tensor, Tensor]:
        """The same patch of both, aligned with JPEG's blocks."""
        top, left = (int(rng.integers((length - patch) // BLOCK + 1)) * BLOCK for length in clean.shape[1:])
        rows, columns = slice(top, top + patch), slice(left, left + patch)
        return clean[:, rows, columns].contiguous(), degraded[:, rows, columns].contiguous()

    def _pair(self, task: TrainTask, item: Item, patch: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """The same patch of a clean image and its degraded one, which may be smaller (super-resolution)."""
        assert item.gt is not None and item.lq is not None
        scale = task.enlarge
        gt, lq = self._cache.read(str(item.gt)), self._cache.read(str(item.lq))
        height, width = (length // scale * scale for length in gt.shape[:2])
        if lq.shape[0] * scale != height or lq.shape[1] * scale != width:
            raise ImageError(
                f"{item.lq}: {lq.shape[1]}x{lq.shape[0]} does not fit {item.gt}, {gt.shape[1]}x{gt.shape[0]}"
                + (f" at scale {scale}" if scale > 1 else "")
            )
        if patch % scale:
            raise ImageError(f"{item.gt}: a patch of {patch} pixels is no multiple of the scale {scale}")
        small = patch // scale
        _check_size(lq, small, str(item.lq))
        top, left = _corner(lq, small, small, rng)
        clean = _window(gt, patch, patch, (top * scale, left * scale))
        degraded = _window(lq, small, small, (top, left))
        turns = rng.uniform(size=3)
        mu = from_uint8(self._turned(degraded, turns))
        pair = from_uint8(self._turned(clean, turns)), enlarged(mu, scale) if scale > 1 else mu
        return pair[::-1] if self.plan.swap and rng.uniform() < 0.5 else pair

    def _turned(self, pixels: Pixels, turns: NDArray[np.float64]) -> Pixels:
        """Mirrored left-right (flip), top-bottom and along the diagonal (rotate), each with probability 1/2."""
        flip, upset, transpose = turns < 0.5
        if self.plan.flip and flip:
            pixels = pixels[:, ::-1]
        if self.plan.rotate and upset:
            pixels = pixels[::-1]
        if self.plan.rotate and transpose:
            pixels = pixels.transpose(1, 0, 2)
        return np.ascontiguousarray(pixels)


def _check_size(pixels: Pixels, patch: int, name: str) -> None:
    height, width = pixels.shape[:2]
    if min(height, width) < patch:
        raise ImageError(f"{name}: {width}x{height} is smaller than the patches of {patch}x{patch}")


def _corner(pixels: Pixels, height: int, width: int, rng: np.random.Generator) -> tuple[int, int]:
    """A random place for a window; 0 along a side where the window is as large as the image or larger."""
    free = (max(0, length - side) for length, side in zip(pixels.shape[:2], (height, width)))
    top, left = (int(rng.integers(space + 1)) for space in free)
    return top, left


def _window(pixels: Pixels, height: int, width: int, corner: tuple[int, int]) -> Pixels:
    return pixels[corner[0] : corner[0] + height, corner[1] : corner[1] + width]


def collate(samples: Sequence[Sample]) -> Batch | str:
    """Samples as a batch, or the first reason why there is none."""
    problem = next((sample.problem for sample in samples if sample.problem), None)
    if problem is not None:
        return problem

    def column(key: str) -> list[Any]:
        return [getattr(sample, key) for sample in samples]

    images = {key: torch.stack(column(key)) for key in ("lq", "gt", "noise")}
    numbers = {key: torch.tensor(column(key)) for key in ("t", "from_prior", "query_time", "lots")}
    extras = {key: torch.stack(column(key)) for key in ("clip", "kinds") if getattr(samples[0], key) is not None}
    return Batch(**images, **numbers, **extras, names=tuple(column("name")))
