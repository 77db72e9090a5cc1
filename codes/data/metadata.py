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
    return FileMetadata(found.get(0, b""), found.get(1, b""), found.get(2, b""))


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
        return FileMetadata(exif.tobytes().removeprefix(_HEADER) if len(exif) else b"", icc=icc)
    except _DAMAGED:
        return NO_METADATA  # the pixels are what counts, and OpenCV has read them


_XMP, _ICC = 700, 34675


def with_tiff_tags(content: bytes, metadata: FileMetadata) -> bytes:
    """A TIFF file that OpenCV wrote, with metadata: a new directory behind the old one, which is no longer used."""
    added = _directory(_little(metadata.exif)) if metadata.exif else {}
    added = {tag: entry for tag, entry in added.items() if tag in _TIFF_TAGS}
    for tag, kind, block in ((_XMP, 1, metadata.xmp), (_ICC, 7, metadata.icc)):
        if block:
            added[tag] = (kind, len(block), block)
    if not added or content[:4] != b"II*\x00":
        return content
    entries = dict(sorted((_directory(content) | added).items()))
    result = bytearray(content + bytes(len(content) % 2))
    start = len(result)
    data = bytearray()
    rows = b""
    behind = start + 2 + 12 * len(entries) + 4
    for tag, (kind, count, value) in entries.items():
        place = value.ljust(4, b"\0")
        if len(value) > 4:
            place = struct.pack("<I", behind + len(data))
            data += value + bytes(len(value) % 2)
        rows += struct.pack("<HHI", tag, kind, count) + place
    result[4:8] = struct.pack("<I", start)
    return bytes(result + struct.pack("<H", len(entries)) + rows + bytes(4) + data)


def _little(exif: bytes) -> bytes:
    """An EXIF block in little-endian order, empty if it is damaged."""
    from PIL.Image import Exif

    with _silence():
        try:
            found = _parsed(exif)
            if found is None:
                return b""
            plain = Exif()
            plain.endian = "<"
            plain.update({tag: found[tag] for tag in _TIFF_TAGS if tag in found})
            return plain.tobytes().removeprefix(_HEADER)
        except _DAMAGED:
            return b""


def _directory(content: bytes) -> dict[int, tuple[int, int, bytes]]:
    """The first directory of a little-endian TIFF structure: type, count and bytes by tag."""
    if len(content) < 8:
        return {}
    at = struct.unpack_from("<I", content, 4)[0]
    found = {}
    for entry in range(at + 2, at + 2 + 12 * struct.unpack_from("<H", content, at)[0], 12):
        tag, kind, count = struct.unpack_from("<HHI", content, entry)
        size = count * {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8}[kind]
        place = entry + 8 if size <= 4 else struct.unpack_from("<I", content, entry + 8)[0]
        found[tag] = (kind, count, content[place : place + size])
    return found
