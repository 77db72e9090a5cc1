"""Checks of uploaded files: hostile ones are refused with a reason, all supported formats are accepted."""

from pathlib import Path

import numpy as np
import pytest
import torch

from codes.app.uploads import Limits, decode_upload, preview, smaller
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
    with pytest.raises(ImageError, match="144.0 megapixels, at most 50 are accepted"):
        decode_upload(bomb(12000), "bomb.png", Limits())
    with pytest.raises(AssertionError):
        decode_upload(png(), "photo.png", Limits())


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp", ".tif", ".bmp", ".ppm", ".avif"])
def test_all_formats_are_decoded_exactly_and_previewed_in_one_that_browsers_show(suffix):
    content = encode_image(photo(), suffix)
    picture = decode_upload(content, f"photo{suffix}", Limits())
    assert torch.equal(picture.rgb, decode_picture(content, "").rgb)
    shown, kind = preview(picture)
    assert kind == ".jpg" and shown == encode_image(to_uint8(picture.rgb), ".jpg")


def test_large_photos_are_shrunk_by_averaging_unless_wanted_in_full():
    limits = Limits(at_once=48 * 64 // 4)
    alpha = np.repeat(np.arange(64, dtype=np.uint8)[None], 48, axis=0)
    content = encode_image(photo(), ".png", alpha)
    small = decode_upload(content, "photo.png", limits, full=False)
    expected = photo().astype(np.float32).reshape(24, 2, 32, 2, 3).mean(axis=(1, 3)) / 255
    np.testing.assert_allclose(small.rgb.permute(1, 2, 0).numpy(), expected, atol=1e-6)
    assert small.alpha.shape == (24, 32) and small.alpha[0, 16] in (32, 33)
    assert decode_upload(content, "photo.png", limits, full=True).rgb.shape == (3, 48, 64)
    assert smaller(small, 24 * 32) is small
