"""Between widgets and jobs: takes the page's values, returns views of the page."""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from ..data.images import ImageError, Picture, encode_image, to_uint8
from ..metrics import Scorer
from ..restoration.restorer import Restorer
from ..runtime.files import write_atomically
from . import render
from .examples import Example
from .jobs import (
    MAX_THUMBNAILS,
    Cancelled,
    Choice,
    Compared,
    Finished,
    Jobs,
    Step,
    WorkError,
    compare,
    restore,
    stepwise,
)
from .uploads import Limits, preview, read_upload

log = logging.getLogger(__name__)

T = TypeVar("T")
CANCELLED = "Cancelled."
FAILED = "This failed; see the server's log for the reason. Other images or settings may work."
MAX_AGE = 3600.0  # seconds for which files are kept
MAX_KEPT = 2_000_000_000  # bytes of all files


@dataclass(frozen=True)
class View:
    """A state of the page's Restore tab. Fields that are None leave their widgets unchanged."""

    running: bool
    status: str = ""  # HTML, as are the next two
    summary: str | None = None
    strip: str | None = None
    pair: tuple[Path, Path] | None = None  # before and after
    mean: Path | None = None  # with more than one sample
    uncertainty: Path | None = None
    brightest: float = 0.0  # value of the map's brightest colour, in 8-bit units

    @property
    def finished(self) -> bool:
        """Whether there is a result."""
        return self.pair is not None


@dataclass(frozen=True)
class ComparisonView:
    """A state of the page's Compare tab."""

    running: bool
    status: str = ""
    grid: str | None = None
    sheet: Path | None = None


@dataclass(frozen=True)
class Service:
    """Everything behind the page. Only files in `folder` are served; `worker` has one thread."""

    restorer: Restorer
    scorer: Scorer
    folder: Path
    worker: Executor
    limits: Limits = field(default_factory=Limits)
    examples: tuple[Example, ...] = ()
    notes: tuple[str, ...] = ()
    jobs: Jobs = field(default_factory=Jobs)

    def picture(self, value: object, what: str = "image") -> Picture | None:
        """The picture in a widget, None if it is empty."""
        path = self.path(value, what)
        return None if path is None else read_upload(path, self.limits)

    def path(self, value: object, what: str = "image") -> Path | None:
        """The file in a widget; raises WorkError unless it was uploaded here."""
        if value is None:
            return None
        given = value.get("path") if isinstance(value, dict) else value
        if not isinstance(given, str | Path) or "\0" in str(given):
            raise WorkError(f"the {what} cannot be read; please choose it again")
        path = Path(given).resolve()
        if not path.is_relative_to(self.folder.resolve()):
            raise WorkError(f"the {what} is not an uploaded file")
        return path

    def uploaded(self, value: object, what: str = "image") -> tuple[Path | None, str]:
        """The file to show for an upload (itself, or converted to PNG), and an error message if it is refused."""
        try:
            path = self.path(value, what)
            if path is None:
                return None, ""
            picture = read_upload(path, self.limits)
            shown = preview(path, picture)
            if shown is not None:
                path = self.keep(f"{path.stem}.png", shown)
            return path, ""
        except (ImageError, WorkError) as error:
            return None, render.message(str(error))

    def restoring(
        self, image: object, reference: object, solver: object, nfe: object, seed: object, samples: object, user: str
    ) -> Iterator[View]:
        """Restore the page's image; yields a view after each step."""

        def views() -> Iterator[View]:
            choice = Choice(solver, nfe, seed, samples)  # type: ignore[arg-type]  # it validates them
            picture, clean = self._pictures(image, reference)
            work = partial(restore, self.restorer, picture, clean, choice, self.scorer)
            expected = 1 + min(choice.nfe, MAX_THUMBNAILS)
            name = f"{Path(str(self.path(image))).stem[:80]}-restored.png"
            for step in self._steps(work, user):
                if isinstance(step, Step):
                    status = render.progress(step.done, step.total, step.text)
                    yield View(True, status, strip=render.step_strip(step, expected))
                else:
                    yield self._finished(step, picture, choice, name)

        return _with_errors(views, lambda status: View(False, status))

    def comparing(
        self, image: object, reference: object, solvers: object, nfes: object, seed: object, user: str
    ) -> Iterator[ComparisonView]:
        """Compare solvers on the page's image; yields a view per step, with a new grid per restoration."""

        def views() -> Iterator[ComparisonView]:
            if not isinstance(solvers, list) or not isinstance(nfes, list):
                raise WorkError("choose at least one solver and one number of evaluations")
            picture, clean = self._pictures(image, reference)
            work = partial(compare, self.restorer, picture, clean, solvers, nfes, seed, self.scorer)  # type: ignore[arg-type]
            cells, latest = -1, None
            for latest in self._steps(work, user):
                status = render.progress(latest.done, latest.total, latest.text)
                grid = render.grid(latest) if len(latest.cells) != cells else None
                cells = len(latest.cells)
                yield ComparisonView(True, status, grid)
            assert isinstance(latest, Compared)
            sheet = self.keep("comparison.png", encode_image(render.sheet(latest), ".png"))
            done = f"Done: {len(latest.cells)} restorations, all from the same noise."
            yield ComparisonView(False, render.message(done, "info"), render.grid(latest), sheet)

        return _with_errors(views, lambda status: ComparisonView(False, status))

    def keep(self, name: str, content: bytes) -> Path:
        """Write a file for the page to serve, under a path that cannot be guessed."""
        path = self.folder / "results" / secrets.token_hex(16) / name
        write_atomically(path, content)
        return path

    def sweep(self) -> None:
        """Remove old files, and the oldest ones if all together are too large; keep the examples."""
        examples = {path.resolve() for example in self.examples for path in (example.degraded, example.clean)}
        found = []
        for path in self.folder.rglob("*"):
            if path.is_file() and path.resolve() not in examples:
                found.append((path.stat().st_mtime, path.stat().st_size, path))
        total, oldest = sum(size for _, size, _ in found), time.time() - MAX_AGE
        for changed, size, path in sorted(found):
            if changed < oldest or total > MAX_KEPT:
                path.unlink(missing_ok=True)
                total -= size

    def _pictures(self, image: object, reference: object) -> tuple[Picture, Picture | None]:
        picture, clean = self.picture(image), self.picture(reference, "reference")
        if picture is None:
            raise WorkError("Choose an image first: drop one here or pick an example.")
        if clean is not None and clean.rgb.shape != picture.rgb.shape:
            sizes = [f"{shown.rgb.shape[2]}x{shown.rgb.shape[1]}" for shown in (clean, picture)]
            raise WorkError(f"the reference has {sizes[0]} pixels, the image {sizes[1]}; they must have the same size")
        return picture, clean

    def _steps(self, work: Callable[[Callable[[T], None]], T], user: str) -> Iterator[T]:
        stop = self.jobs.start(user)
        try:
            yield from stepwise(self.worker, work, stop)
        finally:
            self.jobs.end(user, stop)

    def _finished(self, finished: Finished, picture: Picture, choice: Choice, name: str) -> View:
        before = self.keep("before.png", encode_image(to_uint8(picture.rgb), ".png"))
        after = self.keep(name, encode_image(finished.image, ".png", picture.alpha))
        view = View(
            False,
            render.message(f"Done: {render.facts(finished, choice.solver)}", "info"),
            render.score_table(finished.scores)
            + render.message(" ".join(self.notes) if finished.scores else "", "info"),
            render.strip(finished.strip),
            (before, after),
        )
        if choice.samples == 1:
            return view
        colours, brightest = render.uncertainty(finished.restoration.std.numpy())
        return View(
            **(
                vars(view)
                | {
                    "mean": self.keep("mean.png", encode_image(to_uint8(finished.restoration.mean), ".png")),
                    "uncertainty": self.keep("uncertainty.png", encode_image(colours, ".png")),
                    "brightest": brightest,
                }
            )
        )


def _with_errors(views: Callable[[], Iterator[T]], stopped: Callable[[str], T]) -> Iterator[T]:
    """The views, and after a failure one last view with the error message."""
    try:
        yield from views()
    except Cancelled:
        yield stopped(render.message(CANCELLED, "info"))
    except (ImageError, WorkError) as error:
        yield stopped(render.message(str(error)))
    except Exception:
        log.exception("a restoration failed")
        yield stopped(render.message(FAILED))


def sweep_regularly(service: Service, closed: threading.Event, seconds: float = 60.0) -> None:
    """Call `service.sweep` at intervals until `closed` is set."""
    while not closed.wait(seconds):
        try:
            service.sweep()
        except OSError:
            log.exception("old files could not be removed")
