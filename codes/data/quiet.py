"""Keeps the lines that image libraries print from the user: every problem that matters has a message of our own."""

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# libpng, libjpeg and libtiff write to standard error directly, with these beginnings.
_THEIRS = (b"libpng ", b"Corrupt JPEG", b"Premature end of JPEG", b"TIFF", b"Invalid SOS", b"Unsupported marker")
_STDERR = 2


class _Diversion:
    """Standard error diverted into a file while some thread is inside `quiet`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0
        self.original = -1
        self.file = -1

    def begin(self) -> None:
        with self.lock:
            self.inside += 1
            if self.inside > 1:
                return
            try:
                self.original = os.dup(_STDERR)
                handle, name = tempfile.mkstemp()
                os.unlink(name)  # noqa: PTH108
                self.file = handle
                os.dup2(handle, _STDERR)
            except OSError:  # no standard error, or no room for a file
                self._close()

    def end(self) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside or self.original < 0:
                return
            os.dup2(self.original, _STDERR)
            printed = os.pread(self.file, os.fstat(self.file).st_size, 0)
            self._close()
        # What others have printed in the meantime comes a little late, but it comes.
        ours = b"".join(line for line in printed.splitlines(keepends=True) if not line.startswith(_THEIRS))
        if ours:
            with suppress(OSError):
                os.write(_STDERR, ours)

    def _close(self) -> None:
        for handle in (self.original, self.file):
            if handle >= 0:
                os.close(handle)
        self.original = self.file = -1


_diversion = _Diversion()


@contextmanager
def quiet() -> Iterator[None]:
    """Drop what libpng, libjpeg and libtiff print while the block runs; lines of others are passed on after it."""
    _diversion.begin()
    try:
        yield
    finally:
        _diversion.end()
