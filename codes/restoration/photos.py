"""Restoring image files: the work of `restore.py`. photo_files.py keeps track of finished ones."""

import errno
import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import torch
from tqdm import tqdm

from ..data.images import (
    ImageError,
    Picture,
    check_length,
    check_memory,
    decode_picture,
    encode_like,
    image_header,
    longest_file,
    read_bytes,
    suffix_of,
)
from ..runtime.crew import PROCESS_BYTES, Crew, Lost, crew, crew_size, crew_within
from ..runtime.device import available_memory
from ..runtime.files import digest
from ..runtime.output import one_line
from ..runtime.problems import Busy, FileError, check_regular, explain
from ..runtime.signals import stop_on_signal
from .meter import Meter
from .photo_files import RECORDS, Photo, Results, find_photos
from .photo_results import RestoreSettings, check_can_be_written, encoded, result_names
from .restorer import Restoration, Restorer
from .tiling import BYTES_PER_PIXEL

T = TypeVar("T")

# What restoring raises where it fails on one photo: values that are not finite, no memory, torch's errors.
_FAILURES = (ArithmeticError, MemoryError, RuntimeError, ValueError)
_HEADER = 1 << 18  # bytes of a file that say how large its image is


@dataclass(kw_only=True)
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

    def __str__(self) -> str:
        parts = [f"{self.restored} restored"]
        parts += [f"{self.skipped} already there"] if self.skipped else []
        parts += [f"{self.problems} left out"] if self.problems else []
        return ", ".join(parts) + (" (interrupted)" if self.interrupted else "")


def say(text: str) -> None:
    """Print a line to stderr without disturbing the progress bar."""
    tqdm.write(one_line(text), file=sys.stderr)


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

    Where the rule decides, its decision is always reported.
    """
    decided = settings.strength is None and restorer.careful is not None
    if restoration.strength == 1 and not decided:
        return ""
    text = "left as it is" if restoration.strength == 0 else f"strength {restoration.strength:.2f}"
    if not decided or not restoration.recognised:
        return text
    # The likeliest, and what speaks for less than all of the restoration.
    told = dict.fromkeys([next(iter(restoration.recognised)), *(["none"] if restoration.strength < 1 else [])])
    return f"{text} ({', '.join(f'{kind} {100 * restoration.recognised[kind]:.0f} %' for kind in told)})"


# ---- all photos


class Stopped(Exception):
    """The user has asked to stop."""


def run(
    restorer: Restorer,
    inputs: Sequence[str],
    output: Path,
    settings: RestoreSettings,
    weights: Path,
    *,
    workers: int | None = 1,
    load: Callable[[], Restorer] | None = None,
) -> Report:
    """Restore files into a folder; files that cannot be restored are reported and skipped.

    workers   processes that restore photos, each with its own restorer of `load`; None: as many as are worth it
    """
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
    threads = torch.get_num_threads()
    size = 1 if load is None else crew_size(workers, threads, restorer.device.type, list(sizes.values()))
    if size > 1 and workers is None:
        available = available_memory()
        size = crew_within(size, available, most_memory(restorer, settings, list(sizes.values()), available))
    with (
        stop_on_signal("stopping (again to stop at once) ...") as stop,
        Meter(list(sizes.values()), together=size) as meter,
    ):

        def tell(photo: Photo, result: str | None) -> None:
            report.count(result)
            if result:
                where = ", ".join(filter(None, [f"{meter.number} of {len(photos)}", meter.left_in_words]))
                say(f"{output / photo.name}: {result} ({where})")

        try:
            if size > 1:
                assert load is not None
                start = partial(_prepared, load, output, results.settings)
                with crew(size, threads, start) as several:
                    _run_crew(several, sizes, settings, meter, stop, tell)
            else:
                _run_alone(partial(_one, restorer, results, settings), sizes, meter, stop, tell)
        except (Stopped, Lost) as error:
            report.interrupted = stop.is_set()
            if not stop.is_set():
                report.problems += len(photos) - report.counted
                say(str(error))
        except OSError as error:  # writing the next one would fail too, so do not compute it
            report.problems += len(photos) - report.counted
            say(explain(error, output))
    say(f"{report}, in {output}")
    return report


def most_memory(restorer: Restorer, settings: RestoreSettings, megapixels: list[float], available: float) -> float:
    """About the bytes that a process takes with the largest photo in it that is not left out for want of memory."""
    if settings.tile is not None:
        restorer = replace(restorer, tile=settings.tile)  # type: ignore[arg-type]  # the command line has validated it
    fitting = [size for size in megapixels if size * 1e6 * BYTES_PER_PIXEL <= available]
    networks = [network for network in (restorer.network, restorer.daclip, restorer.latent) if network is not None]
    weights = sum(value.nbytes for network in networks for value in network.parameters())
    # Twice the weights: kernels keep copies in an order of their own.
    return PROCESS_BYTES + 2 * weights + restorer.memory_for(int(1e6 * max(fitting, default=0.0)), settings.samples)


def _run_alone(
    one: Callable[..., str],
    sizes: dict[Photo, float],
    meter: Meter,
    stop: threading.Event,
    tell: Callable[[Photo, str | None], None],
) -> None:
    """Restore photos one after the other."""

    def advance(share: float) -> None:
        meter.advance(share)
        if stop.is_set():
            raise Stopped

    # What another process is working on comes last: by then it may be done.
    later: list[Photo] = []
    for waits, queue in ((False, list(sizes)), (True, later)):
        for photo in queue:
            meter.begin(sizes[photo])
            try:
                result = _outcome(photo, partial(one, photo, advance, _pause(stop.is_set) if waits else None))
            except Busy:
                later.append(photo)
                meter.number -= 1
                continue
            meter.end(bool(result))
            tell(photo, result)
        if stop.is_set():
            raise Stopped


def _run_crew(
    several: Crew[tuple[str, float]],
    sizes: dict[Photo, float],
    settings: RestoreSettings,
    meter: Meter,
    stop: threading.Event,
    tell: Callable[[Photo, str | None], None],
) -> None:
    """Restore photos, several at a time."""
    waiting = {several.submit(_one_of_crew, settings, photo, False): photo for photo in sizes}
    while waiting:
        for future in several.finished(set(waiting), stop):
            photo = waiting.pop(future)
            if future.cancelled():
                raise Stopped
            try:
                result, seconds = _outcome(photo, future.result) or (None, 0.0)
            except Busy:
                waiting[several.submit(_one_of_crew, settings, photo, True)] = photo
                continue
            meter.finish(sizes[photo], seconds if result else None)
            tell(photo, result)


def _prepared(load: Callable[[], Restorer], output: Path, settings: dict[str, Any]) -> tuple[Restorer, Results]:
    return load(), Results(output, settings)


def _one_of_crew(
    made: tuple[Restorer, Results], stop: Callable[[], bool], settings: RestoreSettings, photo: Photo, waits: bool
) -> tuple[str, float]:
    """`_one` in a process of a crew, and the seconds that it took."""
    restorer, results = made
    pause = _pause(stop)
    start = time.perf_counter()
    result = _one(restorer, results, settings, photo, lambda share: pause(), pause if waits else None)
    return result, time.perf_counter() - start


def _outcome(photo: Photo, action: Callable[[], T]) -> T | None:
    """What was done with a photo; None if it is left out, which is said."""
    try:
        return action()
    except Busy:
        raise
    except (FileError, ImageError) as error:
        say(f"left out: {error}")
    except _FAILURES as error:
        say(f"left out: {photo.path}: {str(error) or type(error).__name__}")
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        say(f"left out: {explain(error, photo.path)}")
    return None


def _pause(stop: Callable[[], bool]) -> Callable[[], None]:
    """What is done while another process has a photo: stop if the user wishes so."""

    def check() -> None:
        if stop():
            raise Stopped

    return check


def megapixels(path: Path) -> float:
    """The size of a photo as its first bytes say, else about what a file of its length has."""
    try:
        size = check_regular(path).st_size
        if not 0 < size <= longest_file():  # nothing that could be restored, or read at all
            return 0.0
        with path.open("rb") as file:
            header = image_header(file.read(_HEADER))
            return header.pixels / 1e6 if header else size / 3e6
    except (OSError, FileError):
        return 0.0


def _one(
    restorer: Restorer,
    results: Results,
    settings: RestoreSettings,
    photo: Photo,
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
    _check_room(restorer, content, str(photo.path))
    picture = decode_picture(content, str(photo.path))
    if settings.describe and (recognised := restorer.recognise(picture.rgb)) is not None:
        print(one_line(f"{photo.path}: {described(recognised)}"), flush=True)
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


def _check_room(restorer: Restorer, content: bytes, name: str) -> None:
    """Raise ImageError where the header of an image says that memory is too small to restore it."""
    header = image_header(content)
    if header is not None and restorer.device.type == "cpu":
        check_memory(header.pixels, BYTES_PER_PIXEL, name, "restoring")


def facts(restoration: Restoration) -> dict[str, Any]:
    """What the record of a photo says about its restoration."""
    found: dict[str, Any] = {"nfe": restoration.nfe, "strength": round(restoration.strength, 4)}
    if restoration.recognised is not None:
        found["recognised"] = {kind: round(share, 4) for kind, share in restoration.recognised.items()}
    return found


def pipe(restorer: Restorer, source: BinaryIO, target: BinaryIO, settings: RestoreSettings) -> None:
    """Restore an image from one stream to another, in the same format; ImageError where that fails."""
    content = source.read(longest_file() + 1)  # it may have no end
    check_length(len(content), "stdin")
    _check_room(restorer, content, "stdin")
    picture = decode_picture(content, "stdin")
    suffix = suffix_of(content)
    check_can_be_written(picture, Photo(Path("stdin"), f"stdin{suffix}"))
    for note in picture.notes:
        say(f"stdin: {note}")
    try:
        restoration = restored(restorer, picture, settings, lambda share: None)
    except _FAILURES as error:
        raise ImageError(f"stdin: {str(error) or type(error).__name__}") from error
    if settings.describe and restoration.recognised is not None:
        say(f"stdin: {described(restoration.recognised)}")
    if text := applied(restoration, settings, restorer):
        say(f"stdin: {text}")
    target.write(encode_like(picture, restoration.sample, suffix))
    target.flush()
