"""Files that the web page must refuse: damaged, malicious, of the wrong format or with a hostile name."""

import io
import struct
import zlib

import numpy as np

from codes.data.images import encode_image

from .app_server import photo, png


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_of(width: int, height: int, pixels: bytes, bits: int = 1, colour: int = 0) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def bomb(side: int) -> bytes:
    """A small PNG file that decodes to side x side pixels."""
    return png_of(side, side, zlib.compress(bytes(side * (side // 8 + 1)), 9))


def damaged_png() -> bytes:
    content = bytearray(png())
    content[60:200] = bytes(140)
    return bytes(content)


def float_tiff() -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.zeros((32, 32), np.float32)).save(buffer, "TIFF")
    return buffer.getvalue()


SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="64" height="64"><script>alert(1)</script></svg>'
XML = b"\xef\xbb\xbf<?xml version='1.0'?><!DOCTYPE x [<!ENTITY a SYSTEM 'file:///etc/passwd'>]>"
BMP = b"BM" + struct.pack("<IHHIIiiHHIIiiII", 90, 0, 0, 54, 40, 90000, -90000, 1, 24, 0, 0, 0, 0, 0, 0)
JPEG = encode_image(photo(), ".jpg")
HOSTILE = {
    "empty.png": (b"", "empty"),
    "text.png": (b"hello, this is no image at all", "not an image"),
    "truncated.png": (png()[:150], "damaged"),
    "damaged.png": (damaged_png(), "damaged|decoded"),
    "headless.png": (b"\x89PNG\r\n\x1a\n", "damaged"),
    "checksum.png": (png()[:29] + b"\0\0\0\0" + png()[33:], "damaged|decoded"),
    "bomb.png": (bomb(12000), "144.0 megapixels"),
    "claims.png": (png_of(60000, 60000, zlib.compress(b"")), "too many pixels|megapixels"),
    "largest.png": (png_of(2**31 - 1, 2**31 - 1, zlib.compress(b"")), "too many pixels|megapixels|damaged"),
    "nothing.png": (png_of(0, 0, zlib.compress(b"")), "damaged|at least 16"),
    "thin.png": (png_of(5000, 2, zlib.compress(bytes(2 * 626))), "at least 16"),
    "truncated.jpg": (JPEG[: len(JPEG) // 8], "damaged"),
    "claims.jpg": (JPEG.replace(struct.pack(">HH", 48, 64), struct.pack(">HH", 65000, 65000), 1), "too many pixels"),
    "truncated.webp": (encode_image(photo(), ".webp")[:40], "damaged"),
    "directory.tif": (b"II*\x00\xff\xff\xff\x7f" + bytes(20), "damaged"),
    "float.tif": (float_tiff(), "not supported|decoded"),
    "claims.bmp": (BMP, "pixels|damaged"),
    "claims.ppm": (b"P6 99999 99999 255\n" + bytes(100), "too many pixels|megapixels"),
    "drawing.svg": (SVG, "SVG"),
    "drawing.png": (XML + SVG, "SVG"),
    "page.jpg": (b"<html><script>alert(1)</script></html>", "not an image"),
    "animation.gif": (b"GIF89a" + bytes(40), "not an image"),
    "paper.pdf": (b"%PDF-1.7\n" + bytes(40), "not an image"),
    "archive.zip": (b"PK\x03\x04" + bytes(40), "not an image"),
    "code.pkl": (b"\x80\x04\x95" + bytes(40), "not an image"),
    "../../../etc/passwd.png": (b"root:x:0:0", "passwd.png: not an image"),
    "/etc/cron.d/job.png": (b"* * * * * root true", "job.png: not an image"),
    "..\\..\\windows\\system.png": (b"MZ", "not an image"),
    "<img src=x onerror=alert(1)>.png": (b"no image", "not an image"),
    f"{'long' * 500}.png": (b"no image", "not an image"),
    "new\nline\x00.png": (b"no image", "not an image"),
}  # fmt: skip
