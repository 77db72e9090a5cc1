"""Images are read as a viewer would show them or refused with a reason, and written completely or not at all."""

import struct
import zlib

import cv2
import numpy as np
import pytest
import torch

from codes.data.images import (
    ImageError,
    decode_picture,
    encode_image,
    from_uint8,
    read_image,
    read_picture,
    save_image,
    to_uint8,
)
from codes.data.metadata import orientation, upright
from codes.runtime.files import write_atomically


@pytest.fixture
def scene():
    """8-bit RGB (24, 36, 3): red above blue, a yellow bar on the left."""
    image = np.zeros((24, 36, 3), np.uint8)
    image[:12], image[12:], image[:, :6] = (200, 30, 40), (10, 120, 220), (255, 255, 0)
    return image


def png_with_exif(image: np.ndarray, orientation: int) -> bytes:
    """A PNG file (colours as given, alpha allowed) that carries an orientation."""
    channels = image[..., ::-1] if image.shape[2] == 3 else image[..., [2, 1, 0, 3]]
    content = cv2.imencode(".png", channels)[1].tobytes()
    exif = b"MM\x00*" + struct.pack(">IHHHIHHI", 8, 1, 0x0112, 3, 1, orientation, 0, 0)
    chunk = struct.pack(">I", len(exif)) + b"eXIf" + exif + struct.pack(">I", zlib.crc32(b"eXIf" + exif))
    end = 8 + 25  # after the signature and the header chunk
    return content[:end] + chunk + content[end:]


def pixels(picture) -> np.ndarray:
    return to_uint8(picture.rgb)


@pytest.mark.parametrize("suffix", [".png", ".bmp", ".ppm", ".tif", ".webp"])
def test_lossless_formats_round_trip(tmp_path, scene, suffix):
    path = tmp_path / f"bild-ü-日本{suffix}"
    save_image(scene, path)
    assert np.array_equal(pixels(read_picture(path)), scene)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_jpeg_is_close(tmp_path, scene):
    save_image(scene, tmp_path / "a.jpg")
    difference = pixels(read_picture(tmp_path / "a.jpg")).astype(int) - scene
    assert np.abs(difference[3:9, 12:30]).max() <= 6


def test_grey_becomes_rgb(scene):
    content = cv2.imencode(".png", scene[..., 0])[1].tobytes()
    assert np.array_equal(pixels(decode_picture(content, "x")), np.repeat(scene[..., :1], 3, axis=2))


def test_sixteen_bits_are_kept(tmp_path):
    values = np.arange(0, 65536, 97, dtype=np.uint16)[:600].reshape(20, 30)
    for name, array in (
        ("grey.png", values),
        ("colour.png", np.stack([values] * 3, -1)),
        ("c.tif", np.stack([values] * 3, -1)),
    ):
        (tmp_path / name).write_bytes(cv2.imencode(name[-4:], array)[1].tobytes())
        rgb = read_image(tmp_path / name)
        assert torch.allclose(rgb[1], torch.from_numpy(values.astype(np.float32) / 65535), atol=1e-7), name


def test_alpha_is_kept_and_full_alpha_is_dropped(tmp_path, scene):
    alpha = np.arange(24 * 36, dtype=np.uint8).reshape(24, 36)
    for suffix in (".png", ".webp"):
        save_image(scene, tmp_path / f"a{suffix}", alpha)
        picture = read_picture(tmp_path / f"a{suffix}")
        assert np.array_equal(picture.alpha, alpha)
    assert np.array_equal(pixels(read_picture(tmp_path / "a.png")), scene)
    save_image(scene, tmp_path / "b.png", np.full_like(alpha, 255))
    assert read_picture(tmp_path / "b.png").alpha is None
    with pytest.raises(ImageError, match="no transparency; use .png"):
        save_image(scene, tmp_path / "c.jpg", alpha)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied_to_colours_and_alpha(scene, orientation):
    """Undoing each stored orientation gives the scene."""
    stored = {
        1: scene,
        2: scene[:, ::-1],
        3: scene[::-1, ::-1],
        4: scene[::-1],
        5: scene.swapaxes(0, 1),
        6: np.rot90(scene, 1),
        7: scene.swapaxes(0, 1)[::-1, ::-1],
        8: np.rot90(scene, -1),
    }[orientation]
    assert np.array_equal(pixels(decode_picture(png_with_exif(np.ascontiguousarray(stored), orientation), "x")), scene)
    alpha = stored[..., :1] // 2
    picture = decode_picture(png_with_exif(np.concatenate([stored, alpha], 2), orientation), "x")
    assert np.array_equal(pixels(picture), scene) and np.array_equal(picture.alpha, scene[..., 0] // 2)


def exif_block(orientation: int, order: str, preview: bool) -> bytes:
    """An EXIF block with maker, orientation and date, and on request a second directory for a preview."""
    from PIL import Image

    block = Image.Exif()
    block.endian = order
    block[0x010F], block[0x0112] = "Maker", orientation
    block.get_ifd(0x8769)[0x9003] = "2020:01:01 00:00:00"
    content = block.tobytes().removeprefix(b"Exif\x00\x00")
    count = struct.unpack_from(order + "H", content, 8)[0]
    link = 8 + 2 + 12 * count
    if preview:
        second = struct.pack(order + "HHHIII", 1, 0x0201, 4, 1, 8, 0)
        content = content[:link] + struct.pack(order + "I", len(content)) + content[link + 4 :] + second
    return content


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("preview", [False, True])
def test_metadata_is_made_upright_and_loses_the_preview(order, preview):
    from PIL import ExifTags, Image

    for turn in range(1, 9):
        block = exif_block(turn, order, preview)
        assert orientation(block) == turn
        result = upright(block)
        assert orientation(result) == 1 and upright(result) == result
        found = Image.Exif()
        found.load(result)
        assert found[0x010F] == "Maker" and found.get_ifd(0x8769) == {0x9003: "2020:01:01 00:00:00"}
        assert found.get_ifd(ExifTags.IFD.IFD1) == {}
    assert preview or upright(exif_block(1, order, False)) == exif_block(1, order, False)


def test_images_with_damaged_metadata_are_accepted(recwarn):
    rng = np.random.default_rng(0)
    for _ in range(500):
        block = bytearray(exif_block(6, ">", True))
        for place in rng.integers(0, len(block), 3):
            block[place] = rng.integers(0, 256)
        damaged = bytes(block[: rng.integers(1, len(block) + 1)])
        assert isinstance(orientation(damaged), int) and isinstance(upright(damaged), bytes)
    assert orientation(b"") == 1 and upright(b"") == b""
    assert not list(recwarn)


def test_palette_png_is_resolved(tmp_path, scene):
    from PIL import Image

    Image.fromarray(scene).convert("P", palette=Image.Palette.ADAPTIVE, colors=8).save(tmp_path / "p.png")
    assert np.abs(pixels(read_picture(tmp_path / "p.png")).astype(int) - scene).max() <= 2


@pytest.mark.parametrize("suffix", [".jpg", ".tif"])
def test_cmyk_is_converted(tmp_path, scene, suffix):
    from PIL import Image

    Image.fromarray(scene).convert("CMYK").save(
        tmp_path / f"c{suffix}", **({"quality": 95} if suffix == ".jpg" else {})
    )
    difference = pixels(read_picture(tmp_path / f"c{suffix}")).astype(int) - scene
    assert np.abs(difference[3:9, 12:30]).max() <= 4


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp", ".tif", ".bmp"])
def test_truncated_files_are_refused(scene, suffix):
    content = encode_image(np.tile(scene, (8, 8, 1)), suffix)
    for share in (0.5, 0.9, 0.99):
        with pytest.raises(ImageError, match=r"photo: the \w+ file is truncated or damaged"):
            decode_picture(content[: int(share * len(content))], "photo")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b"hello world, this is text", "not an image in a known format"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not an image in a known format"),
        (b"GIF89a" + bytes(50), "GIF is not supported; save it as PNG"),
        (b"\x89PNG\r\n\x1a\n" + bytes(30), "the PNG file is truncated or damaged"),
    ],
)
def test_files_that_are_not_images_are_refused(content, reason):
    with pytest.raises(ImageError, match=f"^name: {reason}"):
        decode_picture(content, "name")


def test_float_tiff_and_tiff_with_alpha_are_refused(tmp_path, scene):
    content = cv2.imencode(".tif", scene.astype(np.float32) / 255)[1].tobytes()
    with pytest.raises(ImageError, match="type float32 are not supported"):
        decode_picture(content, "x")
    transparent = np.concatenate([scene, np.full((24, 36, 1), 100, np.uint8)], axis=2)
    with pytest.raises(ImageError, match="TIFF with transparency is not supported; save it as PNG"):
        decode_picture(cv2.imencode(".tif", transparent)[1].tobytes(), "x")


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(ImageError, match="no.png: cannot be read: No such file"):
        read_picture(tmp_path / "no.png")
    with pytest.raises(ImageError, match="a folder; expected a file"):
        read_picture(tmp_path)


def test_eight_bit_round_trip_and_rounding():
    values = torch.arange(256, dtype=torch.float32).view(1, 16, 16).repeat(3, 1, 1)
    assert torch.equal(from_uint8(to_uint8(values / 255)), values / 255)
    # Rounded half to even and clipped, like the published conversion.
    image = torch.tensor([-0.2, 0.5 / 255, 1.5 / 255, 2.5 / 255, 1.7]).view(1, 1, 5).repeat(3, 1, 1)
    assert to_uint8(image)[0, :, 0].tolist() == [0, 0, 2, 2, 255]


def test_a_failed_write_leaves_nothing_behind(tmp_path, monkeypatch):
    (tmp_path / "a.png").write_bytes(b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(tmp_path / "a.png", b"new")
    assert (tmp_path / "a.png").read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.png"]
