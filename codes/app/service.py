"""Between widgets and jobs: takes the page's values, returns views of the page."""

import io
import logging
import re
import secrets
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from ..data.images import SUFFIXES, ImageError, Picture, encode_image, encode_like, suffix_of, to_uint8
from ..metrics import Scorer
from ..restoration.restorer import Restorer
from ..runtime import locks
from ..runtime.device import available_memory
from ..runtime.files import write_atomically
from . import render
from .choice import Choice, WorkError, check_comparison, unused
from .examples import Example
from .jobs import (
    MAX_THUMBNAILS,
    Cancelled,
    Compared,
    Failed,
    Finished,
    Jobs,
    Photo,
    Step,
    compare,
    restore_all,
    stepwise,
)
from .uploads import MEGA, Limits, preview, read_upload, upload_size

log = logging.getLogger(__name__)

T = TypeVar("T")
CANCELLED = "Cancelled."
FAILED = "This failed; see the server's log for the reason. Other images or settings may work."
NO_PHOTO = "Choose a photo first: drop one here or pick an example."
MAX_AGE = 3600.0  # seconds for which files are kept
MAX_KEPT = 2_000_000_000  # bytes of all files
UNFINISHED = 120.0  # seconds after which an upload that has not grown was broken off
_BYTES_PER_PIXEL = 200  # memory for an image without the network: input, state, noise, predictions, result
_SHOWN_BY_BROWSERS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".avif")


@dataclass(frozen=True, kw_only=True)
class View:
    """A state of a tab of the page. Fields that are None leave their widgets unchanged."""

    running: bool
    status: str = ""  # HTML
    results: str | None = None  # HTML
    files: tuple[Path, ...] = ()  # the restored photos so far, or the sheet of a comparison
    report: dict[str, Any] | None = None  # about the latest photo
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Service:
    """Everything behind the page. Only files in `folder` are served; `worker` has one thread."""

    restorer: Restorer
    scorer: Scorer
    folder: Path
    worker: Executor
    limits: Limits = field(default_factory=Limits)
    examples: tuple[Example, ...] = ()
    jobs: Jobs = field(default_factory=Jobs)

    # ---- files

    def path(self, value: object, what: str = "image") -> Path | None:
        """The file in a widget, None if it is empty; raises WorkError unless it was uploaded here.

        A preview stands for the photo it was made from: its name is the name of the photo's folder.
        """
        if value is None:
            return None
        given = value.get("path") if isinstance(value, dict) else value
        if not isinstance(given, str | Path) or "\0" in str(given):
            raise WorkError(f"the {what} cannot be read; please choose it again")
        path = Path(given).resolve()
        if not path.is_relative_to(self.folder.resolve()):
            raise WorkError(f"the {what} is not an uploaded file")
        if re.fullmatch(r"[0-9a-f]{32}", path.stem):
            path = next((self.folder / "photos" / path.stem).glob("*"), path)
        return path

    def uploaded(self, value: object, what: str = "image") -> tuple[Path | None, str, str]:
        """The preview to show for an upload, the photo's name, and an error message if it is refused."""
        try:
            path = self.path(value, what)
            if path is None:
                return None, "", ""
            if path.parent.parent != self.folder / "photos":  # else it has a preview already
                shown, suffix = preview(read_upload(path, self.limits))
                token = secrets.token_hex(16)
                kept = self.folder / "photos" / token / path.name
                kept.parent.mkdir(parents=True)
                kept.hardlink_to(path)
                write_atomically(self.folder / "previews" / f"{token}{suffix}", shown)
                path = kept
            return next((self.folder / "previews").glob(f"{path.parent.name}.*")), path.name, ""
        except (ImageError, WorkError) as error:
            return None, "", render.message(str(error))
        except (OSError, StopIteration):
            return None, "", render.message(f"the {what} is gone; please choose it again")

    def keep(self, name: str, content: bytes) -> Path:
        """Write a file for the page to serve, under a path that cannot be guessed."""
        path = self.folder / "results" / secrets.token_hex(16) / name
        write_atomically(path, content)
        return path

    def sweep(self) -> None:
        """Remove old and unfinished files, the oldest ones if all are too large, and empty folders; keep examples."""
        examples = {path.resolve() for example in self.examples for path in (example.degraded, example.clean)}
        found, now = [], time.time()
        for path in self.folder.rglob("*"):
            if path.is_file() and path.resolve() not in examples and not path.name.startswith(locks.PREFIX):
                age = now - path.stat().st_mtime
                # Uploads arrive directly in the folder, and move into one of their own when they are complete.
                limit = UNFINISHED if path.parent == self.folder else MAX_AGE
                found.append((age > limit, age, path.stat().st_size, path))
        total = sum(size for _, _, size, _ in found)
        for old, _, size, path in sorted(found, reverse=True):
            if old or total > MAX_KEPT:
                path.unlink(missing_ok=True)
                total -= size
        for path in (*self.folder.glob("*/*"), *self.folder.glob("*")):
            if path.is_dir() and now - path.stat().st_mtime > UNFINISHED and not any(path.iterdir()):
                path.rmdir()

    # ---- restorations

    def restoring(self, images: object, reference: object, values: Sequence[Any], user: str) -> Iterator[View]:
        """Restore the page's photos with the values of its settings; yields a view after each step."""

        def views() -> Iterator[View]:
            choice = Choice.of(values)
            paths = self._paths(images)
            photos = [self._photo(path, reference if len(paths) == 1 else None, choice) for path in paths]
            shown = [render.PhotoView(name=path.name, thumbnail=self._thumbnail(path)) for path in paths]
            files: list[Path] = []
            report: dict[str, Any] | None = None
            reasons: list[str] = []
            working = -1
            for event in self._steps(partial(restore_all, self.restorer, photos, choice, self.scorer), user):
                if isinstance(event, Step):
                    changed = len(photos) > 1 and event.photo != working
                    working = event.photo
                    if changed:
                        shown[working] = replace(shown[working], state="in work")
                    expected = 1 + min(choice.nfe, MAX_THUMBNAILS)
                    strip = None if len(photos) > 1 else render.strip(event.strip, expected - len(event.strip))
                    progress = render.progress(event.done, event.total, event.text)
                    yield View(running=True, status=progress, results=render.results(shown) if changed else strip)
                elif isinstance(event, Finished):
                    shown[event.photo], file = self._finished(event, paths[event.photo], choice, len(photos) == 1)
                    files.append(file)
                    report = _report(event, choice)
                    yield View(
                        running=True,
                        status=render.progress(1, 1, "saving"),
                        results=render.results(shown),
                        files=tuple(files),
                        report=report,
                    )
                elif isinstance(event, Failed):
                    shown[event.photo] = replace(shown[event.photo], state=f"failed: {event.reason}")
                    reasons.append(event.reason)
            if len(photos) == 1 and reasons:
                raise WorkError(reasons[0])
            done = f"Done: {len(files)} of {len(photos)} photos." if len(photos) > 1 else "Done."
            archive = self._archive(files) if len(files) > 1 else None
            yield View(
                running=False,
                status=render.message(done, "info"),
                results=render.results(shown, archive),
                files=tuple(files),
                report=report,
            )

        return _with_errors(views)

    def comparing(
        self, images: object, reference: object, solvers: object, nfes: object, seed: object, user: str
    ) -> Iterator[View]:
        """Compare solvers on the page's first photo; yields a view per step, with a new grid per restoration."""

        def views() -> Iterator[View]:
            choices = check_comparison(solvers, nfes, seed)
            path = self._paths(images)[0]
            picture, clean = self._photo(path, reference, choices[0]).read()
            work = partial(compare, self.restorer, picture, clean, choices, self.scorer)
            cells, latest = -1, None
            for latest in self._steps(work, user):
                status = render.progress(latest.done, latest.total, latest.text)
                grid = render.grid(latest) if len(latest.cells) != cells else None
                cells = len(latest.cells)
                yield View(running=True, status=status, results=grid)
            assert isinstance(latest, Compared)
            sheet = self.keep("comparison.png", encode_image(render.sheet(latest), ".png"))
            done = f"Done: {len(latest.cells)} restorations of {path.name} at full strength, all from the same noise."
            grid = render.grid(latest) + render.download(sheet, "Download as one picture")
            yield View(running=False, status=render.message(done, "info"), results=grid, files=(sheet,))

        return _with_errors(views)

    def _paths(self, images: object) -> list[Path]:
        """The photos in the gallery."""
        values = images if isinstance(images, list) else []
        given = [value.get("image") if isinstance(value, dict) and "image" in value else value for value in values]
        paths = [path for path in map(self.path, given) if path is not None]
        if not paths:
            raise WorkError(NO_PHOTO)
        if len(paths) > self.limits.max_photos:
            raise WorkError(f"{len(paths)} photos are too many at once; choose at most {self.limits.max_photos}")
        return paths

    def _photo(self, path: Path, reference: object, choice: Choice) -> Photo:
        try:
            width, height = upload_size(path, self.limits)
            pixels = width * height if choice.full else min(width * height, self.limits.at_once)
        except ImageError:  # reading it will tell again
            pixels = 1

        def read() -> tuple[Picture, Picture | None]:
            if (needed := _BYTES_PER_PIXEL * pixels) > available_memory():
                size = f"{pixels / MEGA:.0f} megapixels need about {needed / 1e9:.1f} GB of memory"
                raise WorkError(f"{path.name}: {size}, which is not free; restore it shrunk")
            picture = read_upload(path, self.limits, choice.full)
            clean = self.path(reference, "reference")
            return picture, None if clean is None else _matching(read_upload(clean, self.limits, choice.full), picture)

        return Photo(path.name, pixels, read)

    def _steps(self, work: Callable[[Callable[[Any], None]], T], user: str) -> Iterator[Any]:
        return stepwise(self.worker, work, self.jobs.start(user))

    def _thumbnail(self, path: Path) -> str:
        found = next((self.folder / "previews").glob(f"{path.parent.name}.*"), path)
        return render.url(found)

    def _finished(self, finished: Finished, path: Path, choice: Choice, alone: bool) -> tuple[render.PhotoView, Path]:
        """What the page shows of a restoration, and the restored photo as a file."""
        picture, restoration = finished.picture, finished.restoration
        image = to_uint8(restoration.sample)
        height, width = image.shape[:2]
        shown = ".png" if height * width <= self.limits.at_once else ".jpg"
        before = self.keep(f"before{shown}", encode_image(to_uint8(picture.rgb), shown))
        file = self.keep(*written(path, restoration.sample, picture))
        after = file
        if file.suffix.lower() not in _SHOWN_BY_BROWSERS:
            after = self.keep(f"after{shown}", encode_image(image, shown))
        notes = [unused(choice), *picture.notes]
        if choice.strength is None and restoration.strength == 0:
            notes.append("This photo looks clean and is left as it is; choose the strength yourself to change that.")
        full = upload_size(path, self.limits)
        if full[0] * full[1] > height * width:
            notes.append(
                f"Shrunk from {full[0]}x{full[1]} to {width}x{height} pixels; “full size” restores all of them."
            )
        parts = [
            render.viewer(before, after, width, height),
            render.download(file, f"Download {file.name}"),
            render.message(" ".join(filter(None, notes)), "info"),
            render.recognised(restoration.recognised),
            f'<p class="facts">{render.facts(finished, choice.strength, self.restorer.careful is not None)}</p>',
            render.score_table(finished.scores),
        ]
        if choice.samples > 1:
            colours, brightest = render.uncertainty(restoration.std.numpy())
            mean = self.keep("mean.png", encode_image(to_uint8(restoration.mean), ".png"))
            heat = self.keep("uncertainty.png", encode_image(colours, ".png"))
            label = f"Uncertainty: bright is ±{brightest:.0f} of 255"
            parts.append(
                f'<div class="pair">{render.figure(mean, "mean", "Mean")}{render.figure(heat, "heat", label)}</div>'
            )
        parts.append(render.strip(finished.strip) if alone else "")
        thumbnail = render.data_uri(image, 128)
        return render.PhotoView(name=path.name, thumbnail=thumbnail, state="done", section="".join(parts)), file

    def _archive(self, files: Sequence[Path]) -> Path:
        """All files in one zip; equal names are numbered."""
        buffer, names = io.BytesIO(), set[str]()
        with zipfile.ZipFile(buffer, "w") as archive:
            for file in files:
                tries = (f"{file.stem} ({n}){file.suffix}" for n in range(2, len(files) + 2))
                name = file.name if file.name not in names else next(name for name in tries if name not in names)
                names.add(name)
                archive.write(file, name)
        return self.keep("restored.zip", buffer.getvalue())


def written(path: Path, image: Tensor, picture: Picture) -> tuple[str, bytes]:
    """Name and content of a restored photo: the photo's own name and format, PNG where that cannot be written."""
    with path.open("rb") as file:
        suffix = path.suffix if path.suffix.lower() in SUFFIXES else suffix_of(file.read(32))
    for chosen in (suffix, ".png"):
        try:
            return f"{path.stem}{chosen}", encode_like(picture, image, chosen)
        except ImageError as error:
            problem = error
    raise problem


def _report(finished: Finished, choice: Choice) -> dict[str, Any]:
    """What the API tells about a restoration."""
    restoration = finished.restoration
    height, width = restoration.sample.shape[1:]
    return {
        "solver": finished.solver,
        "nfe": restoration.nfe,
        "seed": choice.seed,
        "strength": restoration.strength,
        "recognised": restoration.recognised,
        "size": [width, height],
        "seconds": round(finished.seconds, 2),
    }


def _matching(clean: Picture, picture: Picture) -> Picture:
    if clean.rgb.shape != picture.rgb.shape:
        sizes = [f"{shown.rgb.shape[2]}x{shown.rgb.shape[1]}" for shown in (clean, picture)]
        raise WorkError(f"the reference has {sizes[0]} pixels, the image {sizes[1]}; they must have the same size")
    return clean


def _with_errors(views: Callable[[], Iterator[View]]) -> Iterator[View]:
    """The views, and after a failure one last view with the error message."""
    try:
        yield from views()
    except Cancelled:
        yield View(running=False, status=render.message(CANCELLED, "info"))
    except (ImageError, WorkError) as error:
        yield View(running=False, status=render.message(str(error)), error=str(error))
    except Exception:
        log.exception("a restoration failed")
        yield View(running=False, status=render.message(FAILED), error=FAILED)


def sweep_regularly(service: Service, closed: threading.Event, seconds: float = 60.0) -> None:
    """Call `service.sweep` at intervals until `closed` is set."""
    while not closed.wait(seconds):
        try:
            service.sweep()
        except OSError:
            log.exception("old files could not be removed")
