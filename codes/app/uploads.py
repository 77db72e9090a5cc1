"""Checks of uploaded files: size, format and the dimensions in the header, before anything is decoded."""

import io
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from ..data.headers import image_header, kind_of
from ..data.images import ImageError, Picture, decode_picture, encode_image, to_uint8

MEGA = 1_000_000
# Pillow's names for the other formats that `decode_picture` reads.
_FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "BMP", "PPM")
PREVIEW = 1000


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What the page accepts: the largest file and image, the smallest side, photos at once.

    Images of more than `at_once` pixels are shrunk to that size unless they are asked for in full.
    """

    max_bytes: int = 40 * MEGA
    max_pixels: int = 50 * MEGA
    at_once: int = 4 * MEGA
    min_side: int = 16
    max_photos: int = 20

    def __str__(self) -> str:
        size = f"up to {self.max_bytes / MEGA:g} MB and {self.max_pixels / MEGA:g} megapixels each"
        return f"PNG, JPEG, WebP, TIFF, BMP, PPM, AVIF or HEIC, {size}"


def read_upload(path: Path, limits: Limits, full: bool = True) -> Picture:
    """Read an uploaded file, shrunk unless `full`; raises ImageError with a message for the user."""
    return decode_upload(_content(path, limits), path.name, limits, full)


def _content(path: Path, limits: Limits) -> bytes:
    name = path.name  # does not reveal the server's folders
    try:
        size = path.stat().st_size
        if size > limits.max_bytes:
            largest = f"{limits.max_bytes / MEGA:g} MB"
            raise ImageError(f"{name}: the file has {size / MEGA:.1f} MB; at most {largest} are accepted")
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise ImageError(f"{name}: cannot be read; please choose the image again") from error


def decode_upload(content: bytes, name: str, limits: Limits, full: bool = True) -> Picture:
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
    return picture if full else smaller(picture, limits.at_once)


def upload_size(path: Path, limits: Limits) -> tuple[int, int]:
    """Width and height of an uploaded file as stored, before it is turned upright; raises ImageError."""
    return header_size(_content(path, limits), path.name)


def smaller(picture: Picture, pixels: int) -> Picture:
    """A picture with at most this many pixels, by averaging areas; as it is where it has no more."""
    height, width = picture.rgb.shape[1:]
    scale = (pixels / (height * width)) ** 0.5
    if scale >= 1:
        return picture
    import cv2

    size = int(width * scale), int(height * scale)
    rgb = cv2.resize(picture.rgb.permute(1, 2, 0).numpy(), size, interpolation=cv2.INTER_AREA)
    alpha = None if picture.alpha is None else cv2.resize(picture.alpha, size, interpolation=cv2.INTER_AREA)
    return replace(
        picture,
        rgb=torch.from_numpy(np.ascontiguousarray(rgb.transpose(2, 0, 1), np.float32)),
        alpha=None if alpha is None else np.asarray(alpha, np.uint8),
    )


def _refuse_markup(content: bytes, name: str) -> None:
    start = content[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if b"<svg" in start or start.startswith(b"<?xml"):
        raise ImageError(f"{name}: SVG is not supported; save it as PNG")


def header_size(content: bytes, name: str) -> tuple[int, int]:
    """Width and height from the file's header, without decoding pixels."""
    if not content:
        raise ImageError(f"{name}: the file is empty")
    if kind_of(content) in ("AVIF", "HEIC"):
        if (header := image_header(content)) is None:
            raise ImageError(f"{name}: the image's header is damaged")
        return header.width, header.height
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about damaged tags and large images: our own messages cover both
            with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
                return image.size
    except Image.DecompressionBombError as error:
        raise ImageError(f"{name}: the image has far too many pixels") from error
    except UnidentifiedImageError as error:
        known = "PNG, JPEG, WebP, TIFF, BMP, PPM, AVIF or HEIC"
        raise ImageError(f"{name}: not an image in a known format, or damaged (known: {known})") from error
    except Exception as error:  # parsing damaged data, Pillow raises struct, value, key, memory errors and more
        raise ImageError(f"{name}: the image's header is damaged") from error


def preview(picture: Picture) -> tuple[bytes, str]:
    """The picture as a browser shows it, at most PREVIEW pixels a side, and the suffix of this file."""
    shown = smaller(picture, PREVIEW**2)
    suffix = ".jpg" if shown.alpha is None else ".png"
    return encode_image(to_uint8(shown.rgb), suffix, shown.alpha), suffix
