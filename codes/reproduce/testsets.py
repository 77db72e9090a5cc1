"""The paper's own test images: four of its ten sets, which a folder given with --data holds.

A set is a folder of degraded and clean images (LQ and GT), or of clean images alone, which are then degraded as
published. Nothing here was used to train or to choose anything.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class TestSet:
    """A test set of the paper.

    folder   its name below the folder of --data
    images   how many the paper restores
    made     how its degraded images come about
    """

    folder: str
    images: int
    made: str


_NOISE = "Gaussian noise of standard deviation 50/255 is added, clipped to [0, 1] and truncated to 8 bits, as published"
_JPEG = "compressed by OpenCV's JPEG encoder with quality 10, as published"
TEST_SETS = {
    "noisy": TestSet(folder="CBSD68", images=68, made=_NOISE),
    "jpeg-compressed": TestSet(folder="LIVE1", images=29, made=_JPEG),
    "low-light": TestSet(folder="LOL-eval15", images=15, made="real dark and normal exposures"),
    "rainy": TestSet(folder="Rain100H", images=100, made="pairs as distributed, with synthetic heavy rain"),
}
DEGRADED = ("noisy", "jpeg-compressed")  # where clean images alone are enough


def dataset_options(root: Path, task: str) -> dict[str, Any] | None:
    """The section `datasets` of an option file for a task of a test set; None for the other tasks."""
    if task not in TEST_SETS:
        return None
    folder = root / TEST_SETS[task].folder
    paired = (folder / "LQ").is_dir() or task not in DEGRADED
    images = {"dataroot_LQ": str(folder / "LQ"), "dataroot_GT": str(folder / "GT")}
    return {task: {**(images if paired else {"dataroot_GT": str(folder), "degradation": task}), "name": task}}
