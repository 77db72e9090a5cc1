"""One line for a file that cannot be used: which file, what is wrong with it, what to do."""

import errno
import os
import stat
from pathlib import Path

from ..names import OptionsError


class FileError(OptionsError):
    """A file or folder that cannot be used; the message is one line: file, harm, remedy."""


class Damaged(FileError):
    """A file that exists and is not what was written: cut off, changed, or never of this kind."""


class Busy(FileError):
    """A folder or a result that another process is working on."""


_RESUME = "and start again: everything finished before is kept"

# By error number: what to do. An error that is not here is told without advice.
_REMEDIES = {
    errno.ENOSPC: f"free some space on that disk {_RESUME}",
    errno.EDQUOT: f"free some of your disk quota {_RESUME}",
    errno.EFBIG: f"this file system limits the size of files; choose another folder {_RESUME}",
    errno.EACCES: "give yourself permission to it, or choose another place",
    errno.EPERM: "give yourself permission to it, or choose another place",
    errno.EROFS: "this file system is read-only; choose another folder",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EIO: f"the disk reports an error; check it {_RESUME}",
    errno.ESTALE: f"the network folder went away; mount it again {_RESUME}",
    errno.ENOTDIR: "part of the path is a file, not a folder",
    errno.EMFILE: "too many files are open; raise the limit with ulimit -n",
    errno.ELOOP: "its symbolic links lead in a circle",
}


def explain(error: OSError, path: str | os.PathLike[str] | None = None, harm: str = "cannot be written") -> str:
    """The line for an error of the operating system. The file that the error names goes before `path`.

    >>> explain(OSError(28, "No space left on device", "a.png"))  # doctest: +ELLIPSIS
    'a.png: cannot be written: No space left on device; free some space on that disk and start again: ...'
    """
    file = error.filename if error.filename is not None else path
    where = "" if file is None else f"{os.fsdecode(file) if isinstance(file, bytes | str) else file}: "
    remedy = _REMEDIES.get(error.errno or 0)
    return f"{where}{harm}: {error.strerror or error}" + (f"; {remedy}" if remedy else "")


_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def check_regular(path: str | os.PathLike[str]) -> os.stat_result:
    """Raise FileError for anything but a file: a device or a pipe may have no end. FileNotFoundError if absent."""
    try:
        found = os.stat(path)  # noqa: PTH116  (path may be text)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        text = explain(error, path, "cannot be read") if isinstance(error, OSError) else f"{path!r}: {error}"
        raise FileError(text) from None
    _check_kind(path, found)
    return found


def _check_kind(path: str | os.PathLike[str], found: os.stat_result) -> None:
    kind = next((name for test, name in _KINDS if test(found.st_mode)), None)
    if kind is not None:
        raise FileError(f"{Path(path)}: {kind}; expected a file")


def refuse_link(path: str | os.PathLike[str]) -> None:
    """Raise FileError for a symbolic link in place of a file that a command keeps for itself."""
    if Path(path).is_symlink():
        raise FileError(f"{Path(path)}: a symbolic link, which could lead anywhere; remove it")


def open_own(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file that a command keeps for itself and writes into; a handle that processes started later do not have.

    Raises FileError for a symbolic link, which a folder of somebody else may have, and which leads anywhere.
    """
    # Not blocking: a pipe would wait for its other end.
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):  # no system has all of them
        flags |= getattr(os, name, 0)
    try:
        handle = os.open(path, flags, 0o666)
    except OSError as error:
        refuse_link(path)
        if Path(path).is_dir():
            raise FileError(f"{Path(path)}: a folder; expected a file") from None
        raise OSError(error.errno, error.strerror, str(path)) from error
    try:
        _check_kind(path, os.fstat(handle))
    except FileError:
        os.close(handle)
        raise
    return handle
