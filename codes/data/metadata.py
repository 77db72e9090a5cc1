"""Metadata of image files (EXIF, XMP and the colour profile), kept when an image is written again."""

import io
import struct
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Exif

_ORIENTATION = 0x0112
_HEADER = b"Exif\x00\x00"  # of EXIF blocks in files; not part of ours
_FILTERS = threading.Lock()
# What Pillow raises for damaged metadata.
_DAMAGED = (OSError, ValueError, TypeError, SyntaxError, LookupError, ArithmeticError, AttributeError, struct.error)
# Of a TIFF file what describes the picture, not how the file is laid out: description, make, model, resolution and its
# unit, software, date, artist, copyright.
_TIFF_TAGS = (0x010E, 0x010F, 0x0110, 0x011A, 0x011B, 0x0128, 0x0131, 0x0132, 0x013B, 0x8298)


@dataclass(frozen=True)
class FileMetadata:
    """Blocks of a file as they are, empty where it has none; `exif` starts with its byte order, II or MM."""

    exif: bytes = b""
    xmp: bytes = b""
    icc: bytes = b""

    def blocks(self) -> tuple[list[int], list[NDArray[np.uint8]]]:
        """Types and contents for OpenCV."""
        found = [(i, block) for i, block in enumerate((self.exif, self.xmp, self.icc)) if block]
        return [i for i, _ in found], [np.frombuffer(block, np.uint8) for _, block in found]


NO_METADATA = FileMetadata()


def from_blocks(types: Iterable[int], blocks: Iterable[NDArray[np.uint8]]) -> FileMetadata:
    """The metadata that OpenCV found; EXIF and XMP are as in the file."""
    found = {int(kind): bytes(np.asarray(block).ravel()) for kind, block in zip(types, blocks)}
    return FileMetadata(found.get(0, b""), found.get(1, b""), rgb_profile(found.get(2, b"")))


def rgb_profile(icc: bytes) -> bytes:
    """The profile if it is one of RGB: those of grey and CMYK images do not describe the RGB image made of them."""
    return icc if icc[16:20] == b"RGB " else b""


def _parsed(exif: bytes) -> "Exif | None":
    """An EXIF block as Pillow reads it; None if there is none or it is damaged."""
    if not exif:
        return None
    from PIL.Image import Exif

    found = Exif()
    found.load(exif)
    return found if len(found) else None


def orientation(exif: bytes) -> int:
    """The orientation of the stored image, 1 to 8; 1 (upright) where there is none."""
    with _silence():
        try:
            found = _parsed(exif)
            value = 1 if found is None else found.get(_ORIENTATION, 1)
        except _DAMAGED:
            return 1
    return value if isinstance(value, int) else 1


def upright(exif: bytes) -> bytes:
    """The same block for an image that has been turned upright, without the preview, which shows the old image.

    A block that needs no change is returned as it is.
    """
    turned = orientation(exif) != 1
    with _silence():
        try:
            found = _parsed(exif)
            if found is None or not (turned or _has_preview(exif)):
                return exif
            if _ORIENTATION in found:
                found[_ORIENTATION] = 1
            return found.tobytes().removeprefix(_HEADER)
        except _DAMAGED:
            return exif


def _has_preview(exif: bytes) -> bool:
    # Asked of an object of its own: directories that were read would also be written.
    from PIL.ExifTags import IFD

    found = _parsed(exif)
    return found is not None and bool(found.get_ifd(IFD.IFD1))


@contextmanager
def _silence() -> Iterator[None]:
    """Hide Pillow's warnings about damaged EXIF; Python's list of warning filters is not safe for threads."""
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def tiff_metadata(content: bytes) -> FileMetadata:
    """Colour profile and descriptive tags of a TIFF file, which OpenCV does not give."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as image:
            exif = Image.Exif()
            tags = image.getexif()
            exif.update({tag: tags[tag] for tag in _TIFF_TAGS if tag in tags})
            icc = image.info.get("icc_profile") or b""
        return FileMetadata(exif.tobytes().removeprefix(_HEADER) if len(exif) else b"", icc=rgb_profile(icc))
    except _DAMAGED:
        return NO_METADATA  # the pixels are what counts, and OpenCV has read them


def encode_tiff(image: NDArray[np.uint8], metadata: FileMetadata) -> bytes:
    """An 8-bit RGB image as a TIFF file with metadata, which OpenCV does not write."""
    from PIL import Image

    file = io.BytesIO()
    given = {"exif": _HEADER + metadata.exif} if metadata.exif else {}
    Image.fromarray(image).save(file, "TIFF", compression="tiff_lzw", icc_profile=metadata.icc or None, **given)
    return file.getvalue()
