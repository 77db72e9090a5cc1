"""Bounds of the arguments of a restoration, the same as in option files."""

from .tiling import LEAST_TILE


def check_whole(name: str, value: object, low: int, high: int) -> None:
    """Raise ValueError unless it is an integer within bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        shown = repr(value) if len(repr(value)) <= 40 else f"{repr(value)[:40]}..."
        raise ValueError(f"{name} must be an integer from {low} to {high}, got {shown}")


def check_tile(tile: object) -> None:
    """Raise ValueError unless it is the side of tiles, 'auto' or 'off'."""
    if not (isinstance(tile, str) and tile in ("auto", "off")):
        if isinstance(tile, str):
            raise ValueError(f"tile must be 'auto', 'off' or an integer from {LEAST_TILE} on, got {tile!r}")
        check_whole("tile", tile, LEAST_TILE, 2**31 - 1)


def check_strength(strength: float | None) -> None:
    """Raise ValueError unless it is None or a number from 0 to 1."""
    if strength is None:
        return
    if isinstance(strength, bool) or not isinstance(strength, int | float) or not 0 <= strength <= 1:
        raise ValueError(f"strength must be a number from 0 to 1, got {strength!r}")
