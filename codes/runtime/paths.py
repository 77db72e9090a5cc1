"""Where the project's files are, where relative paths are looked for, and which texts cannot be paths."""

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
INSTALLED = (PACKAGE / "options").is_dir()
# Options, weights and demonstration images: inside an installed package, in a clone beside it.
PROJECT = PACKAGE if INSTALLED else PACKAGE.parent


def locate(path: str | Path) -> Path:
    """Find a path that may be relative: in the current folder, else in the package; unchanged if it is in neither."""
    given = _expanded(path)
    inside = PROJECT / given
    # Path.exists raises for a name that is too long, or leads in a circle.
    return inside if not os.path.exists(given) and os.path.exists(inside) else given  # noqa: PTH110


def _expanded(path: str | Path) -> Path:
    """With the user's folder for a ~ at the beginning; `~nobody`, who does not exist, is a name like others."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def looked(path: str | Path, beside: str = "beside the option file, ") -> str:
    """Where a path that was not found has been looked for, to be added to the message; nothing if it is absolute.

    >>> looked("/data/photos")
    ''
    """
    if _expanded(path).is_absolute():
        return ""
    places = dict.fromkeys((Path.cwd(), PROJECT))
    return f"; looked {beside}in {' and in '.join(map(str, places))}"


def command(name: str) -> str:
    """How a user starts a command: in a clone by its script, which needs no installation."""
    return f"mr-sampler {name}" if INSTALLED else f"python scripts/{name.replace('-', '_')}.py"


_LONGEST_PART, _LONGEST_PATH = 255, 3000  # bytes; with the folder before it a path may have 4096


def path_problem(path: str) -> str:
    """Why a text cannot be a path, whether it exists or not; '' if it can."""
    if not path.isprintable():
        return "expected a path without control characters"
    try:
        parts = [len(part) for part in path.encode().split(b"/")]
    except UnicodeEncodeError:
        return "expected a path in Unicode"
    if max(parts) > _LONGEST_PART:
        return f"a part of the path is {max(parts)} bytes long, at most {_LONGEST_PART} are possible"
    return f"expected a path of at most {_LONGEST_PATH} bytes" if len(path.encode()) > _LONGEST_PATH else ""
