"""The one place that writes files, and reads those that a run trusts later.

Writing is atomic: a file is complete or absent. Reading has three outcomes: None for an absent file, its content for a
whole one, Damaged for one that was cut off or changed since. The checksum is part of the format: an entry of JSON
objects, a line of YAML (both in codes/runtime/seals.py), the sums inside the archives of NumPy and torch. Files of
earlier versions, without checksums, are read as before.
"""

import errno
import hashlib
import io
import json
import os
import struct
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from .locks import PREFIX, is_current, lock, locked
from .problems import Damaged, FileError, check_regular, explain, open_own
from .seals import sealed, sealed_text, unsealed, unsealed_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

# ---- writing


class Part(io.FileIO):
    """A file in the making. It remembers the system's error: torch reports one of its own instead."""

    failure: OSError | None = None

    def write(self, content: Any, /) -> int:
        """Write all of it."""
        try:
            return write_all(self, content)
        except OSError as error:
            self.failure = error
            raise


def write_all(file: io.FileIO, content: Any) -> int:
    """Write to an unbuffered file until nothing is left; every byte of this module's files goes through here."""
    view, done = memoryview(content).cast("B"), 0
    while done < len(view):
        done += io.FileIO.write(file, view[done:]) or 0
    return done


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let `write` fill a file under a temporary name, flush it to disk, rename it to `path` and flush the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part, name = _new_part(path)
    try:
        with part:
            write(part)
            os.fsync(part.fileno())
            name.chmod(0o644)  # mkstemp gives 0600
            name.replace(path)
        _flush_folder(path.parent)
    except BaseException as error:
        name.unlink(missing_ok=True)
        cause = part.failure or error
        if not isinstance(cause, OSError):
            raise
        # The name that the caller knows.
        raise OSError(cause.errno, cause.strerror or str(cause), str(path)) from error


def _flush_folder(folder: Path) -> None:
    """Let a renaming outlive a power failure. Where folders cannot be flushed, the file is whole all the same."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows, or a folder that may be written to but not listed
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES):
            raise
    finally:
        os.close(handle)


def _new_part(path: Path) -> tuple[Part, Path]:
    """A locked temporary file beside `path`. The lock tells remove_leftovers that somebody is writing it."""
    while True:
        try:
            # A short name, whatever the length of the file's own.
            handle, temporary = tempfile.mkstemp(prefix=PREFIX, suffix=".part", dir=path.parent)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error
        part, name = Part(handle, "wb"), Path(temporary)
        lock(handle)
        if is_current(handle, name):
            return part, name
        part.close()


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is either complete or absent."""
    write_whole(path, lambda part: part.write(content))


def write_text(path: Path, text: str) -> None:
    """Write lines of YAML with a checksum; `read_text` reads them."""
    write_atomically(path, sealed_text(text).encode())


def write_json(path: Path, value: dict[str, Any] | list[dict[str, Any]]) -> None:
    """Write a JSON object, or a list of objects, with a checksum in each; `read_json` reads them."""
    content = sealed(value) if isinstance(value, dict) else [sealed(entry) for entry in value]
    write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())


def write_json_lines(path: Path, values: list[dict[str, Any]]) -> None:
    """Write a whole file of JSON lines at once, a checksum in each; `read_lines` reads them."""
    write_atomically(path, b"".join(_line(value) for value in values))


def write_arrays(path: Path, arrays: Mapping[str, "NDArray[Any]"]) -> None:
    """Write arrays as .npz, whose format has checksums; `read_arrays` reads them."""
    import numpy as np

    write_whole(path, lambda part: np.savez(part, **arrays))  # type: ignore[arg-type]


def remove_leftovers(folder: Path, *, deep: bool = True) -> list[Path]:
    """Remove the unfinished files and locks of processes that are gone; returns what was removed.

    A file that somebody still writes, or a lock that is held, is locked and stays.
    """
    removed = []
    for place, folders, files in os.walk(folder):
        for name in files:
            path = Path(place, name)
            if name.startswith(PREFIX) and name.endswith((".part", ".lock")) and _remove_if_dead(path):
                removed.append(path)
        if not deep:
            folders.clear()
    return sorted(removed)


def _remove_if_dead(path: Path) -> bool:
    try:
        handle = open_own(path, os.O_RDWR)
    except (OSError, FileError):
        return False
    try:
        if not (lock(handle) and is_current(handle, path)):
            return False
        path.unlink()
        return True
    except OSError:
        return False
    finally:
        os.close(handle)


def set_aside(path: Path) -> Path:
    """Rename a damaged file to NAME.damaged, NAME.damaged-2, ..., out of the way but not lost."""
    number, target = 1, path.with_name(f"{path.name}.damaged")
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}.damaged-{number}")
    path.rename(target)
    return target


# ---- reading

# What reading a changed archive raises, besides OSError.
_WRONG_ARCHIVE = (
    *(zipfile.BadZipFile, struct.error, ValueError, EOFError, LookupError),
    *(NotImplementedError, RuntimeError, SyntaxError, TypeError, OverflowError),
)


def digest(content: bytes | Path) -> str:
    """SHA-256 of some bytes or of a file, in hexadecimal; FileError for a device or a pipe."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    check_regular(content)
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_bytes(path: Path) -> bytes | None:
    """The content of a file, None if there is none; raises FileError for what cannot be read or is not a file."""
    try:
        check_regular(path)
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileError(explain(error, path, "cannot be read")) from None


def read_text(path: Path) -> str | None:
    """The lines that `write_text` wrote."""
    content = read_bytes(path)
    if content is None:
        return None
    try:
        text, whole = unsealed_text(content.decode())
    except UnicodeDecodeError:
        raise Damaged(f"{path}: damaged, not text") from None
    if whole is False:
        raise Damaged(f"{path}: damaged or changed since it was written: its checksum is wrong")
    if not content.endswith(b"\n"):
        raise Damaged(f"{path}: damaged, it is " + ("cut off" if content else "empty"))
    return text


def read_json(path: Path) -> Any:
    """The object, or list of objects, that `write_json` wrote."""
    content = read_bytes(path)
    if content is None:
        return None
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        raise Damaged(f"{path}: damaged, it is " + ("not whole JSON" if content else "empty")) from None
    entries = [unsealed(entry) for entry in (value if isinstance(value, list) else [value]) if isinstance(entry, dict)]
    if any(whole is False for _, whole in entries):
        raise Damaged(f"{path}: damaged or changed since it was written: a checksum is wrong")
    if isinstance(value, list):
        return [unsealed(entry)[0] if isinstance(entry, dict) else entry for entry in value]
    return unsealed(value)[0] if isinstance(value, dict) else value


def read_arrays(path: Path) -> "dict[str, NDArray[Any]] | None":
    """The arrays that `write_arrays` wrote."""
    import numpy as np

    try:
        check_archive(path)
    except FileNotFoundError:
        return None
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, *_WRONG_ARCHIVE) as error:
        raise Damaged(f"{path}: damaged, not readable arrays ({first_line(error)})") from None


def check_archive(path: Path) -> None:
    """Raise Damaged unless the checksums inside an archive of torch or NumPy are right; FileNotFoundError if absent."""
    size = check_regular(path).st_size
    if size == 0:
        raise Damaged(f"{path}: damaged, it is empty")
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            # Neither library compresses, so a small file cannot hide a huge one.
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
                raise Damaged(f"{path}: damaged, it has compressed parts")
            # Checked must be what torch reads: it goes by the other length, and reads nothing from a folder.
            if any(entry.compress_size != entry.file_size or entry.external_attr & 0x10 for entry in entries):
                raise Damaged(f"{path}: damaged, the list of its parts is wrong")
            if sum(entry.file_size for entry in entries) > size:
                raise Damaged(f"{path}: damaged, its parts overlap")
            wrong = archive.testzip()
    except OSError as error:
        if error.errno == errno.EINVAL:  # a place outside of the file
            raise Damaged(f"{path}: damaged or cut off") from None
        raise FileError(explain(error, path, "cannot be read")) from None
    except _WRONG_ARCHIVE as error:
        raise Damaged(f"{path}: damaged or cut off ({first_line(error)})") from None
    if wrong is not None:
        raise Damaged(f"{path}: damaged, the checksum of {wrong} is wrong")


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its kind where the message is empty."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


# ---- lines of JSON


@dataclass
class Lines:
    """The whole lines of a file, and the numbers of its damaged ones."""

    values: list[dict[str, Any]] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)


class JsonLines:
    """An append-only file of JSON lines with checksums, safe to share between threads and processes.

    A line is on disk when `append` returns. An incomplete last line, left by a kill, is removed on opening.
    """

    def __init__(self, path: Path) -> None:
        self._mutex = threading.Lock()
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists()
        self._file = io.FileIO(path, "ab+", opener=open_own)
        try:
            if is_new:
                _flush_folder(path.parent)
            with locked(self._file.fileno()) as alone:
                tail = _unfinished(self._file)
                if tail and alone and tail.startswith(b"{") and _parsed(tail) is None:
                    self._file.truncate(self._file.seek(0, os.SEEK_END) - len(tail))
        except OSError as error:
            self._file.close()
            raise OSError(error.errno, error.strerror, str(path)) from error

    def append(self, value: dict[str, Any]) -> tuple[int, os.stat_result]:
        """Write one line and flush it to disk; leaves no half of it if the disk is full.

        Returns the length of the file before it, and the state of the file right after it, before anyone else writes.
        """
        line = _line(value)
        with self._mutex, locked(self._file.fileno()) as alone:
            end = self._file.seek(0, os.SEEK_END)
            try:
                write_all(self._file, (b"\n" if _unfinished(self._file) else b"") + line)
                os.fsync(self._file.fileno())
            except OSError as error:
                if alone:
                    with suppress(OSError):  # the next start removes it
                        self._file.truncate(end)
                raise OSError(error.errno, error.strerror, str(self._path)) from error
            return end, os.fstat(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_lines(path: Path) -> Lines | None:
    """The lines that JsonLines or write_json_lines wrote; None if there is no file.

    A line without a checksum is damaged if it follows one that has it. A last line that was not finished is left out.
    """
    content = read_bytes(path)
    if content is None:
        return None
    lines, checked = Lines(), False
    rows = content.split(b"\n")
    for number, row in enumerate(rows, 1):
        value, whole = unsealed(parsed) if (parsed := _parsed(row)) is not None else ({}, False)
        checked = checked or whole is True
        if whole or (whole is None and not checked):
            lines.values.append(value)
        elif row.strip() and number < len(rows):
            lines.damaged.append(number)
    return lines


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a file; none if the file does not exist."""
    found = read_lines(path)
    yield from found.values if found else ()


def mend_lines(path: Path) -> list[int]:
    """Write a file of JSON lines again without its damaged ones, and set the old one aside; returns their numbers."""
    found = read_lines(path)
    if found is None or not found.damaged:
        return []
    set_aside(path)
    write_json_lines(path, found.values)
    return found.damaged


def _line(value: Mapping[str, Any]) -> bytes:
    content = sealed(value)
    try:
        return json.dumps(content, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:  # a file name that is no text
        return json.dumps(content).encode() + b"\n"


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _unfinished(file: io.FileIO) -> bytes:
    """What follows the last line break of a file."""
    size = file.seek(0, os.SEEK_END)
    tail = b""
    while size and b"\n" not in tail:
        start = max(0, size - 65536)
        file.seek(start)
        tail = file.read(size - start) + tail
        size = start
    return tail.rpartition(b"\n")[2]
