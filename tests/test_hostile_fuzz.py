"""Image files and arguments of the Python interface with any content: used, or refused as promised."""

import io

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from codes import load_restorer, save_image
from codes.data.images import ImageError, check_memory, decode_picture, image_header

FORMATS = ("PNG", "JPEG", "TIFF", "WEBP", "BMP")
SIDE = (7, 5)


def written(form: str, mode: str) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (SIDE[1], SIDE[0], len(mode)), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels.squeeze(), mode).save(buffer, form)
    return buffer.getvalue()


FILES = [written(form, mode) for form in FORMATS for mode in ("RGB", "L") if (form, mode) != ("WEBP", "L")]
# Places as shares of the length, and what stands there instead; None cuts the file off.
DAMAGE = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=4) | st.none()), min_size=1, max_size=3
)


@given(file=st.sampled_from(FILES), changes=DAMAGE, early=st.booleans())
def test_changed_images_are_pictures_or_refused_by_name(file, changes, early):
    """Half of the changes hit the first 64 bytes, where the size is written."""
    content = file
    for place, new in changes:
        at = int(place * (min(64, len(content)) if early else len(content)))
        content = content[:at] + (b"" if new is None else new + content[at + len(new) :])
    try:
        header = image_header(content)
        if header is not None:
            assert header.pixels >= 0
            check_memory(header.pixels, 500, "photo", "restoring")
        picture = decode_picture(content, "photo")
    except ImageError as error:
        assert str(error).startswith("photo: ") and "\n" not in str(error)
    else:
        assert picture.rgb.ndim == 3 and picture.rgb.shape[0] == 3
        assert bool(torch.isfinite(picture.rgb).all()) and 0 <= picture.rgb.min() <= picture.rgb.max() <= 1


@given(content=st.binary(max_size=200), start=st.sampled_from([b"", *(file[:12] for file in FILES)]))
def test_any_bytes_are_refused_by_name(content, start):
    image_header(start + content)
    with pytest.raises(ImageError, match="^photo: "):
        decode_picture(start + content, "photo")


@pytest.fixture(scope="module")
def restorer(weights):
    return load_restorer(weights, device="cpu")


NUMBERS = st.sampled_from(
    [None, True, False, -1, 0, 1, 2, 64, 1.5, 10**9, 10**25, -(10**25), float("nan"), float("inf"), "", "auto", "off",
     "x", "8", b"8", [], [1], {}, torch.tensor(2), np.int64(2)]
)  # fmt: skip
IMAGES = st.sampled_from(
    [torch.full((3, 9, 11), 0.4), torch.zeros(3, 0, 4), torch.zeros(4, 9, 9),
     torch.full((3, 8, 8), float("nan")), torch.zeros(3, 8, 8, dtype=torch.int64), torch.zeros(1, 3, 8, 8), None,
     "x.png", np.zeros((8, 8, 3), np.uint8), np.zeros((8, 8)), np.zeros((8, 8, 3), object),
     np.zeros((0, 0, 3), np.uint8)]
)  # fmt: skip
REFUSALS = (ValueError, TypeError, ImageError)


@given(
    image=IMAGES,
    arguments=st.dictionaries(st.sampled_from(["nfe", "seed", "tile", "strength", "algorithm"]), NUMBERS, max_size=2),
    n=st.just(1) | NUMBERS,
)
def test_any_arguments_restore_or_are_refused(image, arguments, n, restorer):
    try:
        found = restorer.sample(image, n, **{"nfe": 1, **arguments})
    except REFUSALS as error:
        assert str(error)
    else:
        assert bool(torch.isfinite(found.samples).all()) and len(found.samples) == n


@given(image=IMAGES, name=st.sampled_from(["a.png", "a.jpg", "a.tif", "a.xyz", "", "a\0.png"]))
def test_any_image_is_saved_or_refused(image, name, tmp_path):
    try:
        save_image(image, tmp_path / name)
    except REFUSALS as error:
        assert str(error)
    else:
        assert (tmp_path / name).stat().st_size > 0
