"""The project's folder, and how paths in option files are resolved."""

from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]


def locate(path: str | Path) -> Path:
    """Resolve a path from an option file: unchanged, or within the project's folder if it exists only there."""
    given = Path(path).expanduser()
    inside = PROJECT / given
    return inside if not given.exists() and inside.exists() else given
