"""Progress through many photos, in megapixels, with the time that is left."""

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from tqdm import tqdm


class Meter:
    """A bar on a terminal: megapixels that are done, and the time left at the speed of the work so far.

    Only restored megapixels count for the speed: a photo that is skipped or left as it is takes no time.

    sizes   megapixels of each photo, in the order in which they are begun
    """

    def __init__(self, sizes: Sequence[float], clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.total = sum(sizes)
        self.count = len(sizes)
        self.done = 0.0  # megapixels of photos that are finished in any way
        self.number = 0  # of the current photo, from 1
        self._size = self._share = 0.0  # of the current photo
        self._begun: float | None = None
        self._worked = self._seconds = 0.0  # megapixels restored, and the time it took
        self._start = clock()
        self._bar = tqdm(total=self.total, bar_format="{percentage:3.0f}% |{bar}| {desc}", disable=None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()

    def begin(self, size: float) -> None:
        """The next photo begins."""
        self.number += 1
        self._size, self._share, self._begun = size, 0.0, self._clock()
        self._show()

    def advance(self, share: float) -> None:
        """A share of the current photo is restored."""
        self._share = share
        self._show()

    def end(self, restored: bool) -> None:
        """The current photo is finished; `restored` says whether that was work."""
        if restored and self._begun is not None:
            self._worked += self._size
            self._seconds += self._clock() - self._begun
        self.done += self._size
        self._size = self._share = 0.0
        self._begun = None
        self._show()

    def finish(self, size: float, restored: bool) -> None:
        """A photo is finished, one of several at a time: what counts is the time since the start."""
        self.number += 1
        self.done += size
        if restored:
            self._worked += size
            self._seconds = self._clock() - self._start
        self._show()

    @property
    def left(self) -> float | None:
        """Seconds left; None as long as nothing is known."""
        worked, seconds = self._worked, self._seconds
        if self._begun is not None and self._share > 0:
            worked, seconds = worked + self._size * self._share, seconds + self._clock() - self._begun
        remaining = self.total - self.done - self._size * self._share
        return None if worked == 0 else seconds / worked * max(remaining, 0.0)

    def _show(self) -> None:
        done = self.done + self._size * self._share
        photo = f", photo {min(self.number, self.count)} of {self.count}" if self.count > 1 else ""
        left = "" if self.left is None else f", {spoken(self.left)} left"
        self._bar.n = min(done, self.total)
        self._bar.set_description_str(f"{done:.1f} of {self.total:.1f} megapixels{photo}{left}")


def spoken(seconds: float) -> str:
    """A time for people.

    >>> spoken(4.2), spoken(95), spoken(7300)
    ('4 s', '1:35 min', '2:01 h')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    small, unit = (whole, "min") if whole < 3600 else (whole // 60, "h")
    return f"{small // 60}:{small % 60:02} {unit}"
