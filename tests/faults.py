"""A disk that fails: at the k-th write, flush, rename or cut of a run, and at every one after it or at none."""

import errno
import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from codes.runtime import files


class Disk:
    """Counts what a run does to the disk; from number `full_from` on everything fails, or that one alone.

    Of the many writes of a file in the making the first two count: it is cut off at its beginning, and within.
    """

    def __init__(self, full_from: int | None = None, error: int = errno.ENOSPC, only: bool = False) -> None:
        self.full_from, self.error, self.only = full_from, error, only
        self.operations: list[str] = []
        self._lock = threading.Lock()

    @property
    def full(self) -> bool:
        """Whether what was counted last has to fail."""
        number = len(self.operations) - 1
        return self.full_from is not None and (number == self.full_from if self.only else number >= self.full_from)

    def count(self, what: str, path: object = None) -> None:
        with self._lock:
            self.operations.append(what)
            failing = self.full
        if failing:
            raise OSError(self.error, os.strerror(self.error), *([] if path is None else [str(path)]))

    def write(self, original: Callable[..., int], file: Any, content: Any) -> int:
        number = file.writes = getattr(file, "writes", 0) + 1
        if number <= 2 or (self.full and not self.only) or not isinstance(file, files.Part):
            try:
                self.count("write")
            except OSError:
                original(file, memoryview(content).cast("B")[:3])  # the first bytes still fit
                raise
        return original(file, content)


@contextmanager
def disk(full_from: int | None = None, error: int = errno.ENOSPC, only: bool = False) -> Iterator[Disk]:
    """Let the disk fail within the block."""
    made = Disk(full_from, error, only)
    write, fsync = files.write_all, os.fsync

    def flush(handle: int) -> None:
        made.count("flush")
        fsync(handle)

    def counted(what: str, original: Callable[..., None]) -> Callable[..., None]:
        def operation(first: Any, second: Any) -> None:
            made.count(what, second if what == "rename" else None)
            original(first, second)

        return operation

    class File(io.FileIO):
        def truncate(self, size: int | None = None, /) -> int:
            made.count("cut")
            return super().truncate(size)

    with (
        patch.object(files, "write_all", lambda file, content: made.write(write, file, content)),
        patch.object(os, "fsync", flush),
        # Those of Path call them.
        patch.object(os, "replace", counted("rename", os.replace)),
        patch.object(os, "rename", counted("rename", os.rename)),
        patch.object(os, "ftruncate", counted("cut", os.ftruncate)),
        patch.object(io, "FileIO", File),
    ):
        yield made


def survives_every_fault(
    start: Callable[[], int], check: Callable[[], None], errors: Callable[[], str], *, only: bool = False, step: int = 1
) -> int:
    """Let a run fail at every operation, and then finish it; returns the number of operations.

    start   begins a run in a new folder with the first call after `check`, and resumes it with the next ones
    check   that the finished run is as it should be; then a new one may begin
    errors  what was printed since it was last asked
    only    whether one operation fails and those after it do not
    step    5: every fifth operation fails, which takes a fifth of the time
    """
    with disk() as undisturbed:
        assert start() == 0
    check()
    total = len(undisturbed.operations)
    for k in range(0, total, step):
        errors()
        with disk(full_from=k, only=only) as broken:
            code = start()
        said = errors()
        if len(broken.operations) > k:  # the fault was met
            assert code in (1, 2), (k, code)
            assert "No space left on device" in said and "Traceback" not in said, (k, said)
            assert not said.startswith("cannot"), (k, said)  # the file comes first
        assert start() == 0, (k, errors())
        check()
    return total
