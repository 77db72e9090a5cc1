"""Finding images in folders, and pairing degraded with clean ones."""

import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..config import gathered
from ..rows import DEGRADATIONS
from ..runtime.paths import looked
from ..runtime.problems import explain
from .images import SUFFIXES

log = logging.getLogger(__name__)


class DataError(Exception):
    """Folders that cannot be used; the message has a line for each, with the reason."""


@dataclass(frozen=True)
class Item:
    """One image to restore; `name` (relative path without suffix) identifies it within its task.

    `lq` is None if the degraded image is made from the clean one, `gt` is None if there is no clean image.
    """

    name: str
    lq: Path | None
    gt: Path | None


@dataclass(frozen=True)
class Pattern:
    """How the names of a pair differ; `{}` stands for the common part, e.g. lq 'rain-{}', gt 'norain-{}'."""

    lq: str
    gt: str

    def __post_init__(self) -> None:
        for pattern in (self.lq, self.gt):
            if pattern.count("{}") != 1:
                raise DataError(f"pairing pattern {pattern!r} must contain {{}} exactly once")


def find_images(folder: Path, unreadable: list[str] | None = None) -> dict[str, Path]:
    """All images below a folder by name (relative, without suffix), in name order.

    A message about each folder that cannot be read is added to `unreadable`, else logged.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder{looked(folder)}")
    errors: list[OSError] = []
    found: dict[str, Path] = {}
    paths = [Path(place, name) for place, _, names in os.walk(folder, onerror=errors.append) for name in names]
    for problem in (explain(error, folder, "this folder cannot be read") for error in errors):
        if unreadable is None:
            log.warning("%s", problem)
        else:
            unreadable.append(problem)
    for path in sorted(paths):
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file():
            name = path.relative_to(folder).with_suffix("").as_posix()
            if name in found:
                raise DataError(f"{path} and {found[name].name}: two images with the same name")
            found[name] = path
    if not found:
        raise DataError(f"{folder}: no images ({', '.join(SUFFIXES)})")
    return found


def pair(
    lq_folder: Path, gt_folder: Path, rule: str | Pattern = "name", unreadable: list[str] | None = None
) -> tuple[list[Item], list[str]]:
    """The pairs of two folders, and a message for each image without a partner; `unreadable` as in `find_images`.

    The rule 'name' pairs equal names, 'order' pairs the n-th with the n-th (like the published code), and a Pattern
    pairs names that differ in a fixed part.
    """
    folders = (lq_folder, gt_folder)
    lq, gt = gathered(*(partial(find_images, folder, unreadable) for folder in folders), kind=DataError)
    if rule == "order":
        if len(lq) != len(gt):
            raise DataError(f"pairing by order: {lq_folder} has {len(lq)} images, {gt_folder} has {len(gt)}")
        return [Item(name, path, clean) for (name, path), clean in zip(lq.items(), gt.values(), strict=True)], []
    partner: Callable[[str], str | None] = (lambda name: name) if isinstance(rule, str) else _renamer(rule)
    items, problems, used = [], [], set()
    for name, path in lq.items():
        other = partner(name)
        if other is not None and other in gt:
            items.append(Item(name, path, gt[other]))
            used.add(other)
        else:
            problems.append(f"{path}: no clean image{'' if other is None else f' {other!r}'} in {gt_folder}")
    problems += [f"{path}: no degraded image for it in {lq_folder}" for name, path in gt.items() if name not in used]
    if not items:
        raise DataError(
            f"{lq_folder} and {gt_folder}: no names in common (first: {next(iter(lq))!r}, {next(iter(gt))!r}); "
            "set pairing to 'order' or to {lq: 'rain-{}', gt: 'norain-{}'}"
        )
    return items, problems


def _renamer(pattern: Pattern) -> Callable[[str], str | None]:
    before, after = pattern.lq.split("{}")

    def rename(name: str) -> str | None:
        folder, slash, last = name.rpartition("/")
        if not (last.startswith(before) and last.endswith(after) and len(last) > len(before) + len(after)):
            return None
        return folder + slash + pattern.gt.format(last[len(before) : len(last) - len(after)])

    return rename


def find_tasks(root: Path, tasks: Sequence[str] | None = None) -> dict[str, tuple[Path, Path]]:
    """The LQ and GT folders of the tasks below a root in the published layout: ROOT/<task>/LQ and GT."""
    if not root.is_dir():
        raise DataError(f"{root}: no such folder{looked(root)}")
    wanted = tuple(DEGRADATIONS) if tasks is None else tasks
    found = {task: (root / task / "LQ", root / task / "GT") for task in wanted if (root / task).is_dir()}
    missing = [task for task in wanted if task not in found]
    if not found or (tasks is not None and missing):
        raise DataError(f"{root}: no folder for {', '.join(missing)}; expected {root / missing[0]}/LQ and GT")
    return found


def image_seed(seed: int, task: str, name: str) -> int:
    """The seed of one image, independent of the other images, the batches and the number of processes."""
    digest = hashlib.sha256(f"{seed}/{task}/{name}".encode(errors="surrogateescape")).digest()
    return int.from_bytes(digest[:8], "little") >> 1
