"""What the first bytes of an image file say, without decoding it: kind, size, channels, bits and number of frames.

A small file can unpack to gigabytes, so its size is asked for before memory is allocated.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_MAGIC = {
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"\xff\xd8\xff": "JPEG",
    b"BM": "BMP",
    b"P5": "PGM",
    b"P6": "PPM",
    b"II*\x00": "TIFF",
    b"MM\x00*": "TIFF",
    b"GIF8": "GIF",
    b"\x00\x00\x00\x0cjP  ": "JPEG 2000",
    b"\xff\x4f\xff\x51": "JPEG 2000",
    b"\xff\x0a": "JPEG XL",
    b"\x00\x00\x00\x0cJXL ": "JPEG XL",
    b"8BPS": "PSD",
    b"\x76\x2f\x31\x01": "OpenEXR",
    b"FUJIFILMCCD-RAW": "a camera's raw format",
}
_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
_MOST_MISSING = 1 << 24  # bytes of a PNG file that was cut off: what is there may still be decoded
_MOST_PAGES = 10_000  # of a TIFF file; its directories may lead in a circle


@dataclass(frozen=True, kw_only=True)
class Header:
    """An image file by its first bytes; `frames` counts those of an animation, or pages."""

    kind: str
    width: int
    height: int
    channels: int = 3
    bits: int = 8
    frames: int = 1

    @property
    def pixels(self) -> int:
        return self.width * self.height


def kind_of(content: bytes) -> str | None:
    """The format of a file by its content, None if it is unknown."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "WebP"
    if content[4:8] == b"ftyp":
        size = min(int.from_bytes(content[:4], "big"), 256)
        brands = [content[at : at + 4] for at in (8, *range(16, size, 4))]
        if any(brand in (b"avif", b"avis") for brand in brands):
            return "AVIF"
        return "HEIC" if any(brand in _HEIC_BRANDS for brand in brands) else None
    return next((kind for magic, kind in _MAGIC.items() if content.startswith(magic)), None)


def image_header(content: bytes) -> Header | None:
    """What a file says about itself; None if its format is not read here or the header is damaged.

    The beginning of a file may be enough; JPEG keeps its size behind the metadata, and TIFF anywhere.

    >>> image_header(b"P6 640 480 255 ...")
    Header(kind='PPM', width=640, height=480, channels=3, bits=8, frames=1)
    """
    kind = kind_of(content)
    reader = _READERS.get(kind or "")
    if kind is None or reader is None:
        return None
    try:
        found = reader(content)
    except (struct.error, LookupError, ValueError):
        return None
    return found if found is not None and found.width > 0 and found.height > 0 else None


def _png(content: bytes) -> Header | None:
    width, height, bits, colour = struct.unpack_from(">IIBB", content, 16)
    frames, at = 1, 8
    while at + 8 <= len(content):
        length, name = struct.unpack_from(">I4s", content, at)
        if name == b"acTL":
            frames = max(struct.unpack_from(">I", content, at + 8)[0], 1)
        if name in (b"IDAT", b"acTL"):
            break
        at += 12 + length
    channels = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}.get(colour, 4)
    return Header(kind="PNG", width=width, height=height, channels=channels, bits=max(bits, 8), frames=frames)


def claims_too_much(content: bytes) -> bool:
    """Whether a part of a PNG file says that it is far longer than the file: its decoder would take memory for it."""
    if not content.startswith(b"\x89PNG"):
        return False
    at = 8
    while at + 8 <= len(content):
        length, name = struct.unpack_from(">I4s", content, at)
        at += 12 + length
        if name == b"IEND":
            break
    return at > len(content) + _MOST_MISSING


def _jpeg(content: bytes) -> Header | None:
    at = 2
    while at + 9 <= len(content):
        if content[at] != 0xFF:
            return None
        marker = content[at + 1]
        if marker == 0xFF or marker == 0x01 or 0xD0 <= marker <= 0xD8:
            at += 1 if marker == 0xFF else 2
            continue
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            bits, height, width, channels = struct.unpack_from(">BHHB", content, at + 4)
            return Header(kind="JPEG", width=width, height=height, channels=channels, bits=bits)
        at += 2 + int(struct.unpack_from(">H", content, at + 2)[0])
    return None


def _bmp(content: bytes) -> Header | None:
    width, height = struct.unpack_from("<ii", content, 18)
    return Header(kind="BMP", width=abs(width), height=abs(height), channels=4)


def _pnm(content: bytes) -> Header | None:
    words = [word for line in content[:4096].splitlines() for word in line.split(b"#")[0].split()][:4]
    kind, width, height, top = words[0], int(words[1]), int(words[2]), int(words[3])
    grey = kind == b"P5"
    return Header(
        kind="PGM" if grey else "PPM",
        width=width,
        height=height,
        channels=1 if grey else 3,
        bits=16 if top > 255 else 8,
    )


def _webp(content: bytes) -> Header | None:
    chunk = content[12:16]
    if chunk == b"VP8X":
        flags = content[20]
        width, height = (1 + int.from_bytes(content[at : at + 3], "little") for at in (24, 27))
        frames = content.count(b"ANMF") if flags & 2 else 1
        return Header(kind="WebP", width=width, height=height, channels=4 if flags & 16 else 3, frames=max(frames, 1))
    if chunk == b"VP8L":
        packed = struct.unpack_from("<I", content, 21)[0]
        return Header(kind="WebP", width=1 + (packed & 0x3FFF), height=1 + (packed >> 14 & 0x3FFF), channels=4)
    width, height = struct.unpack_from("<HH", content, 26)
    return Header(kind="WebP", width=width & 0x3FFF, height=height & 0x3FFF)


def _tiff(content: bytes) -> Header | None:
    pages = [page for page in tiff_directories(content) if not page.get(254, 0) & 1]  # 254: a smaller copy
    if not pages:
        return None
    first = pages[0]
    return Header(
        kind="TIFF",
        width=first[256],
        height=first[257],
        channels=first.get(277, 1) if first.get(262) != 3 else 3,  # 262: colours from a palette
        bits=max(first.get(258, 1), 8),
        frames=len(pages),
    )


def tiff_directories(content: bytes) -> Iterator[dict[int, int]]:
    """The numbers in the directories of a TIFF file by their tags; of several numbers the first."""
    order = "<" if content[:2] == b"II" else ">"
    at = struct.unpack_from(order + "I", content, 4)[0]
    seen: set[int] = set()
    while at and at not in seen and len(seen) < _MOST_PAGES and at + 2 <= len(content):
        seen.add(at)
        count = struct.unpack_from(order + "H", content, at)[0]
        found = {}
        for entry in range(at + 2, min(at + 2 + 12 * count, len(content) - 11), 12):
            tag, kind, length = struct.unpack_from(order + "HHI", content, entry)
            code = {1: "B", 3: "H", 4: "I"}.get(kind)
            if code is None or not length:
                continue
            place = entry + 8
            if struct.calcsize(code) * length > 4:
                place = struct.unpack_from(order + "I", content, place)[0]
            if place + 4 <= len(content):
                found[tag] = struct.unpack_from(order + code, content, place)[0]
        yield found
        after = at + 2 + 12 * count
        at = struct.unpack_from(order + "I", content, after)[0] if after + 4 <= len(content) else 0


def _heif(content: bytes) -> Header | None:
    """AVIF and HEIC: the largest of the images within; their tiles and previews are smaller."""
    sizes, at = [], content.find(b"ispe")
    while at >= 0:
        sizes.append(struct.unpack_from(">II", content, at + 8))
        at = content.find(b"ispe", at + 4)
    width, height = max(sizes, key=lambda size: size[0] * size[1], default=(0, 0))
    frames, table = 1, content.find(b"stsz")
    if table >= 0 and b"moov" in content:
        frames = max(struct.unpack_from(">I", content, table + 12)[0], 1)
    # More than 8 bits are recorded in several places; room for them is reckoned with.
    return Header(kind=kind_of(content) or "", width=width, height=height, channels=4, bits=16, frames=frames)


_READERS = {
    "PNG": _png,
    "JPEG": _jpeg,
    "BMP": _bmp,
    "PGM": _pnm,
    "PPM": _pnm,
    "WebP": _webp,
    "TIFF": _tiff,
    "AVIF": _heif,
    "HEIC": _heif,
}
