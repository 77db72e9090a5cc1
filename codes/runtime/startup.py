"""What a command does before it imports torch: find missing packages, then set up threads and memory.

Imports the standard library only, so that it also works in a Python where nothing is installed.
"""

import ctypes
import os
import re
import sys
from collections.abc import Iterable
from importlib.util import find_spec

from .paths import PROJECT

# Distributions whose modules have another name.
_MODULES = {"open_clip_torch": "open_clip", "opencv-python": "cv2", "pillow": "PIL", "pyyaml": "yaml"}

# Parameters of glibc's mallopt, by the variables with which a user sets them.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_MALLOC = {"MALLOC_TRIM_THRESHOLD_": (_TRIM_THRESHOLD, 2**31 - 1), "MALLOC_MMAP_MAX_": (_MMAP_MAX, 0)}


def requirements() -> dict[str, str]:
    """The packages of requirements.txt with the modules they provide; empty outside the project's folder."""
    path = PROJECT / "requirements.txt"
    lines = path.read_text().splitlines() if path.is_file() else []
    names = [match.group() for line in lines if (match := re.match(r"[A-Za-z][\w.-]*", line))]
    return {name: _MODULES.get(name.lower(), name.replace("-", "_")) for name in names}


def missing_packages(extra: Iterable[str] = ()) -> str | None:
    """One line on the packages that this Python lacks and how to install them; None if it has them all."""
    needed = requirements() | {name: name for name in extra}
    missing = [name for name, module in needed.items() if find_spec(module) is None]
    if not missing:
        return None
    names = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more packages" if len(missing) > 3 else "")
    only_extra = set(missing) <= set(extra)
    pip = f"pip install {' '.join(missing)}" if only_extra else "pip install -r requirements.txt"
    return f"{sys.executable} lacks {names}: run `make install` and use .venv/bin/python, or run `{pip}`"


def set_up_threads() -> None:
    """Let threads that wait for each other sleep. Acts only before torch is imported; the user's setting wins.

    Spinning threads take the cores from the processes that read images, and beside any other work on the machine an
    evaluation can take ten times as long.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def keep_memory() -> None:
    """Let the C library keep freed memory; the user's own settings of it win.

    A training step frees and allocates gigabytes, and fetching fresh pages takes a tenth of its time.
    """
    if sys.platform != "linux" or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        for variable, (parameter, value) in _MALLOC.items():
            if variable not in os.environ:
                library.mallopt(parameter, value)
