"""Progress through many photos, in megapixels, with the time that is left."""

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from tqdm import tqdm


class Pace:
    """The time that is left of several pieces of work, of any unit, `together` of which are done at a time.

    What is left of the current piece takes as long as it took since its first report: reading and preparing come
    before that, and would make the rest of a large photo look many times longer. The pieces that follow take as long
    as those that are finished; the first of each process is slow, and counts only until there are others. A piece that
    was skipped says nothing about the speed.
    """

    def __init__(self, total: float, clock: Callable[[], float] = time.perf_counter, together: int = 1) -> None:
        self._clock = clock
        self.total, self.together = total, together
        self.done = 0.0  # of pieces that are finished in any way
        self.size = self.share = 0.0  # of the current piece
        self._begun = self._reported = 0.0  # when the current piece was begun, and when its first report came
        self._first = 1.0  # the share of that report
        self._pieces = 0  # that were work
        self._worked = self._seconds = 0.0  # the size of those that count, and the time they took

    def begin(self, size: float) -> None:
        """The next piece begins."""
        self.size, self.share, self._first, self._begun = size, 0.0, 1.0, self._clock()

    def advance(self, share: float) -> None:
        """A share of the current piece is done."""
        if self.share == 0:
            self._first, self._reported = share, self._clock()
        self.share = share

    def end(self, worked: bool) -> None:
        """The current piece is finished; `worked` says whether that took work."""
        # A first piece with a single report was mostly warming up: it says nothing.
        if worked and (self._pieces or self.share > self._first):
            self._count(self.size, self._clock() - self._begun)
        elif worked:
            self._pieces += 1
        self.done += self.size
        self.size = self.share = 0.0

    def _count(self, size: float, seconds: float) -> None:
        """A piece took so long."""
        if self._pieces == self.together:
            self._worked = self._seconds = 0.0
        self._pieces += 1
        self._worked += size
        self._seconds += seconds / self.together

    @property
    def left(self) -> float | None:
        """Seconds left; None as long as nothing is known."""
        others = self._seconds / self._worked if self._worked else None
        own = others
        if self.size > 0 and self.share > self._first:
            own = (self._clock() - self._reported) / (self.size * (self.share - self._first))
        later = own if others is None else others
        if own is None or later is None:
            return None
        return own * self.size * (1 - self.share) + later * max(self.total - self.done - self.size, 0.0)

    @property
    def left_in_words(self) -> str:
        """Such as 'about 1:35 min left'; empty where nothing is left, or nothing is known."""
        left = self.left
        return "" if left is None or left < 0.5 else f"about {spoken(left)} left"


class Meter(Pace):
    """A pace with a bar on a terminal.

    sizes      megapixels of each photo, in the order in which they are begun
    together   how many photos are restored at a time
    """

    def __init__(
        self, sizes: Sequence[float], clock: Callable[[], float] = time.perf_counter, together: int = 1
    ) -> None:
        super().__init__(sum(sizes), clock, together)
        self.count = len(sizes)
        self.number = 0  # of the current photo, from 1
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
        super().begin(size)
        self._show()

    def advance(self, share: float) -> None:
        """A share of the current photo is restored."""
        super().advance(share)
        self._show()

    def end(self, worked: bool) -> None:
        """The current photo is finished."""
        super().end(worked)
        self._show()

    def finish(self, size: float, seconds: float | None) -> None:
        """A photo is finished, one of several at a time; None: it took no work."""
        self.number += 1
        self.done += size
        if seconds is not None:
            self._count(size, seconds)
        self._show()

    def _show(self) -> None:
        done = self.done + self.size * self.share
        photo = f"photo {min(self.number, self.count)} of {self.count}" if self.count > 1 else ""
        texts = [f"{done:.1f} of {self.total:.1f} megapixels", photo, self.left_in_words]
        self._bar.n = min(done, self.total)
        self._bar.set_description_str(", ".join(filter(None, texts)))


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
