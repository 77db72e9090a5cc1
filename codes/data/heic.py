"""HEIC files, as phones write them, through the optional package pillow-heif."""

from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .metadata import FileMetadata

SUFFIXES = (".heic", ".heif")


class HeicError(Exception):
    """A file that cannot be read or written, and why."""


def _library() -> Any:
    if find_spec("pillow_heif") is None:
        raise HeicError("HEIC needs the package pillow-heif: pip install pillow-heif")
    import pillow_heif

    return pillow_heif


def decode(content: bytes) -> tuple[NDArray[Any], FileMetadata]:
    """Pixels (H, W, 3 or 4) in OpenCV's order, upright, and metadata."""
    library = _library()
    try:
        opened = library.open_heif(content, convert_hdr_to_8bit=False)
        pixels = np.asarray(opened)
    except (OSError, ValueError, RuntimeError, EOFError, SyntaxError) as error:
        raise HeicError("the HEIC file is truncated or damaged") from error
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    exif = opened.info.get("exif") or b""
    found = FileMetadata(
        bytes(exif).removeprefix(b"Exif\x00\x00"),
        bytes(opened.info.get("xmp") or b""),
        bytes(opened.info.get("icc_profile") or b""),
    )
    order = [2, 1, 0, 3][: pixels.shape[2]] if pixels.shape[2] >= 3 else [0]
    return np.ascontiguousarray(pixels[..., order]), found


def encode(image: NDArray[Any], alpha: NDArray[np.uint8] | None, metadata: FileMetadata) -> bytes:
    """An 8-bit RGB image as a HEIC file."""
    import io

    from PIL import Image

    library = _library()
    pixels = image if alpha is None else np.dstack([image, alpha])
    blocks = {"exif": metadata.exif, "xmp": metadata.xmp, "icc_profile": metadata.icc}
    file = io.BytesIO()
    opened = library.from_pillow(Image.fromarray(pixels))
    opened.save(file, quality=95, **{key: block for key, block in blocks.items() if block})
    return file.getvalue()
