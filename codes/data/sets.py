"""Image sets to restore: turns the datasets of an option file into tasks, and reads the pixels of their items."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..config import Options, PairingRule
from ..runtime.paths import locate
from .degradations import Degrade, enlarged, gaussian_noise, mask_inpainting, super_resolution, tensor_degradation
from .images import ImageError, Picture, read_picture, to_uint8
from .pairs import DataError, Item, Pattern, find_images, find_tasks, pair


@dataclass(frozen=True, kw_only=True)
class Task:
    """A set of images with one kind of degradation. `degrade` makes degraded images for items that have none."""

    name: str
    items: tuple[Item, ...]
    problems: tuple[str, ...] = ()  # messages about images that were found but cannot be used
    degrade: Degrade | None = None
    enlarge: int = 1  # super-resolution: degraded images are smaller by this factor


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """An item's pictures, or the problem because of which it is skipped."""

    item: Item
    seed: int
    lq: Picture | None = None
    gt: NDArray[np.uint8] | None = None
    problem: str = ""


def load_item(task: Task, item: Item, seed: int) -> Loaded:
    """Read an item's images; a bad file is reported in `problem` instead of raised."""
    try:
        gt = None if item.gt is None else read_picture(item.gt)
        if item.lq is not None:
            lq = read_picture(item.lq)
            if task.enlarge > 1:
                lq = Picture(enlarged(lq.rgb, task.enlarge))
        else:
            assert gt is not None and task.degrade is not None
            lq = Picture(task.degrade(gt.rgb, np.random.default_rng(seed)))
    except ImageError as error:
        return Loaded(item=item, seed=seed, problem=str(error))
    if gt is not None and gt.rgb.shape != lq.rgb.shape:
        sizes = " and ".join(f"{picture.rgb.shape[2]}x{picture.rgb.shape[1]}" for picture in (lq, gt))
        return Loaded(item=item, seed=seed, problem=f"{item.lq}: degraded and clean image differ in size, {sizes}")
    return Loaded(item=item, seed=seed, lq=lq, gt=None if gt is None else to_uint8(gt.rgb))


def find_data(options: Options) -> tuple[Task, ...]:
    """The tasks of all test sets; with several sets, the set's name is prefixed to the task's."""
    tasks = []
    for key in options.test_sets:
        try:
            tasks += _tasks_of(options, key)
        except DataError as error:
            raise options.error(("datasets", key), str(error)) from error
    names = [task.name for task in tasks]
    for name in names:
        if names.count(name) > 1:
            raise options.error(("datasets",), f"two sets are called {name!r}; give them different names")
    return tuple(tasks)


def _tasks_of(options: Options, key: str) -> list[Task]:
    dataset = options.datasets[key]
    name = dataset.name or key
    rule: str | Pattern = (
        Pattern(dataset.pairing.lq, dataset.pairing.gt) if isinstance(dataset.pairing, PairingRule) else dataset.pairing
    )
    if dataset.task_root is not None:
        wanted = None if dataset.tasks is None and options.distortion is None else options.tasks_of(key)
        found = find_tasks(locate(dataset.task_root), wanted)
        single = len(options.test_sets) == 1
        return [
            _task(task if single else f"{name}-{task}", *pair(lq, gt, rule), dataset.max_images)
            for task, (lq, gt) in found.items()
        ]
    if dataset.mode == "LQ":
        images = find_images(locate(dataset.dataroot_LQ or ""))
        items = [Item(image, path, None) for image, path in images.items()]
        return [replace(_task(name, items, [], dataset.max_images), enlarge=options.enlargement_of(key))]
    if dataset.mode == "GT":
        images = find_images(locate(dataset.dataroot_GT or ""))
        items = [Item(image, None, path) for image, path in images.items()]
        kinds = options.degradations_of(key)
        alone = len(options.test_sets) == 1
        names = [name] if len(kinds) == 1 else [kind if alone else f"{name}-{kind}" for kind in kinds]
        return [
            replace(_task(called, items, [], dataset.max_images), degrade=degradation(options, key, kind)())
            for called, kind in zip(names, kinds, strict=True)
        ]
    items, problems = pair(locate(dataset.dataroot_LQ or ""), locate(dataset.dataroot_GT or ""), rule)
    return [replace(_task(name, items, problems, dataset.max_images), enlarge=options.enlargement_of(key))]


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


def _task(name: str, items: list[Item], problems: list[str], most: int | None) -> Task:
    # Unpaired files beyond the first max_images are not reported.
    return Task(name=name, items=tuple(items[:most]), problems=tuple(problems) if most is None else ())
