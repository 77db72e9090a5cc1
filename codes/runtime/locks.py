"""Claims on folders and results, for several processes that work in the same place.

A claim is a lock of the operating system on a small file, so it ends with its process, also after kill -9. On a network
folder it is as good as the locks of that file system; where there are none, nothing is locked and one line says so.
"""

import errno
import hashlib
import json
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .problems import Busy, open_own

if sys.platform != "win32":
    import fcntl

log = logging.getLogger(__name__)

PREFIX = ".mr-"  # of all files that exist only during a run
LONGEST_PAUSE = 0.5  # seconds between two tries


def lock(handle: int, *, shared: bool = False) -> bool | None:
    """Try to lock an open file: True if it worked, False if another process has it, None if locks do not exist here.

    The lock ends when the file is closed, and with the process.
    """
    if sys.platform == "win32":
        return None
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES, errno.EDEADLK):
            return False
        if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
            return None
        raise
    return True


@contextmanager
def locked(handle: int) -> Iterator[bool]:
    """Hold the lock of an open file that others hold for moments only; False where locks do not exist."""
    while (state := lock(handle)) is False:
        time.sleep(0.002)
    try:
        yield state is True
    finally:
        if state and sys.platform != "win32":
            fcntl.flock(handle, fcntl.LOCK_UN)


def is_current(handle: int, path: Path) -> bool:
    """Whether a path still leads to an open file: the one who had the lock before may have removed it."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def lock_file(path: Path) -> Path:
    """The file that is locked for a folder (inside it), or for a result (beside it)."""
    if path.is_dir():
        return path / f"{PREFIX}folder.lock"
    # Not the name itself, which may be as long as the file system allows.
    return path.parent / f"{PREFIX}{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]}.lock"


@contextmanager
def claim(
    path: Path,
    *,
    shared: bool = False,
    wait: float | None = 0.0,
    say: Callable[[str], object] = log.info,
) -> Iterator[None]:
    """Hold a folder or a result (a path that need not exist yet) until the block ends; raises Busy.

    shared  others may hold it too, if they share as well
    wait    seconds to wait for another process; None: as long as it takes
    say     is told once whom this process waits for
    """
    target = lock_file(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    end = None if wait is None else time.monotonic() + wait
    pause, told = 0.01, False
    while True:
        handle = open_own(target, os.O_RDWR | os.O_CREAT)
        try:
            state = lock(handle, shared=shared)
            if state is None or (state and is_current(handle, target)):
                break
            holder = _holder(target) if state is False else ""
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        if state:
            continue  # locked a file that was removed in the meantime
        if end is not None and time.monotonic() >= end:
            raise Busy(f"{path}: in use by {holder}; wait until it ends, or choose another place")
        if not told:
            say(f"{path}: waiting for {holder}")
            told = True
        time.sleep(pause if end is None else min(pause, max(end - time.monotonic(), 0.0)))
        pause = min(2 * pause, LONGEST_PAUSE)
    try:
        if state is None:
            say(f"{path}: this file system has no locks; start one process at a time here")
        elif not shared:
            _sign(handle, path)
        yield
    finally:
        _release(handle, target, state)


def _sign(handle: int, path: Path) -> None:
    """Write into a lock who holds it; an error names what was to be held."""
    try:
        os.ftruncate(handle, 0)
        os.write(handle, json.dumps(_myself()).encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _release(handle: int, target: Path, state: bool | None) -> None:
    """Remove the lock's file while it is still locked, unless others share it."""
    try:
        if state and lock(handle) and is_current(handle, target):
            target.unlink(missing_ok=True)
    except OSError:
        pass  # the folder became read-only, or vanished: the lock ends all the same
    finally:
        os.close(handle)


def _myself() -> dict[str, object]:
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return {
        "process": os.getpid(),
        "host": socket.gethostname(),
        "command": command,
        "since": time.strftime("%H:%M:%S"),
    }


def _holder(target: Path) -> str:
    """Who holds a lock, as far as its file says."""
    try:
        found = json.loads(target.read_bytes())
        where = "" if found["host"] == socket.gethostname() else f" on {found['host']}"
        return f"process {found['process']}{where} ({found['command'][:100]}, since {found['since']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
