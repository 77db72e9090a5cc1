"""Set-up before torch is imported: report missing packages, configure threads and memory.

Imports only the standard library, so that it also works in a Python without any packages.
"""

import ctypes
import os
import platform
import re
import sys
from collections.abc import Iterable
from importlib.metadata import requires
from importlib.util import find_spec
from pathlib import Path

from .paths import INSTALLED, PROJECT

OLDEST_PYTHON = (3, 11)

# Distributions whose module has a different name.
_MODULES = {"open_clip_torch": "open_clip", "opencv-python": "cv2", "pillow": "PIL", "pyyaml": "yaml"}

_NAME = r"^[A-Za-z][\w.-]*"
_OPTIONAL = "# Optional"  # the line of requirements.txt below which are packages that only some commands need

# Parameters of glibc's mallopt, by the environment variable with which a user sets each.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_MALLOC = {"MALLOC_TRIM_THRESHOLD_": (_TRIM_THRESHOLD, 2**31 - 1), "MALLOC_MMAP_MAX_": (_MMAP_MAX, 0)}

HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"  # an environment variable of torch's


def requirements() -> dict[str, str]:
    """The packages that every command of a clone needs, with their modules: the first part of requirements.txt."""
    path = PROJECT / "requirements.txt"
    text = path.read_text().partition(_OPTIONAL)[0] if path.is_file() else ""
    return {name: _module(name) for name in re.findall(_NAME, text, re.MULTILINE)}


def installed_requirements(extra: str) -> dict[str, str]:
    """The same for an extra of the installed package, from its own metadata."""
    found: dict[str, str] = {}
    for line in requires("mr-sampler") or ():
        if "extra ==" in line and not re.search(rf"extra == ['\"]{extra}['\"]", line):
            continue
        nested = re.match(r"mr-sampler\[([\w,]+)\]", line)
        if nested:
            for other in nested[1].split(","):
                found |= installed_requirements(other)
        elif match := re.match(_NAME, line):
            found[match.group()] = _module(match.group())
    return found


def _module(name: str) -> str:
    return _MODULES.get(name.lower(), name.replace("-", "_"))


def missing_packages(needs: Iterable[str] = (), extra: str = "restore") -> str | None:
    """One line that names missing packages and how to install them; None if nothing is missing.

    needs   packages beyond those that every command of a clone needs
    extra   what an installed package needs instead
    """
    if sys.version_info < OLDEST_PYTHON:
        needed_version = ".".join(map(str, OLDEST_PYTHON))
        return f"needs Python {needed_version} or newer, {sys.executable} is {platform.python_version()}"
    needed = installed_requirements(extra) if INSTALLED else requirements() | {name: name for name in needs}
    missing = [name for name, module in needed.items() if find_spec(module) is None]
    if not missing:
        return None
    names = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more packages" if len(missing) > 3 else "")
    if INSTALLED:
        return f"{sys.executable} lacks {names}: run `pip install 'mr-sampler[{extra}]'`"
    inside = Path.cwd() == PROJECT
    folder = "" if inside else f"{PROJECT}/"
    wanted = [pin for name in needs if name in missing and (pin := _pinned(name))]
    if not set(missing) <= set(needs):
        wanted = [f"-r {folder}requirements.txt", *(pin for pin in wanted if pin not in _lock("requirements.txt"))]
    return (
        f"{sys.executable} lacks {names}: run `make {'' if inside else f'-C {PROJECT} '}install` and use "
        f"{folder}.venv/bin/python, or run `pip install {' '.join(wanted)}`"
    )


def _pinned(name: str) -> str:
    """A package as it is tested, for example 'gradio==6.31.0'."""
    pins = [*_lock("requirements.txt"), *_lock(".ci/constraints.txt")]
    return next((pin for pin in pins if pin.startswith(f"{name}==")), name)


def _lock(file: str) -> list[str]:
    path = PROJECT / file
    return [line.strip() for line in path.read_text().splitlines()] if path.is_file() else []


def set_up_torch() -> None:
    """How torch uses threads and memory. Has no effect after torch is imported; the user's settings win."""
    # Waiting OpenMP threads sleep instead of spin. Spinning threads take cores from the processes that read images,
    # and on a busy machine a network evaluation can take ten times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # torch asks for pages of 2 MB. Image-sized tensors come and go with every operation, and getting 512 small pages
    # takes longer than one large.
    os.environ.setdefault(HUGE_PAGES, "1")


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
