"""A disk that fails: at the k-th write, flush or rename of a run, and at every one after it."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from codes.runtime import files


class Disk:
    """Counts what a run does to the disk; from number `full_from` on, everything fails.

    Of the many writes of a file in the making the first two count: it is cut off at its beginning, and within.
    """

    def __init__(self, full_from: int | None = None, error: int = errno.ENOSPC) -> None:
        self.full_from, self.error = full_from, error
        self.operations: list[str] = []
        self._lock = threading.Lock()

    def count(self, what: str, path: object = None) -> None:
        with self._lock:
            self.operations.append(what)
            failing = self.full_from is not None and len(self.operations) > self.full_from
        if failing:
            raise OSError(self.error, os.strerror(self.error), *([] if path is None else [str(path)]))

    def write(self, original: Callable[..., int], file: Any, content: Any) -> int:
        number = file.writes = getattr(file, "writes", 0) + 1
        full = self.full_from is not None and len(self.operations) > self.full_from
        if number <= 2 or full or not isinstance(file, files.Part):
            try:
                self.count("write")
            except OSError:
                original(file, memoryview(content).cast("B")[:3])  # the first bytes still fit
                raise
        return original(file, content)


@contextmanager
def disk(full_from: int | None = None, error: int = errno.ENOSPC) -> Iterator[Disk]:
    """Let the disk fail within the block."""
    made = Disk(full_from, error)
    write, fsync, replace = files.write_all, os.fsync, Path.replace

    def flush(handle: int) -> None:
        made.count("flush")
        fsync(handle)

    def rename(self: Path, target: Path) -> Path:
        made.count("rename", target)
        return replace(self, target)

    with (
        patch.object(files, "write_all", lambda file, content: made.write(write, file, content)),
        patch.object(os, "fsync", flush),
        patch.object(Path, "replace", rename),
    ):
        yield made


def survives_every_fault(start: Callable[[], int], check: Callable[[], None], errors: Callable[[], str]) -> int:
    """Let a run fail at every operation, and then finish it; returns the number of operations.

    start   begins a run in a new folder with the first call after `check`, and resumes it with the next ones
    check   that the finished run is as it should be; then a new one may begin
    errors  what was printed since it was last asked
    """
    with disk() as undisturbed:
        assert start() == 0
    check()
    total = len(undisturbed.operations)
    for k in range(total):
        errors()
        with disk(full_from=k) as broken:
            code = start()
        said = errors()
        if len(broken.operations) > k:  # the fault was met
            assert code in (1, 2), (k, code)
            assert "No space left on device" in said and "Traceback" not in said, (k, said)
        assert start() == 0, (k, errors())
        check()
    return total
