"""Colour profiles: which images must be converted before a network, trained on sRGB, can see them as people do."""

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]  # (H, W, 3)

# Colours on which a profile is tried: the three primaries, and greys.
_TRIED = np.array([[200, 40, 40], [40, 200, 40], [40, 40, 200], *([v, v, v] for v in (32, 96, 160, 224))], np.uint8)
# Levels by which the greys of usual profiles (sRGB, Display P3, Adobe RGB, ProPhoto) differ from sRGB at most.
_USUAL = 40


def is_rgb(icc: bytes) -> bool:
    """Whether a profile describes RGB images."""
    return icc[16:20] == b"RGB "


def is_grey(icc: bytes) -> bool:
    """Whether a profile describes grey images."""
    return icc[16:20] == b"GRAY"


def _srgb() -> Any:
    from PIL import ImageCms

    return ImageCms.createProfile("sRGB")


def srgb_profile() -> bytes:
    """The profile of sRGB, for images that were converted to it."""
    from PIL import ImageCms

    return ImageCms.ImageCmsProfile(_srgb()).tobytes()


def to_srgb(pixels: Pixels, icc: bytes) -> Pixels | None:
    """The same colours in sRGB; None if the profile is damaged."""
    from PIL import Image, ImageCms

    try:
        profile = ImageCms.ImageCmsProfile(io.BytesIO(icc))
        converted = ImageCms.profileToProfile(Image.fromarray(pixels), profile, _srgb(), outputMode="RGB")
    except (ImageCms.PyCMSError, OSError, ValueError):
        return None
    return None if converted is None else np.array(converted)


def is_unusual(icc: bytes) -> bool:
    """Whether numbers mean quite other colours than in sRGB: linear light, exchanged channels.

    Usual profiles differ less than a network notices; their images are taken as they are and keep their profile.
    """
    if not is_rgb(icc):
        return False
    seen = to_srgb(_TRIED[None], icc)
    if seen is None:
        return False
    primaries, greys = seen[0, :3].astype(int), seen[0, 3:].astype(int)
    exchanged = bool((primaries.argmax(axis=1) != np.arange(3)).any())
    return exchanged or int(np.abs(greys - _TRIED[3:].astype(int)).max()) > _USUAL


def cmyk_to_rgb(content: bytes, icc: bytes) -> Pixels | None:
    """The pixels of a CMYK file in sRGB, as its profile says; None where that cannot be done."""
    from PIL import Image, ImageCms

    try:
        with Image.open(io.BytesIO(content)) as image:
            if image.mode != "CMYK":
                return None
            profile = ImageCms.ImageCmsProfile(io.BytesIO(icc))
            converted = ImageCms.profileToProfile(image, profile, _srgb(), outputMode="RGB")
    except (ImageCms.PyCMSError, OSError, ValueError, SyntaxError):
        return None
    return None if converted is None else np.array(converted)
