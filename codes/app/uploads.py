"""Checks of uploaded files: size, format and the dimensions in the header, before anything is decoded."""

import io
import warnings
from dataclasses import dataclass
from pathlib import Path

from ..data.images import ImageError, Picture, decode_picture, encode_image, to_uint8

MEGA = 1_000_000
# Pillow's names for the formats that `decode_picture` reads.
_FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "BMP", "PPM")
# Formats that browsers display; the others are converted to PNG for display.
_SHOWN_BY_BROWSERS = (".png", ".jpg", ".jpeg", ".webp", ".bmp")


@dataclass(frozen=True)
class Limits:
    """The largest file and image, and the smallest image, that the page accepts."""

    max_bytes: int = 20 * MEGA
    max_pixels: int = 4 * MEGA
    min_side: int = 16

    def __str__(self) -> str:
        kinds = "PNG, JPEG, WebP, TIFF, BMP or PPM"
        return f"{kinds}, up to {self.max_bytes / MEGA:g} MB and {self.max_pixels / MEGA:g} megapixels"


def read_upload(path: str | Path, limits: Limits) -> Picture:
    """Read an uploaded file; raises ImageError with a message for the user."""
    path = Path(path)
    name = path.name  # does not reveal the server's folders
    try:
        size = path.stat().st_size
        if size > limits.max_bytes:
            largest = f"{limits.max_bytes / MEGA:g} MB"
            raise ImageError(f"{name}: the file has {size / MEGA:.1f} MB; at most {largest} are accepted")
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        raise ImageError(f"{name}: cannot be read; please choose the image again") from error
    return decode_upload(content, name, limits)


def decode_upload(content: bytes, name: str, limits: Limits) -> Picture:
    """`read_upload` for the bytes of a file."""
    _refuse_markup(content, name)
    width, height = header_size(content, name)
    if width * height > limits.max_pixels:
        megapixels = f"{width * height / MEGA:.1f} megapixels"
        largest = f"{limits.max_pixels / MEGA:g}"
        raise ImageError(f"{name}: {width}x{height} pixels are {megapixels}, at most {largest} are accepted")
    if min(width, height) < limits.min_side:
        raise ImageError(f"{name}: {width}x{height} pixels; each side needs at least {limits.min_side}")
    picture = decode_picture(content, name)
    if picture.rgb.shape[1] * picture.rgb.shape[2] != width * height:
        raise ImageError(f"{name}: the header says {width}x{height} pixels, but the image has a different size")
    return picture


def _refuse_markup(content: bytes, name: str) -> None:
    start = content[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if b"<svg" in start or start.startswith(b"<?xml"):
        raise ImageError(f"{name}: SVG is not supported; save it as PNG")


def header_size(content: bytes, name: str) -> tuple[int, int]:
    """Width and height from the file's header, without decoding pixels."""
    if not content:
        raise ImageError(f"{name}: the file is empty")
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about damaged tags and large images: our own messages cover both
            with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
                return image.size
    except Image.DecompressionBombError as error:
        raise ImageError(f"{name}: the image has far too many pixels") from error
    except UnidentifiedImageError as error:
        known = "PNG, JPEG, WebP, TIFF, BMP or PPM"
        raise ImageError(f"{name}: not an image in a known format, or damaged (known: {known})") from error
    except Exception as error:  # parsing damaged data, Pillow raises struct, value, key, memory errors and more
        raise ImageError(f"{name}: the image's header is damaged") from error


def preview(path: str | Path, picture: Picture) -> bytes | None:
    """The picture as PNG where browsers do not show the file itself, else None."""
    if Path(path).suffix.lower() in _SHOWN_BY_BROWSERS:
        return None
    return encode_image(to_uint8(picture.rgb), ".png", picture.alpha)
