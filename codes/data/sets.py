"""Image sets to restore: turns the datasets of an option file into tasks, and reads the pixels of their items."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..config import Options, PairingRule, gathered
from ..names import TASKS, OptionsError
from ..runtime.files import digest
from ..runtime.paths import locate
from .degradations import (
    Degrade,
    TooSmall,
    enlarged,
    gaussian_noise,
    mask_inpainting,
    masked,
    super_resolution,
    tensor_degradation,
)
from .images import ImageError, Picture, check_memory, decode_picture, image_header, read_bytes, to_uint8
from .pairs import DataError, Item, Pattern, find_images, find_tasks, pair


@dataclass(frozen=True, kw_only=True)
class Task:
    """A set of images with one kind of degradation.

    problems   messages about images that were found but cannot be used
    degrade    makes degraded images for items that have none
    made       how it makes them, in words that change with the result
    enlarge    super-resolution: degraded images are smaller by this factor
    masks      inpainting: the file of each item's mask, used instead of `degrade`
    """

    name: str
    items: tuple[Item, ...]
    problems: tuple[str, ...] = ()
    degrade: Degrade | None = None
    made: str = ""
    enlarge: int = 1
    masks: Mapping[str, Path] = field(default_factory=dict)


@dataclass(frozen=True)
class Sources:
    """What an item's results depend on, by content: SHA-256 of its files; '' where it has none.

    `lq` says how a degraded image was made if it was made from the clean one.
    """

    lq: str = ""
    gt: str = ""


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """An item's pictures, or the problem because of which it is skipped."""

    item: Item
    seed: int
    lq: Picture | None = None
    gt: NDArray[np.uint8] | None = None
    sources: Sources = Sources()
    problem: str = ""


def sources_of(task: Task, lq: str | None, gt: str | None) -> Sources:
    """The sources of an item, from the checksums of its files."""
    enlarged = f", enlarged {task.enlarge} times" if task.enlarge > 1 else ""
    return Sources(task.made if lq is None else lq + enlarged, gt or "")


def load_item(task: Task, item: Item, seed: int, *, bytes_per_pixel: float = 0.0) -> Loaded:
    """Read an item's images; a bad file is reported in `problem` instead of raised.

    bytes_per_pixel   memory that restoring it is going to take: an image without room for that is not even decoded
    """
    try:
        item.name.encode()
        lq_file, gt_file = (None if path is None else read_bytes(path) for path in (item.lq, item.gt))
        header = image_header(lq_file or gt_file or b"")
        if header is not None:
            pixels = header.pixels * (task.enlarge**2 if lq_file else 1)
            check_memory(pixels, bytes_per_pixel, str(item.lq or item.gt), "restoring")
        sources = sources_of(task, *(None if file is None else digest(file) for file in (lq_file, gt_file)))
        gt = None if gt_file is None else decode_picture(gt_file, str(item.gt))
        if lq_file is not None:
            lq = decode_picture(lq_file, str(item.lq))
            if task.enlarge > 1:
                lq = Picture(rgb=enlarged(lq.rgb, task.enlarge))
        elif item.name in task.masks:
            assert gt is not None
            lq = Picture(rgb=masked(gt.rgb, task.masks[item.name]))
        else:
            assert gt is not None and task.degrade is not None
            lq = Picture(rgb=task.degrade(gt.rgb, np.random.default_rng(seed)))
    except ImageError as error:
        return Loaded(item=item, seed=seed, problem=str(error))
    except TooSmall as error:
        return Loaded(item=item, seed=seed, problem=f"{item.gt}: {error}")
    except UnicodeEncodeError:
        return Loaded(item=item, seed=seed, problem=f"{item.lq or item.gt}: its name is not UTF-8; rename the file")
    except MemoryError:
        return Loaded(item=item, seed=seed, problem=f"{item.lq or item.gt}: does not fit into memory")
    if gt is not None and gt.rgb.shape != lq.rgb.shape:
        sizes = " and ".join(f"{picture.rgb.shape[2]}x{picture.rgb.shape[1]}" for picture in (lq, gt))
        return Loaded(item=item, seed=seed, problem=f"{item.lq}: degraded and clean image differ in size, {sizes}")
    return Loaded(item=item, seed=seed, lq=lq, gt=None if gt is None else to_uint8(gt.rgb), sources=sources)


def find_data(options: Options) -> tuple[Task, ...]:
    """The tasks of all test sets; with several sets, the set's name is prefixed to the task's."""

    def found(key: str) -> list[Task]:
        with named(options, key):
            return _tasks_of(options, key)

    tasks = [task for tasks in gathered(*(partial(found, key) for key in options.test_sets)) for task in tasks]
    names = [task.name for task in tasks]
    for name in names:
        if names.count(name) > 1:
            raise options.error(("datasets",), f"two sets are called {name!r}; give them different names")
    return tuple(tasks)


@contextmanager
def named(options: Options, key: str) -> Iterator[None]:
    """Turn a DataError into an OptionsError, each line of which names the dataset."""
    try:
        yield
    except DataError as error:
        lines = (str(options.error(("datasets", key), line)) for line in str(error).splitlines())
        raise OptionsError("\n".join(lines)) from error


def _tasks_of(options: Options, key: str) -> list[Task]:
    """The tasks of a dataset; the first one also reports folders that cannot be read."""
    dataset = options.datasets[key]
    name, alone = dataset.name or key, len(options.test_sets) == 1
    unreadable: list[str] = []
    clean, masks = dataset.mode == "GT", partial(find_masks, options, key)
    found, _ = gathered(partial(find_items, options, key, unreadable), masks, kind=DataError)
    single = len(found) == 1 and dataset.task_root is None  # one kind, which has the set's name
    first, *others = (
        Task(
            name=name if single else kind if alone else f"{name}-{kind}",
            items=items,
            problems=problems,
            degrade=degradation(options, key, kind)() if clean else None,
            made=_how(options, key, kind) if clean else "",
            masks=_masks(options, key, kind, items) if clean else {},
            enlarge=1 if kind else options.enlargement_of(key),
        )
        for kind, (items, problems) in found.items()
    )
    return [replace(first, problems=(*dict.fromkeys(unreadable), *first.problems)), *others]


def find_items(
    options: Options, key: str, unreadable: list[str] | None = None
) -> dict[str, tuple[tuple[Item, ...], tuple[str, ...]]]:
    """The images of a dataset by task or degradation ('' where it has no such name), and messages about unusable ones.

    Evaluation and training both find their images here; `unreadable` as in `find_images`.
    """
    dataset = options.datasets[key]
    found: dict[str, tuple[list[Item], list[str]]]
    rule: str | Pattern = (
        Pattern(dataset.pairing.lq, dataset.pairing.gt) if isinstance(dataset.pairing, PairingRule) else dataset.pairing
    )
    if dataset.mode in ("GT", "MDGT") and dataset.dataroot_GT is not None:
        images = find_images(locate(dataset.dataroot_GT), unreadable)
        items = [Item(name, None, path) for name, path in images.items()]
        # The published chain of random degradations of mode MDGT is not reproduced: our tasks take its place.
        found = {kind: (items, []) for kind in options.degradations_of(key) or TASKS}
    elif dataset.task_root is not None:
        wanted = None if dataset.tasks is None and options.distortion is None else options.tasks_of(key)
        folders = find_tasks(locate(dataset.task_root), wanted)
        pairs = gathered(*(partial(pair, lq, gt, rule, unreadable) for lq, gt in folders.values()), kind=DataError)
        found = dict(zip(folders, pairs, strict=True))
    elif dataset.mode == "LQ":
        images = find_images(locate(dataset.dataroot_LQ or ""), unreadable)
        found = {"": ([Item(name, path, None) for name, path in images.items()], [])}
    else:
        lq, gt = (locate(folder or "") for folder in (dataset.dataroot_LQ, dataset.dataroot_GT))
        found = {"": pair(lq, gt, rule, unreadable)}
    most = dataset.max_images
    # Unpaired files beyond the first max_images are not reported.
    return {
        kind: (tuple(items[:most]), tuple(problems) if most is None else ())
        for kind, (items, problems) in found.items()
    }


def degradation(options: Options, key: str, kind: str) -> Callable[[], Degrade]:
    """How a dataset of clean images is degraded: by our function if the dataset names one, else as published.

    Returns a factory: the degradation is a closure and cannot be pickled to a worker.
    """
    settings = options.degradation
    if kind == "super-resolution":
        return partial(super_resolution, settings.scale)
    if options.datasets[key].degradation is None:
        if kind == "noisy":
            return partial(gaussian_noise, settings.sigma)
        if kind == "uncompleted" and settings.mask_root is not None:
            return partial(mask_inpainting, locate(settings.mask_root))
    return partial(tensor_degradation, kind)


def _masks(options: Options, key: str, kind: str, items: Sequence[Item]) -> dict[str, Path]:
    """Mask i for image i, in the order of their names, as the published tests of inpainting have it."""
    masks = find_masks(options, key) if kind == "uncompleted" else []
    if masks and len(masks) < len(items):
        root = options.degradation.mask_root
        raise DataError(f"{root} has {len(masks)} masks for {len(items)} images; each image needs one")
    return {item.name: mask for item, mask in zip(items, masks)}


def find_masks(options: Options, key: str) -> list[Path]:
    """The masks of a dataset with holes, in the order of their names; none where the holes are our own."""
    root = options.degradation.mask_root
    dataset = options.datasets[key]
    ours = dataset.mode != "GT" or dataset.degradation is not None or "uncompleted" not in options.degradations_of(key)
    return [] if root is None or ours else list(find_images(locate(root)).values())


def _how(options: Options, key: str, kind: str) -> str:
    """The degradation in words that change with its result."""
    settings = options.degradation
    if kind == "super-resolution":
        return f"{kind}, scale {settings.scale}"
    if options.datasets[key].degradation is None:
        if kind == "noisy":
            return f"{kind}, sigma {settings.sigma:g}"
        if kind == "uncompleted" and settings.mask_root is not None:
            masks = [digest(path) for path in find_masks(options, key)]
            return f"{kind}, masks {digest(' '.join(masks).encode())}"
    return kind
