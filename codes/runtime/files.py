"""Atomic file writes, and append-only JSON lines that survive a kill."""

import hashlib
import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a file under a temporary name, flush it to disk and rename it to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    os.close(handle)
    partial = Path(temporary)
    try:
        write(partial)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.chmod(0o644)  # mkstemp and safetensors give 0600
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is either complete or absent."""

    def write(partial: Path) -> None:
        partial.write_bytes(content)

    write_whole(path, write)


def digest(content: bytes | Path) -> str:
    """SHA-256 of some bytes or of a file, in hexadecimal."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class JsonLines:
    """An append-only file of JSON lines, safe to share between threads.

    A line is on disk when `append` returns. An incomplete last line, left by a kill, is terminated on opening.
    """

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab+")
        self._file.seek(0, os.SEEK_END)
        if self._file.tell():
            self._file.seek(-1, os.SEEK_END)
            self._file.write(b"" if self._file.read() == b"\n" else b"\n")

    def append(self, value: dict[str, Any]) -> None:
        """Write one line and flush it to disk."""
        line = json.dumps(value, ensure_ascii=False, allow_nan=True).encode() + b"\n"
        with self._lock:
            self._file.write(line)
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The complete JSON objects of a file, line by line; none if the file does not exist."""
    for line in path.read_bytes().split(b"\n") if path.is_file() else ():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value
