"""Where files are looked for."""

from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


def locate(path: str | Path) -> Path:
    """A path of an option file: as it is, or within the project's folder if it exists only there."""
    given = Path(path).expanduser()
    inside = PROJECT / given
    return inside if not given.exists() and inside.exists() else given
