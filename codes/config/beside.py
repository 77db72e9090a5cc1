"""Relative paths of an option file that lead to something beside that file."""

from typing import Any

from ..runtime.paths import path_problem
from .errors import Keys
from .reading import Source

# Options that name files or folders to read; '*' stands for any name.
PATHS: tuple[Keys, ...] = (
    ("path", "*"),
    ("datasets", "*", "dataroot_GT"),
    ("datasets", "*", "dataroot_LQ"),
    ("datasets", "*", "root"),
    ("datasets", "*", "dataroot"),
    ("degradation", "mask_root"),
    ("train", "distill", "teacher"),
)


def take_from_beside(source: Source) -> None:
    """Replace relative paths by those beside the file that has written them, where these exist.

    What is given with --set is relative to the current folder. Others are looked for there, and in the package, when
    they are needed (`runtime.paths.locate`).
    """
    for pattern in PATHS:
        _visit(source, source.values, pattern, ())


def _visit(source: Source, values: Any, pattern: Keys, at: Keys) -> None:
    if not isinstance(values, dict):
        return
    for key in list(values) if pattern[0] == "*" else [pattern[0]]:
        keys = (*at, key)
        if len(pattern) > 1:
            _visit(source, values.get(key), pattern[1:], keys)
        elif isinstance(values.get(key), str) and values[key] and keys not in source.overridden:
            if path_problem(values[key]) or values[key].startswith("~"):
                continue
            beside = source.file_of(keys).parent / values[key]
            if beside.exists():
                values[key] = str(beside)
