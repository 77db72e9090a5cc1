"""Restoring image files: the work of `restore.py`. photo_files.py keeps track of finished ones."""

import errno
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from tqdm import tqdm

from ..data.contact_sheet import Image, side_by_side
from ..data.images import (
    ImageError,
    Picture,
    check_memory,
    decode_picture,
    encode_image,
    encode_like,
    image_header,
    read_bytes,
    suffix_of,
    to_uint8,
)
from ..runtime.files import digest
from ..runtime.problems import Busy, FileError, check_regular, explain
from ..runtime.signals import stop_on_signal
from .meter import Meter
from .photo_files import RECORDS, Photo, Results, find_photos
from .restorer import Restoration, Restorer
from .tiling import BYTES_PER_PIXEL

# Standard deviation shown as white in uncertainty maps, a fifth of the image range: fixed, so that maps are comparable.
WHITE_STD = 0.2
_HEADER = 1 << 18  # bytes of a file that say how large its image is


@dataclass(frozen=True, kw_only=True)
class RestoreSettings:
    """Settings applied to every photo."""

    nfe: int | None = None
    algorithm: str | None = None
    seed: int = 0
    samples: int = 1
    tile: int | str | None = None
    strength: float | None = None  # None: as the checkpoint's rule decides for each photo
    uncertainty: bool = False
    compare: bool = False
    overwrite: bool = False
    describe: bool = False


@dataclass
class Report:
    """How a run went."""

    restored: int = 0
    skipped: int = 0
    problems: int = 0  # photos that were left out, and whatever else was not found
    failed: int = 0  # photos of these that were begun
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """0 only if every photo was restored, now or earlier."""
        return 130 if self.interrupted else 1 if self.problems else 0

    @property
    def counted(self) -> int:
        """Photos that are finished in any way."""
        return self.restored + self.skipped + self.failed

    def count(self, result: str | None) -> None:
        """One photo more: what was done with it, empty if it was there, None if it was left out."""
        self.restored += bool(result)
        self.skipped += result == ""
        self.failed += result is None
        self.problems += result is None

    def told(self, output: Path) -> "Report":
        """Print the report; returns it."""
        say(f"{self}, in {output}")
        return self

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
    careful = settings.strength is None and restorer.careful is not None
    strength = "careful" if careful else 1.0 if settings.strength is None else settings.strength
    return {
        "weights": digest(weights),
        "solver": json.loads(json.dumps({key: value for key, value in solver.items() if value is not None})),
        "seed": settings.seed,
        "samples": settings.samples,
        "tile": settings.tile or restorer.tile,
        "precision": restorer.precision,
        "strength": strength,
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
    images = {f"sample {k}": image for k, image in enumerate(restoration.samples, 1)}
    if len(images) > 1:
        images["mean"] = restoration.mean
    files = {
        names[what]: encode_like(picture, image, Path(names[what]).suffix)
        for what, image in images.items()
        if what in names
    }
    if "uncertainty" in names:
        files[names["uncertainty"]] = encode_image(uncertainty_map(restoration), ".png")
    if "compare" in names:
        columns = [to_uint8(image) for image in (picture.rgb, restoration.sample)]
        columns += [to_uint8(restoration.mean), uncertainty_map(restoration)] if len(images) > 1 else []
        files[names["compare"]] = encode_image(side_by_side(columns), ".png")
    return files


def uncertainty_map(restoration: Restoration) -> Image:
    """The samples' standard deviation as a grey image: black is 0, white is WHITE_STD or more."""
    std = restoration.std.square().mean(dim=0, keepdim=True).sqrt()
    return to_uint8((std / WHITE_STD).expand(3, -1, -1))


def restored(
    restorer: Restorer, picture: Picture, settings: RestoreSettings, progress: Callable[[float], None]
) -> Restoration:
    """Restore one photo with these settings."""
    return restorer.sample(
        picture.rgb,
        settings.samples,
        nfe=settings.nfe,
        seed=settings.seed,
        algorithm=settings.algorithm,
        tile=settings.tile,  # type: ignore[arg-type]  # the command line has validated it
        strength=settings.strength,
        progress=progress,
    )


def described(recognised: dict[str, float]) -> str:
    """The degradations with more than 1 %, as text."""
    return ", ".join(f"{word} {100 * share:.0f} %" for word, share in recognised.items() if share > 0.01)


def applied(restoration: Restoration, settings: RestoreSettings, restorer: Restorer) -> str:
    """What was applied of the restoration, as text, with what the network's rule went by; empty for all of it.

    Where the rule decides, it is always told.
    """
    decided = settings.strength is None and restorer.careful is not None
    if restoration.strength == 1 and not decided:
        return ""
    text = "left as it is" if restoration.strength == 0 else f"strength {restoration.strength:.2f}"
    likely = next(iter(restoration.recognised.items()), None) if decided and restoration.recognised else None
    return text if likely is None else f"{text} ({likely[0]} {100 * likely[1]:.0f} %)"


# ---- all photos


class Stopped(Exception):
    """The user has asked to stop."""


def run(restorer: Restorer, inputs: Sequence[str], output: Path, settings: RestoreSettings, weights: Path) -> Report:
    """Restore files into a folder; files that cannot be restored are reported and skipped."""
    results = Results(output, settings_of(restorer, settings, weights))
    if results.damaged:
        say(f"{output / RECORDS}: damaged, {len(results.damaged)} of its lines cannot be read and are left out")
    photos, problems = find_photos(inputs, output, lambda name: result_names(name, settings).values(), results.made)
    report = Report(problems=len(problems))
    for problem in problems:
        say(problem)
    if settings.describe and not restorer.recognises:
        say("--describe: this network recognises no degradations and no DA-CLIP is loaded, so nothing is described")
    results.tidy(photo.name for photo in photos)
    sizes = {photo: megapixels(photo.path) for photo in photos}
    with stop_on_signal("stopping (again to stop at once) ...") as stop, Meter(list(sizes.values())) as meter:

        def advance(share: float) -> None:
            meter.advance(share)
            if stop.is_set():
                raise Stopped

        # What another process is working on comes last: by then it may be done.
        later: list[Photo] = []
        for waits, queue in ((False, photos), (True, later)):
            for photo in queue:
                meter.begin(sizes[photo])
                try:
                    result = _one(restorer, photo, results, settings, advance, _pause(stop) if waits else None)
                except Busy:
                    later.append(photo)
                    meter.number -= 1
                    continue
                except Stopped:
                    break
                except ImageError as error:
                    result = None
                    say(f"left out: {error}")
                except (ArithmeticError, MemoryError, RuntimeError, ValueError) as error:
                    result = None
                    say(f"left out: {photo.path}: {error or type(error).__name__}")
                except OSError as error:
                    if error.errno != errno.ENAMETOOLONG:  # writing the next one would fail too, so do not compute it
                        report.problems += len(photos) - report.counted
                        say(explain(error, output))
                        return report.told(output)
                    result = None
                    say(f"left out: {explain(error, photo.path)}")
                meter.end(bool(result))
                report.count(result)
                if result:
                    where = ", ".join(filter(None, [f"{meter.number} of {len(photos)}", meter.left_in_words]))
                    say(f"{output / photo.name}: {result} ({where})")
            if stop.is_set():
                report.interrupted = True
                break
    return report.told(output)


def _pause(stop: threading.Event) -> Callable[[], None]:
    """What is done while another process has a photo: stop if the user wishes so."""

    def check() -> None:
        if stop.is_set():
            raise Stopped

    return check


def megapixels(path: Path) -> float:
    """The size of a photo as its first bytes say, else about what a file of its length has."""
    try:
        check_regular(path)
        with path.open("rb") as file:
            header = image_header(file.read(_HEADER))
            return header.pixels / 1e6 if header else path.stat().st_size / 3e6
    except (OSError, FileError):
        return 0.0


def _one(
    restorer: Restorer,
    photo: Photo,
    results: Results,
    settings: RestoreSettings,
    progress: Callable[[float], None],
    pause: Callable[[], None] | None,
) -> str:
    """Restore one photo; returns what was done as text, empty if the photo was already done.

    pause   called from time to time while another process has the photo; None: raises Busy at once
    """
    content = read_bytes(photo.path)
    told = False
    while True:
        try:
            with results.claimed(photo.name, 0.0 if pause is None else 0.5):
                return _claimed(restorer, photo, content, results, settings, progress)
        except Busy as error:
            if pause is None:
                raise
            if not told:
                say(str(error).split(";")[0])
                told = True
            pause()


def _claimed(
    restorer: Restorer,
    photo: Photo,
    content: bytes,
    results: Results,
    settings: RestoreSettings,
    progress: Callable[[float], None],
) -> str:
    names = result_names(photo.name, settings)
    source = digest(content)
    done, obstacle = results.state(photo.name, source, names.values())
    if done and not settings.describe:
        return ""
    header = image_header(content)
    if header is not None and restorer.device.type == "cpu":
        check_memory(header.pixels, BYTES_PER_PIXEL, str(photo.path), "restoring")
    picture = decode_picture(content, str(photo.path))
    if settings.describe and (recognised := restorer.recognise(picture.rgb)) is not None:
        print(f"{photo.path}: {described(recognised)}", flush=True)
    if done:
        return ""
    if obstacle and not settings.overwrite:
        raise ImageError(obstacle)
    check_can_be_written(picture, photo)
    for note in picture.notes:
        say(f"{photo.path}: {note}")
    start = time.perf_counter()
    restoration = restored(restorer, picture, settings, progress)
    results.write(photo.name, source, encoded(picture, restoration, names), facts(restoration))
    seconds = f"{time.perf_counter() - start:.1f} s"
    return ", ".join(filter(None, [applied(restoration, settings, restorer), seconds]))


def facts(restoration: Restoration) -> dict[str, Any]:
    """What the record of a photo says about its restoration."""
    found: dict[str, Any] = {"nfe": restoration.nfe, "strength": round(restoration.strength, 4)}
    if restoration.recognised is not None:
        found["recognised"] = {kind: round(share, 4) for kind, share in restoration.recognised.items()}
    return found


def check_can_be_written(picture: Picture, photo: Photo) -> None:
    """Raise ImageError early if the format cannot store the image, such as transparency in JPEG."""
    corner = replace(
        picture, rgb=picture.rgb[:, :1, :1], alpha=None if picture.alpha is None else picture.alpha[:1, :1]
    )
    try:
        encode_like(corner, corner.rgb, Path(photo.name).suffix)
    except ImageError as error:
        raise ImageError(f"{photo.path}: {error}") from error


def pipe(restorer: Restorer, source: BinaryIO, target: BinaryIO, settings: RestoreSettings) -> None:
    """Restore an image from one stream to another, in the same format."""
    content = source.read()
    picture = decode_picture(content, "stdin")
    suffix = suffix_of(content)
    check_can_be_written(picture, Photo(Path("stdin"), f"stdin{suffix}"))
    for note in picture.notes:
        say(f"stdin: {note}")
    restoration = restored(restorer, picture, settings, lambda share: None)
    if settings.describe and restoration.recognised is not None:
        say(f"stdin: {described(restoration.recognised)}")
    if text := applied(restoration, settings, restorer):
        say(f"stdin: {text}")
    target.write(encode_like(picture, restoration.sample, suffix))
    target.flush()
