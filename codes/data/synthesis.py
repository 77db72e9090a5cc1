"""Making data sets from clean images, in the published layout: OUT/<task>/LQ/NAME.png and OUT/<task>/GT/NAME.png."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from ..names import TASKS, check_choice
from ..runtime.files import write_atomically
from .degradations import DEGRADATIONS, tensor_degradation
from .images import ImageError, encode_image, from_uint8, read_image, to_uint8
from .pairs import DataError, find_images, image_seed
from .resizing import middle


@dataclass
class Written:
    """Result of a run: numbers of pairs written and kept, and a message for each unusable image."""

    written: int
    kept: int
    problems: list[str]


def make_pairs(
    gt: Path,
    out: Path,
    tasks: Sequence[str] = TASKS,
    *,
    seed: int = 0,
    max_images: int | None = None,
    size: int | None = None,
    overwrite: bool = False,
) -> Written:
    """Degrade the images of a folder for several tasks; `size` crops each to a square from its middle.

    The result depends only on the seed, the task and the image's name, not on the order or the other images. Existing
    pairs are kept, so that an interrupted run can be continued.
    """
    for task in tasks:
        check_choice("task", task, DEGRADATIONS)
    images = list(find_images(gt).items())[:max_images]
    if out.resolve() == gt.resolve() or out.resolve() in gt.resolve().parents:
        raise DataError(f"{out}: contains the clean images; choose another folder")
    result = Written(0, 0, [])
    with tqdm(total=len(images) * len(tasks), unit="pair") as bar:
        for name, path in images:
            targets = {task: (out / task / "LQ" / f"{name}.png", out / task / "GT" / f"{name}.png") for task in tasks}
            missing = {
                task: pair for task, pair in targets.items() if overwrite or not all(file.exists() for file in pair)
            }
            result.kept += len(targets) - len(missing)
            bar.update(len(targets) - len(missing))
            if not missing:
                continue
            try:
                image = read_image(path)
                if size is not None and min(image.shape[1:]) < size:
                    width, height = image.shape[2], image.shape[1]
                    raise ImageError(f"{path}: {width}x{height} is smaller than {size}x{size}")
                if min(*image.shape[1:], size or 32) < 32:
                    raise ImageError(f"{path}: smaller than 32x32")
            except ImageError as error:
                result.problems.append(str(error))
                bar.update(len(missing))
                continue
            # Degrade exactly the 8-bit image that is stored as clean, even if the source has 16 bits.
            pixels = to_uint8(image) if size is None else middle(to_uint8(image), size)
            image, clean = from_uint8(pixels), encode_image(pixels, ".png")
            for task, (lq, target) in missing.items():
                degraded = tensor_degradation(task)(image, np.random.default_rng(image_seed(seed, task, name)))
                write_atomically(lq, encode_image(to_uint8(degraded), ".png"))
                write_atomically(target, clean)
                result.written += 1
                bar.update()
    return result
