"""The images that all methods get: the middle of a few images of every set, degraded once and kept as files."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from codes.data.degradations import tensor_degradation
from codes.data.degradations.holes import hole_mask
from codes.data.images import from_uint8, read_image, save_image, to_uint8
from codes.data.pairs import find_images, image_seed
from codes.data.resizing import middle

HOLES = 0.25  # share of an image
PHOTOS = "photographs"


@dataclass(frozen=True, kw_only=True)
class Case:
    """An image of a task."""

    task: str
    name: str
    degraded: Path
    clean: Path
    holes: Path | None = None


@dataclass(frozen=True)
class Set:
    """Where the images of a task are from: a folder below that of the test sets, or the user's photographs."""

    task: str
    folder: str
    title: str
    paired: bool = False  # folders LQ and GT; else the clean images are degraded here


SETS = (
    Set("noisy", "CBSD68", "CBSD68, Gaussian noise of 50"),
    Set("jpeg-compressed", "LIVE1", "LIVE1, JPEG of quality 10"),
    Set("low-light", "LOL-eval15", "LOL, evaluation set", paired=True),
    Set("rainy", "Rain100H", "Rain100H", paired=True),
    Set("motion-blurry", PHOTOS, "Validation photographs, motion blur"),
    Set("uncompleted", PHOTOS, "Validation photographs, holes in a quarter of the image"),
)


def cases(
    folder: Path, testsets: Path | None, photos: Path | None, images: int, size: int
) -> tuple[dict[str, list[Case]], list[str]]:
    """The images of every task that has any, and what is missing."""
    found: dict[str, list[Case]] = {}
    missing = []
    for each in SETS:
        base = photos if each.folder == PHOTOS else None if testsets is None else testsets / each.folder
        if base is None or not base.is_dir():
            option = "--photos" if each.folder == PHOTOS else "--testsets"
            missing.append(f"{each.title}: {base or 'no folder'} not found; name it with {option}")
            continue
        clean = find_images(base / "GT" if each.paired else base)
        lq = find_images(base / "LQ") if each.paired else {}
        names = sorted(set(clean) & set(lq) if each.paired else clean)
        chosen = names[:: max(1, len(names) // images)][:images]
        found[each.task] = [_case(folder, each, name, clean[name], lq.get(name), size) for name in chosen]
    return found, missing


def _case(folder: Path, source: Set, name: str, clean: Path, lq: Path | None, size: int) -> Case:
    stem = f"{Path(name).name}.png"
    case = Case(
        task=source.task,
        name=Path(name).name,
        degraded=folder / source.task / "LQ" / stem,
        clean=folder / source.task / "GT" / stem,
        holes=folder / source.task / "holes" / stem if source.task == "uncompleted" else None,
    )
    if not case.degraded.is_file():
        pixels = middle(to_uint8(read_image(clean)), size)
        rng = np.random.default_rng(image_seed(0, source.task, name))
        save_image(pixels, case.clean)
        if case.holes is not None:
            holes = hole_mask(pixels.shape[0], pixels.shape[1], rng, HOLES) == 0
            save_image(np.repeat(holes[..., None], 3, 2).astype(np.uint8) * 255, case.holes)
            degraded = np.where(holes[..., None], np.uint8(255), pixels)
        elif lq is not None:
            degraded = middle(to_uint8(read_image(lq)), size)
        else:
            degraded = to_uint8(tensor_degradation(source.task)(from_uint8(pixels), rng).clamp(0, 1))
        save_image(degraded, case.degraded)  # last: it marks a complete case
    return case
