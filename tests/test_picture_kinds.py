"""Pictures keep their kind: bits, colours, profiles and formats; sizes are known before anything is decoded."""

import io
import os
import struct
import threading
from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch
from PIL import Image, ImageCms

from codes.data import colour, headers, heic
from codes.data.images import (
    ImageError,
    as_image,
    check_memory,
    decode_picture,
    encode_image,
    encode_like,
    image_header,
    read_image,
    save_image,
    to_uint8,
)
from codes.data.quiet import quiet


def smooth(height: int = 24, width: int = 36) -> np.ndarray:
    """8-bit colours without sharp edges, which lossy formats keep."""
    rows, columns = np.mgrid[0:height, 0:width]
    return np.stack([5 * rows + 60, 4 * columns + 40, 255 - 4 * rows - 2 * columns], -1).clip(0, 255).astype(np.uint8)


def encoded(pixels: np.ndarray | Image.Image, kind: str, **options) -> bytes:
    file = io.BytesIO()
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    image.save(file, kind, **options)
    return file.getvalue()


def again(content: bytes, suffix: str) -> bytes:
    """The same picture in a file like its own."""
    picture = decode_picture(content, "x")
    return encode_like(picture, picture.rgb, suffix)


# ---- bits, colours, formats


@pytest.mark.parametrize("suffix", [".png", ".tif", ".ppm", ".pgm"])
def test_sixteen_bits_stay_sixteen_bits(suffix):
    values = np.random.default_rng(0).integers(0, 65536, (20, 30, 3)).astype(np.uint16)
    values = values[..., 0] if suffix == ".pgm" else values
    content = cv2.imencode(suffix, values)[1].tobytes()
    result = cv2.imdecode(np.frombuffer(again(content, suffix), np.uint8), cv2.IMREAD_UNCHANGED)
    assert result.dtype == np.uint16 and np.array_equal(result, values)


def test_sixteen_bit_transparency_and_formats_of_eight_bits():
    values = np.random.default_rng(0).integers(0, 65536, (20, 30, 4)).astype(np.uint16)
    values[..., 3] = values[..., 3] // 257 * 257
    content = cv2.imencode(".png", values)[1].tobytes()
    assert np.array_equal(cv2.imdecode(np.frombuffer(again(content, ".png"), np.uint8), cv2.IMREAD_UNCHANGED), values)
    jpeg = again(cv2.imencode(".png", values[..., :3])[1].tobytes(), ".jpg")
    assert cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_UNCHANGED).dtype == np.uint8


@pytest.mark.parametrize("suffix", [".png", ".tif", ".jpg", ".bmp", ".avif"])
def test_a_grey_file_stays_one_channel_whatever_the_network_paints(suffix):
    grey = smooth()[..., 0]
    picture = decode_picture(cv2.imencode(".png", grey)[1].tobytes(), "x")
    painted = torch.stack([picture.rgb[0], picture.rgb[0] * 0.5, picture.rgb[0] * 0.25])
    result = cv2.imdecode(np.frombuffer(encode_like(picture, painted, suffix), np.uint8), cv2.IMREAD_UNCHANGED)
    assert result.ndim == 2
    assert np.abs(result - (0.299 + 0.587 * 0.5 + 0.114 * 0.25) * grey).max() <= (8 if suffix == ".avif" else 3)


def test_a_picture_with_colours_is_not_made_grey():
    picture = decode_picture(encoded(smooth(), "PNG"), "x")
    assert not picture.grey and np.array_equal(to_uint8(read(again(encoded(smooth(), "PNG"), ".png"))), smooth())


def read(content: bytes) -> torch.Tensor:
    return decode_picture(content, "x").rgb


def test_avif_is_read_and_written(tmp_path):
    save_image(smooth(), tmp_path / "a.avif")
    assert image_header((tmp_path / "a.avif").read_bytes()).width == 36
    assert np.abs(to_uint8(read_image(tmp_path / "a.avif")).astype(int) - smooth()).max() <= 12


def test_heic_is_read_and_written_with_its_metadata(tmp_path):
    pytest.importorskip("pillow_heif")
    exif = Image.Exif()
    exif[0x010F] = "Maker"
    block = exif.tobytes().removeprefix(b"Exif\x00\x00")
    alone = encode_image(np.tile(smooth(), (4, 4, 1)), ".heic")
    assert headers.kind_of(alone) == "HEIC" and image_header(alone).height == 96
    picture = decode_picture(alone, "x")
    assert np.abs(to_uint8(picture.rgb).astype(int) - np.tile(smooth(), (4, 4, 1))).mean() <= 4
    kept = replace(picture, metadata=replace(picture.metadata, exif=block))
    assert b"Maker" in decode_picture(encode_like(kept, kept.rgb, ".heic"), "x").metadata.exif
    with pytest.raises(ImageError, match="x: the HEIC file is truncated or damaged"):
        decode_picture(alone[:300], "x")


def test_heic_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setattr(heic, "find_spec", lambda name: None)
    with pytest.raises(ImageError, match="phone.heic: HEIC needs the package pillow-heif: pip install pillow-heif"):
        decode_picture(b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic", "phone.heic")


@pytest.mark.parametrize(
    ("start", "kind"),
    [(b"\x00\x00\x00\x0cjP  \r\n", "JPEG 2000"), (b"\xff\x0a\x00", "JPEG XL"), (b"8BPS\x00\x01", "PSD")],
)
def test_other_formats_are_refused_by_name(start, kind):
    with pytest.raises(ImageError, match=f"x: {kind} is not supported; save it as PNG"):
        decode_picture(start + bytes(40), "x")


# ---- colours


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_cmyk_without_a_profile_is_converted_and_noted(kind):
    content = encoded(smooth(), kind)
    assert decode_picture(content, "x").notes == ()
    picture = decode_picture(encoded(Image.fromarray(smooth()).convert("CMYK"), kind, quality=98), "x")
    assert np.abs(to_uint8(picture.rgb).astype(int) - smooth()).max() <= 8  # not as negative
    assert picture.notes == ("its CMYK colours were converted to sRGB",) and picture.metadata.icc == b""


def test_cmyk_is_converted_by_its_profile(monkeypatch):
    # No CMYK profile comes with the system: what littlecms would make of one is put in its place.
    shown = np.full((24, 36, 3), 77, np.uint8)
    monkeypatch.setattr(colour, "cmyk_to_rgb", lambda content, icc: shown)
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    profile[16:20] = b"CMYK"
    file = io.BytesIO()
    Image.fromarray(smooth()).convert("CMYK").save(file, "JPEG", icc_profile=bytes(profile))
    picture = decode_picture(file.getvalue(), "x")
    assert np.array_equal(to_uint8(picture.rgb), shown) and colour.is_rgb(picture.metadata.icc)
    assert picture.notes == ("its CMYK colours were converted to sRGB",)


def linear_profile() -> bytes:
    """sRGB's colours with numbers that are proportional to light."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    for index in range(struct.unpack_from(">I", profile, 128)[0]):
        tag, offset, size = struct.unpack_from(">4sII", profile, 132 + 12 * index)
        if tag in (b"rTRC", b"gTRC", b"bTRC"):
            profile[offset : offset + size] = (b"curv" + bytes(8)).ljust(size, b"\x00")  # no entries: a straight line
    return bytes(profile)


def test_unusual_profiles_are_converted_and_usual_ones_kept():
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    usual = decode_picture(encoded(smooth(), "PNG", icc_profile=srgb), "x")
    assert np.array_equal(to_uint8(usual.rgb), smooth()) and usual.metadata.icc == srgb and usual.notes == ()
    picture = decode_picture(encoded(smooth(), "PNG", icc_profile=linear_profile()), "x")
    light = smooth() / 255
    expected = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    assert np.abs(picture.rgb.permute(1, 2, 0).numpy() - expected).max() < 0.02
    assert not colour.is_unusual(picture.metadata.icc) and colour.is_rgb(picture.metadata.icc)
    assert picture.notes == ("its unusual colour profile was converted to sRGB",)
    damaged = decode_picture(encoded(smooth(), "PNG", icc_profile=srgb[:20] + bytes(100)), "x")
    assert np.array_equal(to_uint8(damaged.rgb), smooth())


def test_tiff_keeps_profile_and_tags_with_any_bits():
    exif = Image.Exif()
    exif[0x010F], exif[0x011A], exif[0x0131] = "Maker", 72.0, "Software"
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    content = encoded(smooth(), "TIFF", exif=exif, icc_profile=profile, compression="tiff_lzw")
    with Image.open(io.BytesIO(again(content, ".tif"))) as result:
        assert result.getexif()[0x010F] == "Maker" and result.getexif()[0x0131] == "Software"
        assert result.getexif()[0x011A] == 72 and result.info["icc_profile"] == profile
        assert np.array_equal(np.asarray(result), smooth()) and getattr(result, "n_frames", 1) == 1


# ---- frames


@pytest.mark.parametrize(
    ("kind", "what"), [("PNG", "frames"), ("WEBP", "frames"), ("TIFF", "pages"), ("AVIF", "frames")]
)
def test_animations_and_pages_are_noted(kind, what):
    frames = [Image.fromarray(np.full((20, 20, 3), 80 * k, np.uint8)) for k in range(3)]
    file = io.BytesIO()
    frames[0].save(file, kind, save_all=True, append_images=frames[1:])
    picture = decode_picture(file.getvalue(), "x")
    assert (
        picture.notes == (f"only the first of 3 {'pages' if kind == 'TIFF' else 'frames'} is taken",)
        and picture.rgb.max() < 0.02
    )
    assert decode_picture(encoded(smooth(), kind), "x").notes == ()


# ---- headers and memory


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp", ".tif", ".bmp", ".ppm", ".avif"])
def test_headers_tell_the_size(suffix):
    content = encode_image(np.tile(smooth(), (3, 2, 1)), suffix)
    found = image_header(content)
    assert (found.width, found.height, found.frames) == (72, 72, 1)
    for length in range(0, min(len(content), 400)):  # any beginning: the size or nothing
        part = image_header(content[:length])
        assert part is None or (part.width, part.height) == (72, 72) or suffix == ".ppm"


def test_headers_of_lossy_and_grey_files():
    lossy = io.BytesIO()
    Image.fromarray(smooth()).save(lossy, "WEBP", quality=50)
    assert (image_header(lossy.getvalue()).width, image_header(lossy.getvalue()).height) == (36, 24)
    grey = image_header(cv2.imencode(".png", smooth()[..., 0].astype(np.uint16))[1].tobytes())
    assert (grey.channels, grey.bits) == (1, 16)


def test_damaged_headers_never_raise():
    rng = np.random.default_rng(0)
    for suffix in (".png", ".jpg", ".webp", ".tif", ".bmp", ".ppm", ".avif"):
        whole = encode_image(smooth(), suffix)
        for _ in range(300):
            content = bytearray(whole[: rng.integers(1, len(whole))])
            for place in rng.integers(0, len(content), 4):
                content[place] = rng.integers(0, 256)
            found = image_header(bytes(content))
            assert found is None or found.pixels > 0


def test_an_image_that_does_not_fit_is_refused_before_it_is_decoded(monkeypatch):
    content = encoded(np.zeros((2000, 2000, 3), np.uint8), "PNG")  # a few kB
    monkeypatch.setattr("codes.data.images.available_memory", lambda: 50e6)
    monkeypatch.setattr("codes.data.images._decoded", lambda *a: pytest.fail("decoded"))
    with pytest.raises(ImageError, match=r"^big\.png: reading 4 megapixels takes 0\.1 GB of memory, 0\.1 GB are free"):
        decode_picture(content, "big.png")
    with pytest.raises(ImageError, match=r"^x: restoring 100 megapixels takes 14\.4 GB of memory, 0\.1 GB are free"):
        check_memory(100_000_000, 144, "x", "restoring")


def test_a_part_of_a_file_that_claims_gigabytes_is_not_believed(monkeypatch):
    content = encode_image(np.zeros((8, 8, 3), np.uint8), ".png")
    claim = content[:33] + (2**31 - 1).to_bytes(4, "big") + b"tEXt" + content[33:]
    monkeypatch.setattr("codes.data.images._decoded", lambda *given: pytest.fail("decoded"))
    with pytest.raises(ImageError, match=r"x\.png: the PNG file is truncated or damaged"):
        decode_picture(claim, "x.png")


def test_memory_that_runs_out_is_one_line(monkeypatch):
    def full(*_):
        raise MemoryError

    monkeypatch.setattr("codes.data.images._picture", full)
    with pytest.raises(ImageError, match="x: does not fit into memory"):
        decode_picture(encoded(smooth(), "PNG"), "x")


# ---- what the API refuses


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (np.full((8, 8, 3), 0.5, np.float32), "got float32 of shape (8, 8, 3)"),
        (np.zeros((1, 8, 8, 3), np.uint8), "got uint8 of shape (1, 8, 8, 3)"),
        (np.zeros((8, 8), np.uint8), "got uint8 of shape (8, 8)"),
        (np.zeros((0, 8, 3), np.uint8), "the image is empty"),
        (torch.full((3, 8, 8), torch.nan), "got values from nan to nan"),
        (torch.zeros(1, 3, 8, 8), "got shape (1, 3, 8, 8)"),
        (torch.zeros(3, 0, 8), "got an empty one"),
        (torch.zeros(3, 8, 8).to_sparse(), "got a sparse tensor"),
        (torch.zeros(3, 8, 8, device="meta"), "got a meta tensor"),
        ([[0.5]], "got list"),
    ],
)
def test_save_image_takes_what_it_promises_and_nothing_else(tmp_path, image, reason):
    with pytest.raises(ImageError) as refused:
        save_image(image, tmp_path / "x.png")
    assert reason in str(refused.value) and not list(tmp_path.iterdir())


@pytest.mark.parametrize("alpha", [[1], 1, torch.zeros(8, 8, dtype=torch.uint8), np.zeros((8, 8))])
def test_save_image_refuses_other_transparency(tmp_path, alpha):
    with pytest.raises(ImageError, match=r"x.png: alpha: expected uint8 of shape \(8, 8\), got "):
        save_image(np.zeros((8, 8, 3), np.uint8), tmp_path / "x.png", alpha)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("mode", ["1", "P", "RGBX", "CMYK", "YCbCr", "HSV", "LAB"])
def test_pil_images_of_other_colours_mean_what_they_show(mode):
    """Their numbers are indices of a palette, brightness and colour, or ink: they were taken for grey or RGB."""
    colours = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
    shown = Image.new("RGB", (6, 4), (255, 255, 255) if mode == "1" else (250, 60, 20))
    image = shown.quantize(2) if mode == "P" else shown.convert("RGB" if mode == "LAB" else mode)
    if mode == "LAB":
        image = ImageCms.profileToProfile(shown, *colours, outputMode="LAB")
    assert image.mode == mode
    expected = torch.tensor(shown.getpixel((0, 0)))[:, None, None] / 255
    assert (as_image(image) - expected).abs().max() <= 3 / 255  # they round


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA", "La", "RGBa", "I", "I;16", "P with transparency"])
def test_pil_images_that_would_lose_something_are_refused_by_their_mode(mode):
    image = Image.new(mode.split()[0], (6, 4))
    if " " in mode:
        image.info["transparency"] = 0
    with pytest.raises(ImageError, match=f"^image: expected a PIL image of mode .*, got mode {mode}$"):
        as_image(image)


# ---- libraries that print


def test_lines_of_libpng_do_not_reach_the_user_and_others_do(capfd):
    content = bytearray(encoded(smooth(), "PNG"))
    content[content.index(b"IDAT") + 10] ^= 255
    with pytest.raises(ImageError, match="truncated or damaged"):
        decode_picture(bytes(content), "x")
    assert capfd.readouterr().err == ""
    with quiet():
        os.write(2, b"libpng warning: theirs\nours\n")
        with quiet():
            os.write(2, b"inner\n")
    assert capfd.readouterr().err == "ours\ninner\n"
    content = encoded(smooth(), "PNG")
    thread = threading.Thread(target=lambda: [decode_picture(content, "x") for _ in range(9)])
    thread.start()
    os.write(2, b"meanwhile\n")
    thread.join()
    assert capfd.readouterr().err == "meanwhile\n"
