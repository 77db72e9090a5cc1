"""NIQE and BRISQUE against pyiqa and closed forms, and the evaluation of photos without clean ones."""

import json
import shutil
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from safetensors.numpy import load

from codes.commands.fetch_weights import brisque_file, niqe_file
from codes.data.images import read_picture, save_image, to_uint8
from codes.metrics import BRISQUE, METRICS, NIQE, MissingWeights, Scorer, WrongWeights, find_weights, names_for
from codes.metrics.natural import _contrast, _fit, _half

from .evaluation import evaluate, write_options, write_weights

PHOTOS = Path(__file__).parents[1] / "options" / "demo" / "GT"
# NIQE and BRISQUE by pyiqa 0.1.16: `calculate_niqe` and `brisque` of its archs, float32 as it runs by default, with the
# same parameters. In float64 its BRISQUE of these photos changes by up to 0.06, so much it depends on rounding. On the
# five calibration images of pyiqa (TID2013, not part of this project) the metrics here and the authors' programs are:
# NIQE 15.687 3.655 3.236 3.200 8.576, published 15.754 3.655 3.235 3.184 8.635 (pyiqa: 15.656 3.655 3.234 3.192 9.073);
# BRISQUE 94.64 -0.11 1.08 5.49 70.98, published 94.64 -0.11 0.99 5.36 72.26 (pyiqa: 94.64 -0.11 1.07 5.14 66.84).
PYIQA = {
    "astronaut": (5.639152, 14.894958),
    "chelsea": (2.576004, 7.413879),
    "china": (7.379111, 32.071594),
    "coffee": (5.841646, 4.183655),
    "flower": (4.494984, 4.035095),
    "rocket": (17.327937, 17.672791),
}


@pytest.fixture(scope="module")
def niqe():
    return _loaded(NIQE)


@pytest.fixture(scope="module")
def brisque():
    return _loaded(BRISQUE)


def _loaded(metric):
    try:
        return metric()
    except MissingWeights as error:
        pytest.skip(str(error))


def photo(name):
    return to_uint8(read_picture(PHOTOS / f"{name}.png").rgb)


# ---- values


@pytest.mark.parametrize("name", PYIQA)
def test_values_are_those_of_pyiqa(name, niqe, brisque):
    distance, opinion = PYIQA[name]
    assert niqe(photo(name)) == pytest.approx(distance, rel=2e-3)
    assert brisque(photo(name)) == pytest.approx(opinion, abs=0.1)


@pytest.mark.parametrize("name", ["chelsea", "flower"])
def test_noise_blur_and_jpeg_are_worse_than_the_photo(name, niqe, brisque):
    clean = photo(name)
    noise = np.random.default_rng(0).normal(0, 40, clean.shape)
    noisy = (clean + noise).round().clip(0, 255).astype(np.uint8)
    blurred = cv2.GaussianBlur(clean, (0, 0), 3)
    blocks = cv2.imdecode(cv2.imencode(".jpg", clean, [cv2.IMWRITE_JPEG_QUALITY, 5])[1], cv2.IMREAD_COLOR)
    for metric in (niqe, brisque):
        assert min(metric(noisy), metric(blurred), metric(blocks)) > 1.3 * metric(clean)
    assert METRICS["niqe"].lower_is_better and METRICS["brisque"].lower_is_better


def test_colour_counts_by_its_grey_value(niqe, brisque):
    grey = cv2.cvtColor(photo("coffee"), cv2.COLOR_RGB2GRAY)
    as_colour = np.repeat(grey[..., None], 3, axis=2)
    assert niqe(as_colour) == pytest.approx(niqe(photo("coffee")), rel=2e-3)
    assert brisque(as_colour) == pytest.approx(brisque(photo("coffee")), abs=0.1)


def test_what_has_no_value_is_none(niqe, brisque):
    scorer = Scorer(("psnr", "niqe", "brisque"), 0, {"niqe": niqe, "brisque": brisque})
    noise = np.random.default_rng(0).integers(0, 256, (192, 192, 3)).astype(np.uint8)
    known = {
        (192, 96): {"niqe", "brisque"},
        (96, 191): {"brisque"},  # a single block has no covariance
        (95, 192): {"brisque"},
        (16, 16): {"brisque"},
        (15, 40): set(),
    }
    for (height, width), names in known.items():
        values = scorer(noise[:height, :width])
        assert set(values) == {"niqe", "brisque"}  # PSNR needs a clean image
        assert {name for name, value in values.items() if value is not None} == names
    assert scorer(np.full((200, 200, 3), 90, np.uint8)) == {"niqe": None, "brisque": None}
    values = scorer(noise, noise)
    assert values == {"psnr": np.inf, "niqe": niqe(noise), "brisque": brisque(noise)}


# ---- parts


@pytest.mark.parametrize(("draw", "shape", "width"), [("normal", 2, 2**0.5), ("laplace", 1, 1)])
def test_the_fit_finds_the_distribution(draw, shape, width):
    """exp(-(|x| / width)^shape): the normal distribution has shape 2 and width sqrt 2, that of Laplace 1 and 1."""
    values = getattr(np.random.default_rng(0), draw)(size=(1, 1000, 1000))
    (found,), (left,), (right,) = _fit(values)
    assert found == pytest.approx(shape, rel=0.01)
    assert (left, right) == (pytest.approx(width, rel=0.01), pytest.approx(width, rel=0.01))
    (found,), (left,), (right,) = _fit(np.where(values < 0, 3 * values, values).repeat(1, axis=0))
    assert left / right == pytest.approx(3, rel=0.01)


def test_half_the_size_is_the_antialiased_bicubic_filter():
    values = np.random.default_rng(0).uniform(0, 255, (40, 52))
    reference = torch.nn.functional.interpolate(
        torch.from_numpy(values)[None, None], scale_factor=0.5, mode="bicubic", antialias=True
    )[0, 0].numpy()
    found = _half(values)
    assert found.shape == (20, 26) == reference.shape
    inside = np.s_[2:-2, 2:-2]  # torch cuts its filter off at the border
    np.testing.assert_allclose(found[inside], reference[inside], atol=1e-9)
    np.testing.assert_allclose(_half(np.full((9, 8), 7.0)), np.full((5, 4), 7.0), atol=1e-12)


def test_local_contrast_of_a_step():
    values = np.zeros((20, 20))
    values[:, 10:] = 100
    found = _contrast(values, cv2.BORDER_REPLICATE)
    kernel = np.exp(-(np.arange(-3, 4) ** 2) / (2 * (7 / 6) ** 2))
    share = kernel[:4].sum() / kernel.sum()  # of the window over the pixel right of the step that lies on its side
    expected = 100 * (1 - share) / (100 * np.sqrt(share * (1 - share)) + 1)
    np.testing.assert_allclose(found[:, 10], expected, rtol=1e-9)
    np.testing.assert_allclose(found[:, 9], -expected, rtol=1e-9)
    assert not found[:, :6].any()


# ---- parameters


def test_parameters_are_converted():
    import io

    file = io.BytesIO()
    np.savez(file, mu_pris_param=np.arange(36.0)[None], cov_pris_param=np.eye(36), gaussian_window=np.ones((7, 7)))
    found = load(niqe_file(file.getvalue()))
    np.testing.assert_array_equal(found["mean"], np.arange(36))
    np.testing.assert_array_equal(found["covariance"], np.eye(36))
    text = "svm_type epsilon_svr\ngamma 0.05\nrho -153.5\nSV\n-1024 1:-0.5 36:0.25 \n8.5 2:1 \n"
    found = load(brisque_file(text.encode()))
    assert found["vectors"].shape == (2, 36) and np.count_nonzero(found["vectors"]) == 3
    assert (found["vectors"][0, 0], found["vectors"][0, 35], found["vectors"][1, 1]) == (-0.5, 0.25, 1)
    assert (found["factors"].tolist(), found["gamma"][0], found["offset"][0]) == ([-1024, 8.5], 0.05, 153.5)


@pytest.mark.parametrize("metric", [NIQE, BRISQUE])
def test_missing_and_changed_parameters_are_named(metric, tmp_path, niqe, brisque):
    name = metric.__name__.lower()
    with pytest.raises(MissingWeights, match=f"fetch_weights.py --only {name}"):
        metric(tmp_path)
    shutil.copy(find_weights(name), tmp_path)
    path = tmp_path / f"{name}.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(WrongWeights, match=f"{name}.safetensors: sha256 is"):
        metric(tmp_path)


# ---- a run without clean images


def without(monkeypatch, folder, *missing):
    """The parameters of these metrics are not on this machine."""
    scorer = sys.modules["codes.metrics.scorer"]
    found = lambda name: find_weights(name, folder) if name in missing else Path("there")  # noqa: E731
    monkeypatch.setattr(scorer, "find_weights", found)


def test_which_metrics_a_run_has(monkeypatch, tmp_path):
    given = ("psnr", "fid")
    without(monkeypatch, tmp_path)
    assert names_for(given, clean=True, unpaired=False) == (given, [])
    assert names_for(given, clean=False, unpaired=True) == (("niqe", "brisque"), [])
    assert names_for(given, clean=True, unpaired=True) == (("psnr", "fid", "niqe", "brisque"), [])
    assert names_for(("psnr", "brisque"), clean=False, unpaired=True) == (("psnr", "brisque"), [])
    assert names_for((), clean=False, unpaired=True) == ((), [])
    without(monkeypatch, tmp_path, "niqe")
    names, notes = names_for(given, clean=False, unpaired=True)
    assert names == ("brisque",)
    assert notes == [
        f"NIQE, which needs no clean images, is left out: {tmp_path / 'niqe.safetensors'}: no such file; "
        "get it with: python scripts/fetch_weights.py --only niqe"
    ]
    without(monkeypatch, tmp_path, "niqe", "brisque")
    names, notes = names_for(given, clean=False, unpaired=True)
    assert names == given and len(notes) == 2


@pytest.fixture
def photos(tmp_path):
    """A network, and two photos without clean ones, as options of a run."""
    write_weights(tmp_path / "tiny.safetensors")
    for name in ("chelsea", "coffee"):
        save_image(photo(name)[:96, :192], tmp_path / "photos" / f"{name}.png")
    solver = {"sde": {"algorithm": "mrsampler-pc"}, "sampler": {"num_sample_steps": 2}}
    return {"datasets": {"old": {"mode": "LQ", "dataroot_LQ": str(tmp_path / "photos")}}, **solver}


def rows_of(folder):
    summary = json.loads((folder / "summary.json").read_text())
    return {row["solver"]: row["metrics"] for row in summary["rows"]}, summary["notes"]


def test_photos_without_clean_ones_are_judged_before_and_after(tmp_path, photos, niqe, brisque, capsys):
    command = ["-opt", str(write_options(tmp_path, **photos))]
    folder = tmp_path / "results" / "run"
    assert evaluate(command) == 0
    assert "NIQE ↓" in capsys.readouterr().out
    rows, notes = rows_of(folder)
    assert notes == [] and len(rows) == 2
    (label,) = set(rows) - {"(input)"}
    for shown, place in (("(input)", tmp_path / "photos"), (label, folder / "old" / label)):
        images = [to_uint8(read_picture(path).rgb) for path in sorted(place.iterdir())]
        expected = {"niqe": np.mean([niqe(x) for x in images]), "brisque": np.mean([brisque(x) for x in images])}
        assert rows[shown] == pytest.approx(expected, rel=1e-9)
    assert evaluate(command) == 0  # all from the records
    assert rows_of(folder) == (rows, [])


def test_photos_of_a_run_without_parameters_are_scored_later(tmp_path, photos, niqe, brisque, monkeypatch):
    command = ["-opt", str(write_options(tmp_path, **photos))]
    folder = tmp_path / "results" / "run"
    with monkeypatch.context() as patch:
        without(patch, tmp_path, "niqe", "brisque")
        assert evaluate(command) == 0
        rows, notes = rows_of(folder)
        assert list(rows.values()) == [{"psnr": None, "ssim": None}]  # and no row of the inputs
        assert ["fetch_weights.py --only niqe" in notes[0], "fetch_weights.py --only brisque" in notes[1]] == [True] * 2
    assert evaluate(command) == 0
    rows, notes = rows_of(folder)
    assert notes == ["niqe, brisque: not computed for images of earlier runs; --score-only computes it"]
    assert evaluate([*command, "--score-only"]) == 0
    rows, notes = rows_of(folder)
    assert notes == [] and len(rows) == 2
    assert all(set(row) == {"niqe", "brisque"} and None not in row.values() for row in rows.values())
