"""What image files say besides their pixels: EXIF, XMP and the colour profile, kept when an image is written again."""

import io
import struct
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_ORIENTATION = 0x0112
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


def _first_entries(exif: bytes) -> tuple[str, list[int], int] | None:
    """Byte order, positions of the entries, and where the position of the second directory stands; None if damaged."""
    order = {b"II": "<", b"MM": ">"}.get(exif[:2])
    if order is None or len(exif) < 10:
        return None
    (start,) = struct.unpack_from(order + "I", exif, 4)
    if start + 2 > len(exif):
        return None
    (count,) = struct.unpack_from(order + "H", exif, start)
    end = start + 2 + 12 * count
    return order, list(range(start + 2, min(end, len(exif) - 11), 12)), end


def orientation(exif: bytes) -> int:
    """How the stored image lies, 1 to 8; 1, upright, where nothing is said."""
    order, entries, _ = _first_entries(exif) or ("", [], 0)
    for position in entries:
        tag, _, _, value = struct.unpack_from(order + "HHIH", exif, position)
        if tag == _ORIENTATION:
            return int(value)
    return 1


def upright(exif: bytes) -> bytes:
    """The same block for an image that has been turned upright, without the preview, which shows the old image."""
    found = _first_entries(exif)
    if found is None:
        return exif
    order, entries, end = found
    changed = bytearray(exif)
    for position in entries:
        if struct.unpack_from(order + "H", exif, position)[0] == _ORIENTATION:
            struct.pack_into(order + "H", changed, position + 8, 1)
    if end + 4 <= len(exif):
        struct.pack_into(order + "I", changed, end, 0)
    return bytes(changed)


def tiff_metadata(content: bytes) -> FileMetadata:
    """Colour profile and descriptive tags of a TIFF file, which OpenCV does not give."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as image:
            exif = Image.Exif()
            tags = image.getexif()
            exif.update({tag: tags[tag] for tag in _TIFF_TAGS if tag in tags})
            icc = image.info.get("icc_profile") or b""
        return FileMetadata(exif.tobytes().removeprefix(b"Exif\x00\x00") if len(exif) else b"", icc=rgb_profile(icc))
    except (OSError, ValueError, TypeError, SyntaxError, struct.error):
        return NO_METADATA  # the pixels are what counts, and OpenCV has read them


def encode_tiff(image: NDArray[np.uint8], metadata: FileMetadata) -> bytes:
    """An 8-bit RGB image as a TIFF file with metadata, which OpenCV does not write."""
    from PIL import Image

    file = io.BytesIO()
    given = {"exif": b"Exif\x00\x00" + metadata.exif} if metadata.exif else {}
    Image.fromarray(image).save(file, "TIFF", compression="tiff_lzw", icc_profile=metadata.icc or None, **given)
    return file.getvalue()
