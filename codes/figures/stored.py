"""Storage for the data of a figure: flat dataclasses of numbers, text and arrays, in one .npz file."""

import io
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


def write_items(path: Path, items: Sequence[Any]) -> None:
    """Write instances of one dataclass; fields that are None are omitted."""
    arrays = {
        f"{i:04}.{field.name}": np.asarray(value)
        for i, item in enumerate(items)
        for field in fields(item)
        if (value := getattr(item, field.name)) is not None
    }
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(buffer.getvalue())


def read_items(path: Path, kind: type[T]) -> list[T]:
    """Read the items that `write_items` wrote."""
    found: dict[str, dict[str, Any]] = {}
    with np.load(path, allow_pickle=False) as archive:
        for key in archive.files:
            number, _, name = key.partition(".")
            value = archive[key]
            plain = value.item() if value.ndim == 0 else value
            if value.dtype.kind == "U" and value.ndim:
                plain = tuple(value.tolist())
            found.setdefault(number, {})[name] = plain
    return [kind(**values) for _, values in sorted(found.items())]
