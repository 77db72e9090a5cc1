"""What the network is trained on: pairs of patches, with a time and noise for each.

A sample is a function of the seed, the step and its index in the batch of all processes, and of nothing else: not of
the number of reading processes, of training processes, nor of how often the run was stopped.
"""

import functools
import math
import multiprocessing
import os
import signal
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerContext

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..data.degradations import DEGRADATIONS, Degrade, enlarged
from ..data.images import ImageError, from_uint8, read_image, to_uint8
from ..data.pairs import DataError, Item
from ..data.resizing import scaled
from ..data.varied import tensor_pair

Pixels = NDArray[np.uint8]  # (H, W, 3)

# Degradations whose structure scales with the image: a larger region is degraded before the patch is cut.
WIDE = tuple(name for name, row in DEGRADATIONS.items() if row.wide)
# Blur, drops and streaks reach into the patch from this far.
MARGIN = 64
# The size of images that patches are to look like parts of.
WHOLE = 256
# JPEG's blocks: patches are cut so that they begin with one, as whole images do.
BLOCK = 8

TIME_DISTRIBUTIONS = ("uniform", "late", "lambda")


@dataclass(frozen=True)
class Task:
    """Images of one kind: pairs, or clean images and how to degrade them."""

    name: str
    items: tuple[Item, ...]
    degradation: Callable[[], Degrade] | None = None
    enlarge: int = 1
    varied: bool = False  # degraded in several ways, as codes/data/varied does
    mixed_share: float = 0.0


@dataclass(frozen=True)
class Times:
    """How times are drawn: `weights[t - 1]` for t = 1..T.

    prior_share  of samples that start from the prior
    own_share    of samples at these times whose state holds what a sampler's might: a quarter of them the degraded
                 image, the others what the network finds from that at a later time
    """

    weights: tuple[float, ...]
    prior_share: float = 0.0
    own_share: float = 0.0

    @functools.cached_property
    def cumulative(self) -> NDArray[np.float64]:
        total = np.cumsum(np.asarray(self.weights, np.float64))
        return np.asarray(total / total[-1])

    def draw(self, rng: np.random.Generator) -> tuple[int, bool, int]:
        """A time, whether the state is the prior, and when the network is asked what the state holds.

        The last is 0 for a state that holds the clean image, and the time itself for one that holds the degraded image.
        """
        share, position = rng.uniform(size=2)
        last = len(self.weights)
        if share < self.prior_share:
            return last, True, 0
        t = min(int(np.searchsorted(self.cumulative, position, side="right")), last - 1) + 1
        if share < self.prior_share + self.own_share:
            return t, False, t + max(0, math.ceil((last - t) * rng.uniform(-1 / 3, 1)))
        return t, False, 0


@dataclass(frozen=True)
class Plan:
    """All choices about the data. `batch` counts the samples of a step over all processes."""

    tasks: tuple[Task, ...]
    times: Times
    patch: int
    batch: int
    seed: int = 0
    flip: bool = True
    rotate: bool = True
    # Clean images are shrunk by a random factor between this and 1 before they are degraded.
    min_scale: float = 1.0
    shuffle: bool = True
    # Several tasks share their images (clean ones, degraded in several ways), or have a folder each (mode MD).
    shared_images: bool = False
    weights: tuple[float, ...] | None = None  # of the tasks; None: equal
    noise_shape: tuple[int, int, int] | None = None  # of latents; None: that of the patch
    clip_size: int | None = None  # side of the images that DA-CLIP sees; None: there is none
    patches: tuple[tuple[int, int], ...] = ()  # (step, patch): from this step on, in order
    cache: int = 1 << 30  # bytes of decoded images that a reading process keeps

    @property
    def length(self) -> int:
        """Images of an epoch."""
        return len(self.tasks[0].items) if self.shared_images else sum(len(task.items) for task in self.tasks)

    def patch_at(self, step: int) -> int:
        """The side of a step's patches."""
        return next((patch for start, patch in reversed(self.patches) if step >= start), self.patch)


@dataclass(frozen=True)
class Batch:
    """Samples as tensors: degraded `lq` and clean `gt` in [0, 1], noise, and the three that `Times.draw` tells."""

    lq: Tensor
    gt: Tensor
    noise: Tensor
    t: Tensor
    prior: Tensor
    asked: Tensor
    names: tuple[str, ...]
    clip: Tensor | None = None
    kinds: Tensor | None = None  # shares of what the images suffer from, where that is known

    def __len__(self) -> int:
        return len(self.lq)

    def part(self, rows: slice) -> "Batch":
        """Some of the samples."""
        clip = None if self.clip is None else self.clip[rows]
        kinds = None if self.kinds is None else self.kinds[rows]
        lq, gt, noise = self.lq[rows], self.gt[rows], self.noise[rows]
        return Batch(lq, gt, noise, self.t[rows], self.prior[rows], self.asked[rows], self.names[rows], clip, kinds)

    def to(self, device: torch.device) -> "Batch":
        """The same on a device; times stay, they choose from tables on the CPU."""
        clip = None if self.clip is None else self.clip.to(device)
        kinds = None if self.kinds is None else self.kinds.to(device)
        lq, gt, noise = self.lq.to(device), self.gt.to(device), self.noise.to(device)
        return Batch(lq, gt, noise, self.t, self.prior, self.asked, self.names, clip, kinds)


@dataclass(frozen=True)
class Sample:
    """One row of a batch, or the reason why there is none."""

    lq: Tensor | None = None
    gt: Tensor | None = None
    noise: Tensor | None = None
    t: int = 0
    prior: bool = False
    asked: int = 0
    name: str = ""
    clip: Tensor | None = None
    kinds: Tensor | None = None
    problem: str = ""


@dataclass
class ImageCache:
    """Decoded images by path, the latest used ones up to a number of bytes."""

    limit: int
    size: int = 0
    images: OrderedDict[str, Pixels] = field(default_factory=OrderedDict)

    def read(self, path: str) -> Pixels:
        """The pixels of a file, from memory if they are there."""
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

    def __init__(self, plan: Plan) -> None:
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
        # Streams of their own: what a degradation draws has no influence on time and noise.
        rng, late = (np.random.default_rng((plan.seed, step, index, stream)) for stream in (0, 1))
        task, item = self._choose(number, rng)
        kinds = None
        if task.varied:
            gt, lq, kinds = self._varied(task, item, plan.patch_at(step), rng)
        elif task.degradation is not None:
            gt, lq = self._degraded(task, item, plan.patch_at(step), rng)
        else:
            gt, lq = self._pair(task, item, plan.patch_at(step), rng)
        t, prior, asked = plan.times.draw(late)
        noise = late.standard_normal(plan.noise_shape or tuple(gt.shape), dtype=np.float32)
        clip = None
        if plan.clip_size is not None:
            from ..networks.daclip import clip_transform

            clip = clip_transform(lq[None], plan.clip_size)[0]
        return Sample(lq, gt, torch.from_numpy(noise), t, prior, asked, f"{task.name}/{item.name}", clip, kinds)

    def _choose(self, number: int, rng: np.random.Generator) -> tuple[Task, Item]:
        """The task and image of a sample: every image once in an epoch; mode MD: tasks in turn, then any image."""
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

    def _degraded(self, task: Task, item: Item, patch: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """A patch of a clean image, degraded as part of something larger.

        A degradation that is made for the patch alone would not look like a part of a degraded image: haze would
        thicken within 64 pixels, and blur would have mirrored borders. Turned before, so that rain falls down.
        """
        assert task.degradation is not None
        if task.name not in self._degrade:
            self._degrade[task.name] = task.degradation()
        clean = self._region(task, item, patch, rng)
        degraded = self._degrade[task.name](clean, rng)
        return self._patch(clean, patch, rng, degraded)

    def _varied(self, task: Task, item: Item, patch: int, rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """The same with several ways to degrade, and what the patch suffers from."""
        clean, degraded, kinds = tensor_pair(task.name, task.mixed_share)(self._region(task, item, patch, rng), rng)
        return (*self._patch(clean, patch, rng, degraded), kinds)

    def _region(self, task: Task, item: Item, patch: int, rng: np.random.Generator) -> Tensor:
        """What is degraded for a patch: a larger part of the image, shrunk and turned."""
        assert item.gt is not None
        pixels = self._cache.read(str(item.gt))
        around = patch + MARGIN
        side = max(around, min(3 * patch, WHOLE)) if task.name in WIDE else around
        _check_size(pixels, patch, str(item.gt))
        # Even in the logarithm; no smaller than leaves a whole patch.
        scale = max(self.plan.min_scale ** rng.uniform(), patch / min(pixels.shape[:2]))
        height, width = (min(round(side / scale), length) for length in pixels.shape[:2])
        region = _window(pixels, height, width, _corner(pixels, height, width, rng))
        return from_uint8(self._turned(scaled(region, scale), rng.uniform(size=3)))

    def _patch(self, clean: Tensor, patch: int, rng: np.random.Generator, degraded: Tensor) -> tuple[Tensor, Tensor]:
        """The same part of both, where a block of JPEG begins."""
        top, left = (int(rng.integers((length - patch) // BLOCK + 1)) * BLOCK for length in clean.shape[1:])
        rows, columns = slice(top, top + patch), slice(left, left + patch)
        return clean[:, rows, columns].contiguous(), degraded[:, rows, columns].contiguous()

    def _pair(self, task: Task, item: Item, patch: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """The same patch of a clean and a degraded image, which may be smaller (super-resolution)."""
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
        return from_uint8(self._turned(clean, turns)), enlarged(mu, scale) if scale > 1 else mu

    def _turned(self, pixels: Pixels, turns: NDArray[np.float64]) -> Pixels:
        """Mirrored left-right (flip), top-bottom and along the diagonal (rotate), each in half of the cases."""
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
    """A random place for a window; 0 where it is as large as the image or larger."""
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

    def stacked(key: str) -> Tensor:
        return torch.stack([getattr(sample, key) for sample in samples])

    return Batch(
        stacked("lq"),
        stacked("gt"),
        stacked("noise"),
        torch.tensor([sample.t for sample in samples]),
        torch.tensor([sample.prior for sample in samples]),
        torch.tensor([sample.asked for sample in samples]),
        tuple(sample.name for sample in samples),
        None if samples[0].clip is None else stacked("clip"),
        None if samples[0].kinds is None else stacked("kinds"),
    )


def batches(plan: Plan, first: int, last: int, rank: int = 0, world: int = 1, workers: int = 0) -> Generator[Batch]:
    """This process's share of the steps first..last-1, read ahead by `workers` processes; raises DataError."""
    share = plan.batch // world
    starts = (step * plan.batch + rank * share for step in range(first, last))
    loader: DataLoader[Sample] = DataLoader(
        TrainingSet(plan),
        batch_sampler=(list(range(start, start + share)) for start in starts),
        num_workers=workers,
        collate_fn=collate,
        worker_init_fn=_start_worker,
        prefetch_factor=4 if workers else None,
        multiprocessing_context=_processes() if workers else None,
    )
    for batch in loader:
        if isinstance(batch, str):
            raise DataError(batch)
        yield batch


def _processes() -> ForkServerContext:
    """Reading processes are forked from a fresh one: a copy of this one would wait for threads that it has not got."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _start_worker(number: int) -> None:
    """One thread each; when to stop is the main process's business."""
    import cv2

    cv2.setNumThreads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Also sent to all processes at once, and by a main process that ends; an end by the signal would be an error there.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))


def _end_with_parent() -> None:
    """Where the main process is killed nobody else tells the others: they would stay, with all their images."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(0)
