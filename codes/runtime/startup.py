"""Set-up before torch is imported: report missing packages, configure threads and memory.

Imports only the standard library, so that it also works in a Python without any packages.
"""

import ctypes
import os
import re
import sys
from collections.abc import Iterable
from importlib.util import find_spec

from .paths import PROJECT

# Distributions whose module has a different name.
_MODULES = {"open_clip_torch": "open_clip", "opencv-python": "cv2", "pillow": "PIL", "pyyaml": "yaml"}

# Parameters of glibc's mallopt, by the environment variable with which a user sets each.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_MALLOC = {"MALLOC_TRIM_THRESHOLD_": (_TRIM_THRESHOLD, 2**31 - 1), "MALLOC_MMAP_MAX_": (_MMAP_MAX, 0)}


def requirements() -> dict[str, str]:
    """The packages of requirements.txt with the modules they provide; empty outside the project's folder."""
    path = PROJECT / "requirements.txt"
    lines = path.read_text().splitlines() if path.is_file() else []
    names = [match.group() for line in lines if (match := re.match(r"[A-Za-z][\w.-]*", line))]
    return {name: _MODULES.get(name.lower(), name.replace("-", "_")) for name in names}


def missing_packages(extra: Iterable[str] = ()) -> str | None:
    """One line that names missing packages and how to install them; None if nothing is missing."""
    needed = requirements() | {name: name for name in extra}
    missing = [name for name, module in needed.items() if find_spec(module) is None]
    if not missing:
        return None
    names = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more packages" if len(missing) > 3 else "")
    only_extra = set(missing) <= set(extra)
    pip = f"pip install {' '.join(missing)}" if only_extra else "pip install -r requirements.txt"
    return f"{sys.executable} lacks {names}: run `make install` and use .venv/bin/python, or run `{pip}`"


def set_up_threads() -> None:
    """Let waiting OpenMP threads sleep instead of spin. Has no effect after torch is imported; the user's setting wins.

    Spinning threads take cores from the processes that read images, and on a busy machine a network evaluation can
    take ten times as long.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def keep_memory() -> None:
    """Let the C library keep freed memory instead of returning it to the system; the user's settings win.

    A training step frees and allocates gigabytes, and getting fresh pages takes a tenth of its time.
    """
    if sys.platform != "linux" or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        for variable, (parameter, value) in _MALLOC.items():
            if variable not in os.environ:
                library.mallopt(parameter, value)
