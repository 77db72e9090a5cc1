"""Restoring image files: the work of `restore.py`. photo_files.py keeps track of finished ones."""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from tqdm import tqdm

from ..data.contact_sheet import Image, side_by_side
from ..data.images import ImageError, Picture, decode_picture, encode_image, read_bytes, suffix_of, to_uint8
from ..runtime.files import digest
from ..runtime.signals import stop_on_signal
from ..solvers import StepInfo
from .photo_files import Photo, Results, find_photos
from .restorer import Restoration, Restorer

# Standard deviation shown as white in uncertainty maps, a fifth of the image range: fixed, so that maps are comparable.
WHITE_STD = 0.2


@dataclass(frozen=True, kw_only=True)
class RestoreSettings:
    """Settings applied to every photo."""

    nfe: int | None = None
    algorithm: str | None = None
    seed: int = 0
    samples: int = 1
    tile: int | str | None = None
    uncertainty: bool = False
    compare: bool = False
    overwrite: bool = False
    describe: bool = False


@dataclass
class Report:
    """How a run went."""

    restored: int = 0
    skipped: int = 0
    problems: int = 0
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """0 only if every photo was restored, now or earlier."""
        return 130 if self.interrupted else 1 if self.problems else 0

    def __str__(self) -> str:
        parts = [f"{self.restored} restored"]
        parts += [f"{self.skipped} already there"] if self.skipped else []
        parts += [f"{self.problems} left out"] if self.problems else []
        return ", ".join(parts) + (" (interrupted)" if self.interrupted else "")


def say(text: str) -> None:
    """Print a line to stderr without disturbing the progress bar."""
    tqdm.write(text, file=sys.stderr)


# ---- one photo


def settings_of(restorer: Restorer, settings: RestoreSettings, weights: Path) -> dict[str, Any]:
    """Everything that determines the pixels of a result, except the photo."""
    solver = asdict(restorer.solver(settings.algorithm, settings.nfe))
    return {
        "weights": digest(weights),
        "solver": json.loads(json.dumps({key: value for key, value in solver.items() if value is not None})),
        "seed": settings.seed,
        "samples": settings.samples,
        "tile": settings.tile or restorer.tile,
        "precision": restorer.precision,
    }


def result_names(name: str, settings: RestoreSettings) -> dict[str, str]:
    """Names of a photo's result files, by their content."""
    stem, suffix = os.path.splitext(name)  # noqa: PTH122  (keeps the folder)
    names = {"sample 1": name}
    if settings.samples > 1:
        names |= {f"sample {k}": f"{stem}.sample-{k}{suffix}" for k in range(2, settings.samples + 1)}
        names["mean"] = f"{stem}.mean{suffix}"
    if settings.uncertainty:
        names["uncertainty"] = f"{stem}.uncertainty.png"
    if settings.compare:
        names["compare"] = f"{stem}.compare.png"
    return names


def encoded(picture: Picture, restoration: Restoration, names: dict[str, str]) -> dict[str, bytes]:
    """Contents of a photo's result files; its alpha and metadata are kept."""
    images = {f"sample {k}": to_uint8(image) for k, image in enumerate(restoration.samples, 1)}
    images["mean"] = to_uint8(restoration.mean)
    files = {
        names[what]: encode_image(image, Path(names[what]).suffix, picture.alpha, picture.metadata)
        for what, image in images.items()
        if what in names
    }
    unsure = uncertainty_map(restoration)
    if "uncertainty" in names:
        files[names["uncertainty"]] = encode_image(unsure, ".png")
    if "compare" in names:
        columns = [to_uint8(picture.rgb), images["sample 1"]]
        columns += [images["mean"], unsure] if len(restoration.samples) > 1 else []
        files[names["compare"]] = encode_image(side_by_side(columns), ".png")
    return files


def uncertainty_map(restoration: Restoration) -> Image:
    """The samples' standard deviation as a grey image: black is 0, white is WHITE_STD or more."""
    std = restoration.std.square().mean(dim=0, keepdim=True).sqrt()
    return to_uint8((std / WHITE_STD).expand(3, -1, -1))


def restored(
    restorer: Restorer, picture: Picture, settings: RestoreSettings, callback: Callable[[StepInfo], None]
) -> Restoration:
    """Restore one photo with these settings."""
    return restorer.sample(
        picture.rgb,
        settings.samples,
        nfe=settings.nfe,
        seed=settings.seed,
        algorithm=settings.algorithm,
        tile=settings.tile,  # type: ignore[arg-type]  # the command line has validated it
        callback=callback,
    )


def described(restorer: Restorer, picture: Picture) -> str:
    """The degradations that DA-CLIP recognises with more than 1 %, as text."""
    found = restorer.describe(picture.rgb)
    return ", ".join(f"{word} {100 * share:.0f} %" for word, share in found.items() if share > 0.01)


# ---- all photos


def run(restorer: Restorer, inputs: Sequence[str], output: Path, settings: RestoreSettings, weights: Path) -> Report:
    """Restore files into a folder; files that cannot be restored are reported and skipped."""
    results = Results(output, settings_of(restorer, settings, weights))
    photos, problems = find_photos(inputs, output, lambda name: result_names(name, settings).values(), results.made)
    report = Report(problems=len(problems))
    for problem in problems:
        say(problem)
    if settings.describe and restorer.daclip is None:
        say("--describe: no DA-CLIP encoder is loaded (path.daclip), so nothing is described")
    bar_format = "{percentage:3.0f}% |{bar}| {n:.1f} of {total} photos, {elapsed}, {remaining} left"
    with stop_on_signal() as stop, tqdm(total=len(photos), bar_format=bar_format, disable=None) as bar:

        def advance(info: StepInfo) -> None:
            bar.update(1 / info.steps)

        started = time.perf_counter()
        for number, photo in enumerate(photos, 1):
            if stop.is_set():
                break
            try:
                result = _one(restorer, photo, results, settings, advance)
            except ImageError as error:
                report.problems += 1
                say(f"left out: {error}")
            except (ArithmeticError, MemoryError, RuntimeError, ValueError) as error:
                report.problems += 1
                say(f"left out: {photo.path}: {error}")
            except OSError as error:  # writing the next one would fail too, so do not compute it
                report.problems += len(photos) - number + 1
                say(f"{error.filename or output}: cannot be written: {error.strerror or error}")
                break
            else:
                report.restored, report.skipped = report.restored + bool(result), report.skipped + (not result)
                if result:
                    left = (time.perf_counter() - started) / report.restored * (len(photos) - number)
                    say(f"{output / photo.name}: {result} ({number} of {len(photos)}, about {left:.0f} s left)")
            bar.n = number
            bar.refresh()
        report.interrupted = stop.is_set()
    say(f"{report}, in {output}")
    return report


def _one(
    restorer: Restorer, photo: Photo, results: Results, settings: RestoreSettings, callback: Callable[[StepInfo], None]
) -> str:
    """Restore one photo; returns the time taken as text, empty if the photo was already done."""
    content = read_bytes(photo.path)
    names = result_names(photo.name, settings)
    source = digest(content)
    done, obstacle = results.state(photo.name, source, names.values())
    if done and not settings.describe:
        return ""
    picture = decode_picture(content, str(photo.path))
    if settings.describe and restorer.daclip is not None:
        print(f"{photo.path}: {described(restorer, picture)}", flush=True)
    if done:
        return ""
    if obstacle and not settings.overwrite:
        raise ImageError(obstacle)
    check_can_be_written(picture, photo)
    start = time.perf_counter()
    restoration = restored(restorer, picture, settings, callback)
    results.write(photo.name, source, encoded(picture, restoration, names))
    return f"{time.perf_counter() - start:.1f} s"


def check_can_be_written(picture: Picture, photo: Photo) -> None:
    """Raise ImageError early if the format cannot store the image, such as transparency in JPEG."""
    alpha = None if picture.alpha is None else picture.alpha[:1, :1]
    try:
        encode_image(np.zeros((1, 1, 3), np.uint8), Path(photo.name).suffix, alpha, picture.metadata)
    except ImageError as error:
        raise ImageError(f"{photo.path}: {error}") from error


def pipe(restorer: Restorer, source: BinaryIO, target: BinaryIO, settings: RestoreSettings) -> None:
    """Restore an image from one stream to another, in the same format."""
    content = source.read()
    picture = decode_picture(content, "stdin")
    if settings.describe and restorer.daclip is not None:
        say(f"stdin: {described(restorer, picture)}")
    suffix = suffix_of(content)
    check_can_be_written(picture, Photo(Path("stdin"), f"stdin{suffix}"))
    restoration = restored(restorer, picture, settings, lambda info: None)
    target.write(encode_image(to_uint8(restoration.sample), suffix, picture.alpha, picture.metadata))
    target.flush()
