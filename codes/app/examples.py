"""Bundled examples for the web page: one per task, made from the demonstration images at start-up."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..data.degradations import tensor_degradation
from ..data.images import read_image, save_image
from ..data.pairs import find_images, image_seed
from ..names import TASKS
from ..runtime.paths import PROJECT


@dataclass(frozen=True)
class Example:
    """A degraded image and its clean original."""

    task: str
    degraded: Path
    clean: Path


def make_examples(folder: Path, source: Path = PROJECT / "options" / "demo" / "GT") -> tuple[Example, ...]:
    """Write the examples to a folder. The seeds are those of test.py, so the degraded images are the same."""
    images = list(find_images(source).items())
    examples = []
    for i, task in enumerate(TASKS):
        name, path = images[i % len(images)]
        clean = read_image(path)
        degraded = tensor_degradation(task)(clean, np.random.default_rng(image_seed(0, task, name)))
        example = Example(task, folder / f"{task}-{name}.png", folder / f"clean-{name}.png")
        save_image(degraded, example.degraded)
        if not example.clean.exists():
            save_image(clean, example.clean)
        examples.append(example)
    return tuple(examples)
