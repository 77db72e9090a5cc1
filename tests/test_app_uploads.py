"""Checks of uploaded files: hostile ones are refused with a reason, all supported formats are accepted."""

from pathlib import Path

import numpy as np
import pytest
import torch

from codes.app.uploads import Limits, decode_upload, preview
from codes.data.images import ImageError, decode_picture, encode_image, to_uint8

from .app_server import photo, png
from .hostile_uploads import HOSTILE, bomb


@pytest.mark.parametrize("name", HOSTILE)
def test_bad_files_are_refused_with_a_reason(name):
    content, expected = HOSTILE[name]
    with pytest.raises(ImageError, match=expected):
        decode_upload(content, Path(name).name, Limits())


def test_dimensions_are_read_before_anything_is_decoded(monkeypatch):
    from codes.app import uploads

    def decode(content, name):
        raise AssertionError("decoded")

    monkeypatch.setattr(uploads, "decode_picture", decode)
    with pytest.raises(ImageError, match="144.0 megapixels, at most 4 are accepted"):
        decode_upload(bomb(12000), "bomb.png", Limits())
    with pytest.raises(AssertionError):
        decode_upload(png(), "photo.png", Limits())


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp", ".tif", ".bmp", ".ppm"])
def test_all_formats_are_decoded_exactly_and_previewed_in_one_that_browsers_show(suffix):
    content = encode_image(photo(), suffix)
    picture = decode_upload(content, f"photo{suffix}", Limits())
    assert torch.equal(picture.rgb, decode_picture(content, "").rgb)
    shown = preview(f"photo{suffix}", picture)
    if suffix in (".tif", ".ppm"):
        assert np.array_equal(to_uint8(decode_picture(shown, "").rgb), photo())
    else:
        assert shown is None
