"""Reading and writing image files with OpenCV; in memory images are RGB in [0, 1]."""

from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..runtime.files import write_atomically
from .metadata import NO_METADATA, FileMetadata, encode_tiff, from_blocks, orientation, tiff_metadata, upright

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".ppm", ".pgm", ".tif", ".tiff", ".webp")

_MAGIC = {
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"\xff\xd8\xff": "JPEG",
    b"BM": "BMP",
    b"P5": "PGM",
    b"P6": "PPM",
    b"II*\x00": "TIFF",
    b"MM\x00*": "TIFF",
    b"RIFF": "WebP",
    b"GIF8": "GIF",
}


Image = ArrayLike | Tensor  # as other libraries represent one


class ImageError(Exception):
    """An image that cannot be used; the message names the file and the reason."""


@dataclass(frozen=True)
class Picture:
    """An image as read: `rgb` is (3, H, W) float32 in [0, 1]; `alpha` (H, W) uint8 where the file has transparency.

    `metadata` describes the image in this form: upright and in RGB.
    """

    rgb: Tensor
    alpha: NDArray[np.uint8] | None = None
    metadata: FileMetadata = NO_METADATA


def _opencv() -> ModuleType:
    import cv2

    # Its warnings about damaged files would duplicate our own messages.
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    return cv2


def read_image(path: str | Path) -> Tensor:
    """Read the colours of an image file: (3, H, W) float32 RGB in [0, 1], without transparency."""
    return read_picture(path).rgb


def read_picture(path: str | Path) -> Picture:
    """Read a PNG, JPEG, WebP, TIFF, BMP or PPM file as a viewer would show it, or raise ImageError with the reason.

    Grey, palette and CMYK images become RGB, 16 bits are kept, the EXIF orientation is applied.
    """
    return decode_picture(read_bytes(Path(path)), str(path))


def read_bytes(path: Path) -> bytes:
    """The content of a file, or ImageError with the reason."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ImageError(f"{path}: cannot be read: {error.strerror or error}") from error


def decode_picture(content: bytes, name: str) -> Picture:
    """`read_picture` for the bytes of a file; `name` appears in error messages."""
    cv2 = _opencv()
    if not content:
        raise ImageError(f"{name}: the file is empty")
    kind = next((kind for magic, kind in _MAGIC.items() if content.startswith(magic)), None)
    if kind is None:
        raise ImageError(f"{name}: not an image in a known format (PNG, JPEG, WebP, TIFF, BMP, PPM)")
    if kind == "GIF":
        raise ImageError(f"{name}: GIF is not supported; save it as PNG")
    try:
        array, types, blocks = cv2.imdecodeWithMetadata(np.frombuffer(content, np.uint8), flags=cv2.IMREAD_UNCHANGED)
    except cv2.error as error:
        raise ImageError(f"{name}: the {kind} file cannot be decoded: {error.err}") from error
    if array is None:
        raise ImageError(f"{name}: the {kind} file is truncated or damaged")
    if array.dtype not in (np.uint8, np.uint16):
        raise ImageError(f"{name}: pixels of type {array.dtype} are not supported; save it with 8 or 16 bits")
    if array.ndim == 2:
        array = array[..., None]
    metadata = tiff_metadata(content) if kind == "TIFF" else from_blocks(types, blocks)
    if kind != "TIFF":  # OpenCV applies a TIFF's orientation itself
        array = _oriented(array, orientation(metadata.exif))
    alpha = array[..., 3] if array.shape[2] == 4 else None
    top = np.iinfo(array.dtype).max
    if alpha is not None and (alpha == top).all():
        alpha = None
    if alpha is not None and kind == "TIFF":
        # OpenCV premultiplies the colours by alpha, which cannot be undone where alpha is small.
        raise ImageError(f"{name}: TIFF with transparency is not supported; save it as PNG")
    colours = array[..., 2::-1] if array.shape[2] >= 3 else np.repeat(array[..., :1], 3, axis=2)
    rgb = torch.from_numpy(np.ascontiguousarray(colours.transpose(2, 0, 1)).astype(np.float32) / top)
    if alpha is not None and alpha.dtype == np.uint16:
        alpha = (alpha // 257).astype(np.uint8)
    metadata = replace(metadata, exif=upright(metadata.exif))
    return Picture(rgb, None if alpha is None else np.ascontiguousarray(alpha), metadata)


def suffix_of(content: bytes) -> str:
    """The usual suffix for a file's content, recognised by its first bytes; .png if unknown.

    >>> suffix_of(b"\\xff\\xd8\\xff\\xe0"), suffix_of(b"hello")
    ('.jpg', '.png')
    """
    kind = next((kind for magic, kind in _MAGIC.items() if content.startswith(magic)), "PNG")
    return {"JPEG": ".jpg", "TIFF": ".tif"}.get(kind, f".{kind.lower()}")


def _oriented(array: NDArray[np.generic], orientation: int) -> NDArray[np.generic]:
    """Turn an image (H, W, C) upright."""
    if orientation in (5, 6, 7, 8):
        array = array.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        array = array[::-1]
    if orientation in (2, 3, 6, 7):
        array = array[:, ::-1]
    return array


def to_uint8(rgb: Tensor) -> NDArray[np.uint8]:
    """An image (3, H, W) in [0, 1] as (H, W, 3) 8-bit RGB: clipped, rounded half to even as the published code does."""
    scaled = rgb.detach().float().clamp(0, 1).mul(255).round().to(torch.uint8)
    return np.ascontiguousarray(scaled.permute(1, 2, 0).cpu().numpy())


def from_uint8(image: NDArray[np.uint8]) -> Tensor:
    """The inverse of `to_uint8` on 8-bit values."""
    return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)).astype(np.float32) / 255)


def encode_image(
    image: NDArray[np.uint8],
    suffix: str,
    alpha: NDArray[np.uint8] | None = None,
    metadata: FileMetadata | None = None,
) -> bytes:
    """Encode an 8-bit RGB image as the bytes of a file, with the metadata that its format supports."""
    cv2 = _opencv()
    if alpha is not None and suffix.lower() in (".jpg", ".jpeg", ".ppm", ".pgm", ".bmp"):
        raise ImageError(f"{suffix}: this format has no transparency; use .png or .webp")
    metadata = metadata or NO_METADATA
    if suffix.lower() in (".tif", ".tiff") and metadata != NO_METADATA and alpha is None:
        return encode_tiff(image, metadata)
    if suffix.lower() == ".pgm":
        image = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)[..., None]
    channels = [image[..., ::-1]] if alpha is None else [image[..., ::-1], alpha[..., None]]
    # Level 1 is three times faster than the default and only a few per cent larger.
    options = {
        ".png": [cv2.IMWRITE_PNG_COMPRESSION, 1],
        ".jpg": [cv2.IMWRITE_JPEG_QUALITY, 95],
        ".jpeg": [cv2.IMWRITE_JPEG_QUALITY, 95],
        ".webp": [cv2.IMWRITE_WEBP_QUALITY, 101],  # lossless
    }
    if suffix.lower() not in SUFFIXES:
        raise ImageError(f"{suffix!r}: unknown image format (choices: {', '.join(SUFFIXES)})")
    types, blocks = metadata.blocks()
    done, buffer = cv2.imencodeWithMetadata(
        suffix.lower(), np.concatenate(channels, axis=2), types, blocks, options.get(suffix.lower(), [])
    )
    if not done:
        raise ImageError(f"{suffix}: OpenCV cannot encode this image")
    return bytes(buffer)


def save_image(image: Tensor | NDArray[np.uint8], path: str | Path, alpha: NDArray[np.uint8] | None = None) -> None:
    """Save an image, (3, H, W) in [0, 1] or (H, W, 3) 8-bit, in the format of the path's suffix."""
    path = Path(path)
    pixels = to_uint8(image) if isinstance(image, Tensor) else image
    write_atomically(path, encode_image(pixels, path.suffix, alpha))


def as_image(image: Image) -> Tensor:
    """Convert a tensor, an array or a PIL image to a tensor (3, H, W), float32 in [0, 1].

    >>> as_image(np.full((4, 6, 3), 255, np.uint8)).shape, as_image(np.zeros((4, 6))).shape
    (torch.Size([3, 4, 6]), torch.Size([3, 4, 6]))
    """
    if isinstance(image, Tensor):
        rgb, expected = image.detach(), "a tensor (3, H, W), RGB in [0, 1]"
        if rgb.ndim != 3 or len(rgb) != 3:
            raise ImageError(f"image: expected {expected}, got shape {tuple(rgb.shape)}")
        if not rgb.is_floating_point():
            raise ImageError(f"image: expected {expected}, got {rgb.dtype}")
    else:
        array: np.ndarray[Any, Any] = np.asarray(image)
        expected = "an array (H, W, 3) or (H, W), of uint8 or in [0, 1]"
        if array.ndim == 2:
            array = np.repeat(array[..., None], 3, axis=2)
        if array.ndim != 3 or array.shape[2] != 3:
            raise ImageError(f"image: expected {expected}, got shape {array.shape}")
        if array.dtype != np.uint8 and not np.issubdtype(array.dtype, np.floating):
            raise ImageError(f"image: expected {expected}, got {array.dtype}")
        scale = 255 if array.dtype == np.uint8 else 1
        rgb = torch.from_numpy(np.ascontiguousarray(array.transpose(2, 0, 1), np.float32) / scale)
    if not rgb.numel():
        raise ImageError(f"image: expected {expected}, got an empty one")
    rgb = rgb.to("cpu", torch.float32)
    low, high = float(rgb.min()), float(rgb.max())
    # Resizing overshoots a little, so allow for it; NaN fails here too.
    if not (low >= -0.5 and high <= 1.5):
        raise ImageError(f"image: expected {expected}, got values from {low:g} to {high:g}")
    return rgb
