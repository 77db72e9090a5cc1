"""Reading and writing image files; in memory images are RGB in [0, 1]."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..runtime.device import available_memory
from ..runtime.files import write_atomically
from ..runtime.problems import FileError, check_regular, explain
from . import colour, heic
from .headers import Header, claims_too_much, image_header, kind_of
from .metadata import NO_METADATA, FileMetadata, from_blocks, orientation, tiff_metadata, upright, with_tiff_tags
from .quiet import quiet

__all__ = [
    "LOOK_LIKE_IMAGES",
    "SUFFIXES",
    "Header",
    "Image",
    "ImageError",
    "Picture",
    "as_image",
    "check_memory",
    "decode_picture",
    "encode_image",
    "encode_like",
    "from_uint8",
    "image_header",
    "read_bytes",
    "read_image",
    "read_picture",
    "save_image",
    "suffix_of",
    "to_uint8",
]

JPEG_SUFFIXES = (".jpg", ".jpeg", ".jpe", ".jfif")
TIFF_SUFFIXES = (".tif", ".tiff")
SUFFIXES = (
    *(".png", *JPEG_SUFFIXES, ".bmp", ".ppm", ".pgm", *TIFF_SUFFIXES, ".webp", ".avif"),
    *heic.SUFFIXES,
)
# Files that people take for images, and that are not read here: they are named where they are left out.
LOOK_LIKE_IMAGES = (
    *(".gif", ".apng", ".jp2", ".j2k", ".jpf", ".jpx", ".jxl", ".tga", ".psd", ".psb", ".xcf", ".exr", ".hdr", ".qoi"),
    *(".pbm", ".pnm", ".pfm", ".pcx", ".ico", ".dib", ".svg", ".cr2", ".cr3", ".nef", ".arw", ".dng", ".orf", ".raf"),
    *(".rw2", ".pef", ".srw", ".insp", ".mpo", ".wbmp", ".dds", ".sgi"),
)
_DEEP = (".png", ".ppm", ".pgm", *TIFF_SUFFIXES)  # formats that hold 16 bits
_CMYK = "its CMYK colours were converted to sRGB"
_KNOWN = "PNG, JPEG, WebP, TIFF, BMP, PPM, AVIF, HEIC"
# Weights of the colours in a grey image, as in JPEG and television (BT.601).
_LUMA = (0.299, 0.587, 0.114)
# Differences between the channels of an image that is grey, which JPEG makes.
_GREY = 2.5 / 255

Image = ArrayLike | Tensor  # as other libraries represent one
Pixels = NDArray[np.uint8] | NDArray[np.uint16]


class ImageError(Exception):
    """An image that cannot be used; the message names the file and the reason."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """How the file of a picture stores it: single-channel grey or colours, bits of a number, number of frames."""

    single: bool = False
    bits: int = 8
    frames: int = 1


@dataclass(frozen=True, kw_only=True)
class Picture:
    """An image as read: `rgb` is (3, H, W) float32 in [0, 1]; `alpha` (H, W) uint8 where the file has transparency.

    `metadata` describes the image in this form: upright and in RGB, or in grey where the file is grey. `notes` are
    sentences about what a person may not expect.
    """

    rgb: Tensor
    alpha: NDArray[np.uint8] | None = None
    metadata: FileMetadata = NO_METADATA
    stored: Stored = Stored()
    notes: tuple[str, ...] = ()

    @property
    def grey(self) -> bool:
        """Whether there are no colours, however the file stores it."""
        return self.stored.single or bool(
            (self.rgb[0] - self.rgb[1]).abs().max() <= _GREY and (self.rgb[1] - self.rgb[2]).abs().max() <= _GREY
        )


def _opencv() -> ModuleType:
    import cv2

    # Its warnings about damaged files would duplicate our own messages.
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    return cv2


def read_image(path: str | Path) -> Tensor:
    """Read the colours of an image file: (3, H, W) float32 RGB in [0, 1], without transparency."""
    return read_picture(path).rgb


def read_picture(path: str | Path) -> Picture:
    """Read a PNG, JPEG, WebP, TIFF, BMP, PPM, AVIF or HEIC file as a viewer would show it, or raise ImageError.

    Grey, palette and CMYK images become RGB, 16 bits are kept, the EXIF orientation is applied. HEIC needs the package
    pillow-heif.
    """
    return decode_picture(read_bytes(Path(path)), str(path))


def read_bytes(path: Path) -> bytes:
    """The content of a file, or ImageError with the reason; devices and pipes, which may have no end, are refused."""
    try:
        size = check_regular(path).st_size
        if not size:  # nor is it read: some files of /proc say so and wait for ever
            raise ImageError(f"{path}: the file is empty")
        check_length(size, str(path))
        return path.read_bytes()
    except FileError as error:
        raise ImageError(str(error)) from error
    except OSError as error:
        raise ImageError(explain(error, path, "cannot be read")) from error
    except MemoryError as error:
        raise ImageError(f"{path}: does not fit into memory") from error


def longest_file() -> int:
    """The bytes that the file of an image may have: its content and its pixels take at least eight times as many."""
    return int(available_memory() / 8)


def check_length(size: int, name: str) -> None:
    """Raise ImageError for more bytes than the file of an image can have that fits into memory."""
    if size > longest_file():
        raise ImageError(f"{name}: does not fit into memory")


def check_memory(pixels: int, bytes_per_pixel: float, name: str, what: str) -> None:
    """Raise ImageError if something that is done with an image needs more memory than there is."""
    needed, free = pixels * bytes_per_pixel, available_memory()
    if needed > free:
        size = f"{pixels / 1e6:.0f} megapixels"
        raise ImageError(f"{name}: {what} {size} takes {needed / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free")


def decode_picture(content: bytes, name: str) -> Picture:
    """`read_picture` for the bytes of a file; `name` appears in error messages."""
    if not content:
        raise ImageError(f"{name}: the file is empty")
    kind = kind_of(content)
    if kind is None:
        raise ImageError(f"{name}: not an image in a known format ({_KNOWN})")
    if claims_too_much(content):
        raise ImageError(f"{name}: the {kind} file is truncated or damaged")
    header = image_header(content)
    if header is None and kind not in _KNOWN and kind != "PGM":
        raise ImageError(f"{name}: {kind} is not supported; save it as PNG")
    if header is not None:
        # The decoder's array, a copy in another order, and the colours in float32.
        check_memory(header.pixels, 2 * header.channels * header.bits / 8 + 2 * 3 * 4, name, "reading")
    try:
        with quiet():
            array, metadata, notes = _decoded(content, kind, name)
        picture = _picture(array, kind, name)
    except (MemoryError, RuntimeError) as error:  # RuntimeError: torch's way to say it
        raise ImageError(f"{name}: does not fit into memory") from error
    stored = picture.stored
    if header is not None and header.kind in ("JPEG", "TIFF") and header.channels == 4 and not stored.single:
        notes = notes or (_CMYK,)  # one with transparency was refused
    if header is not None and header.kind == "PNG" and header.channels == 2:  # read as colours, with their alpha
        stored = replace(stored, single=True)
    if header is not None and header.frames > 1:
        stored = replace(stored, frames=header.frames)
        what = "pages" if kind == "TIFF" else "frames"
        notes = (*notes, f"only the first of {header.frames} {what} is taken")
    kept = metadata.icc if (colour.is_grey if stored.single else colour.is_rgb)(metadata.icc) else b""
    if colour.is_unusual(kept) and stored.bits == 8:
        converted = colour.to_srgb(to_uint8(picture.rgb), kept)
        if converted is not None:
            picture, kept = replace(picture, rgb=from_uint8(converted)), colour.srgb_profile()
            notes = (*notes, "its unusual colour profile was converted to sRGB")
    metadata = replace(metadata, exif=upright(metadata.exif), icc=kept)
    return replace(picture, metadata=metadata, stored=stored, notes=notes)


def _decoded(content: bytes, kind: str, name: str) -> tuple[NDArray[Any], FileMetadata, tuple[str, ...]]:
    """Pixels (H, W, C) in OpenCV's order, upright; metadata; and notes."""
    if kind == "HEIC":
        try:
            return (*heic.decode(content), ())
        except heic.HeicError as error:
            raise ImageError(f"{name}: {error}") from error
    cv2 = _opencv()
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
    notes: tuple[str, ...] = ()
    if metadata.icc[16:20] == b"CMYK":
        converted = colour.cmyk_to_rgb(content, metadata.icc)
        if converted is not None and converted.shape[:2] == array.shape[:2]:
            array, metadata = converted[..., ::-1], replace(metadata, icc=colour.srgb_profile())
            notes = (_CMYK,)
    if kind != "TIFF":  # OpenCV applies a TIFF's orientation itself
        array = _oriented(array, orientation(metadata.exif))
    return array, metadata, notes


def _picture(array: NDArray[Any], kind: str, name: str) -> Picture:
    """Colours, transparency and how they were stored."""
    alpha = array[..., 3] if array.shape[2] == 4 else None
    top = np.iinfo(array.dtype).max
    if alpha is not None and (alpha == top).all():
        alpha = None
    if alpha is not None and kind == "TIFF":
        # OpenCV premultiplies the colours by alpha, which cannot be undone where alpha is small.
        raise ImageError(f"{name}: TIFF with transparency is not supported; save it as PNG")
    colours = array[..., 2::-1] if array.shape[2] >= 3 else np.repeat(array[..., :1], 3, axis=2)
    rgb = torch.from_numpy(np.ascontiguousarray(colours.transpose(2, 0, 1)).astype(np.float32))
    rgb.div_(top)
    stored = Stored(single=array.shape[2] == 1, bits=16 if array.dtype == np.uint16 else 8)
    if alpha is not None and alpha.dtype == np.uint16:
        alpha = (alpha // 257).astype(np.uint8)
    return Picture(rgb=rgb, alpha=None if alpha is None else np.ascontiguousarray(alpha), stored=stored)


def suffix_of(content: bytes) -> str:
    """The usual suffix for a file's content, recognised by its first bytes; .png if unknown.

    >>> suffix_of(b"\\xff\\xd8\\xff\\xe0"), suffix_of(b"hello")
    ('.jpg', '.png')
    """
    kind = kind_of(content) or "PNG"
    suffix = {"JPEG": ".jpg", "TIFF": ".tif"}.get(kind, f".{kind.lower()}")
    return suffix if suffix in SUFFIXES else ".png"


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


def encode_like(picture: Picture, image: Tensor, suffix: str) -> bytes:
    """Encode a restored image as the file of `picture` stores it: grey or in colours, with 8 or 16 bits, its metadata.

    A picture without colours stays without them, also where its file could store some.
    """
    rgb = image.detach().float().cpu()
    metadata = picture.metadata
    if picture.grey:
        rgb = (rgb * rgb.new_tensor(_LUMA).view(3, 1, 1)).sum(0, keepdim=True).expand(3, -1, -1)
    deep = picture.stored.bits == 16 and suffix.lower() in _DEEP
    pixels: Pixels = _to_uint16(rgb) if deep else to_uint8(rgb)
    if picture.stored.single and picture.alpha is None and suffix.lower() not in (".ppm", ".webp", *heic.SUFFIXES):
        pixels = pixels[..., :1]
    elif colour.is_grey(metadata.icc):
        metadata = replace(metadata, icc=b"")
    return encode_image(pixels, suffix, picture.alpha, metadata)


def _to_uint16(rgb: Tensor) -> NDArray[np.uint16]:
    scaled = rgb.clamp(0, 1).double().mul(65535).round().to(torch.int32)
    return np.ascontiguousarray(scaled.permute(1, 2, 0).numpy().astype(np.uint16))


def encode_image(
    image: Pixels,
    suffix: str,
    alpha: NDArray[np.uint8] | None = None,
    metadata: FileMetadata | None = None,
) -> bytes:
    """Encode an image as the bytes of a file, with the metadata that its format supports.

    image   (H, W, 3) RGB, or (H, W, 1) grey, with 8 bits; with 16 bits for PNG, TIFF and PPM
    """
    cv2 = _opencv()
    suffix = suffix.lower()
    if suffix not in SUFFIXES:
        raise ImageError(f"{suffix!r}: unknown image format (choices: {', '.join(SUFFIXES)})")
    if alpha is not None and suffix in (*JPEG_SUFFIXES, ".ppm", ".pgm", ".bmp"):
        raise ImageError(f"{suffix}: this format has no transparency; use .png or .webp")
    metadata = metadata or NO_METADATA
    if suffix in heic.SUFFIXES:
        try:
            return heic.encode(image, alpha, metadata)
        except heic.HeicError as error:
            raise ImageError(f"{suffix}: {error}") from error
    if suffix == ".pgm" and image.shape[2] == 3:
        image = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)[..., None]
    channels = [image[..., ::-1]]
    if alpha is not None:
        channels.append(alpha[..., None] if image.dtype == np.uint8 else alpha[..., None].astype(np.uint16) * 257)
    # Level 1 is three times faster than the default and only a few per cent larger.
    options = {
        ".jpg": [cv2.IMWRITE_JPEG_QUALITY, 95],
        ".png": [cv2.IMWRITE_PNG_COMPRESSION, 1],
        ".webp": [cv2.IMWRITE_WEBP_QUALITY, 101],  # lossless
        ".avif": [cv2.IMWRITE_AVIF_QUALITY, 95],
    }
    types, blocks = metadata.blocks() if suffix not in TIFF_SUFFIXES else ([], [])
    form = ".jpg" if suffix in JPEG_SUFFIXES else suffix
    with quiet():
        done, buffer = cv2.imencodeWithMetadata(
            form, np.concatenate(channels, axis=2), types, blocks, options.get(form, [])
        )
    if not done:
        raise ImageError(f"{suffix}: OpenCV cannot encode this image")
    return with_tiff_tags(bytes(buffer), metadata) if suffix in TIFF_SUFFIXES else bytes(buffer)


def save_image(image: Tensor | NDArray[np.uint8], path: str | Path, alpha: NDArray[np.uint8] | None = None) -> None:
    """Save an image, a tensor (3, H, W) in [0, 1] or an array (H, W, 3) of uint8, in the format of the suffix."""
    path = Path(path)
    if isinstance(image, Tensor):
        pixels = to_uint8(as_image(image))
    elif isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3:
        pixels = image
    else:
        found = f"{image.dtype} of shape {image.shape}" if isinstance(image, np.ndarray) else type(image).__name__
        raise ImageError(f"{path}: expected a tensor (3, H, W) in [0, 1] or an array (H, W, 3) of uint8, got {found}")
    if not pixels.size:
        raise ImageError(f"{path}: the image is empty")
    if alpha is not None and not (
        isinstance(alpha, np.ndarray) and alpha.dtype == np.uint8 and alpha.shape == pixels.shape[:2]
    ):
        found = f"{alpha.dtype} {alpha.shape}" if isinstance(alpha, np.ndarray) else type(alpha).__name__
        raise ImageError(f"{path}: alpha: expected uint8 of shape {pixels.shape[:2]}, got {found}")
    write_atomically(path, encode_image(pixels, path.suffix, alpha))


# Modes of Pillow whose arrays are grey or RGB, and those that it converts: their numbers mean other things.
_PLAIN_MODES = ("L", "RGB", "F")
_CONVERTED_MODES = ("1", "P", "RGBX", "CMYK", "YCbCr", "HSV", "LAB")


def _in_plain_colours(image: ArrayLike) -> ArrayLike:
    """A PIL image in grey or RGB, whatever colours it is stored in; ImageError where that would lose something."""
    pillow = sys.modules.get("PIL.Image")  # who has an image of it has imported it
    if pillow is None or not isinstance(image, pillow.Image) or image.mode in _PLAIN_MODES:
        return image
    known = f"{', '.join(_PLAIN_MODES)} or, to be converted, {', '.join(_CONVERTED_MODES)}"
    transparent = image.mode == "P" and image.has_transparency_data
    if image.mode not in _CONVERTED_MODES or transparent:
        found = f"{image.mode}{' with transparency' * transparent}"
        raise ImageError(f"image: expected a PIL image of mode {known}, got mode {found}")
    try:
        return image.convert("RGB")  # type: ignore[no-any-return]
    except (ImportError, ValueError, OSError) as error:  # Pillow converts LAB with a library that it may lack
        raise ImageError(f"image: Pillow cannot convert mode {image.mode} to RGB: {error}") from error


def as_image(image: Image) -> Tensor:
    """Convert a tensor, an array or a PIL image without transparency to a tensor (3, H, W), float32 in [0, 1].

    >>> as_image(np.full((4, 6, 3), 255, np.uint8)).shape, as_image(np.zeros((4, 6))).shape
    (torch.Size([3, 4, 6]), torch.Size([3, 4, 6]))
    """
    if isinstance(image, Tensor):
        rgb, expected = image.detach(), "a tensor (3, H, W), RGB in [0, 1]"
        if rgb.layout != torch.strided or rgb.is_meta or rgb.is_quantized:
            kind = "meta" if rgb.is_meta else "quantised" if rgb.is_quantized else "sparse"
            raise ImageError(f"image: expected {expected}, got a {kind} tensor")
        if rgb.ndim != 3 or len(rgb) != 3:
            raise ImageError(f"image: expected {expected}, got shape {tuple(rgb.shape)}")
        if not rgb.is_floating_point():
            raise ImageError(f"image: expected {expected}, got {rgb.dtype}")
    else:
        array: np.ndarray[Any, Any] = np.asarray(_in_plain_colours(image))
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
