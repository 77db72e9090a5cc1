"""Metrics against the published code, calibration data and closed forms."""

import dataclasses
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
import torch
from parity import main as parity
from parity_groups.metrics import cases

from codes.metrics import (
    LPIPS,
    METRICS,
    SET_METRICS,
    InceptionFeatures,
    MissingWeights,
    Scorer,
    WrongWeights,
    fid,
    find_weights,
    kid,
    make_features,
    make_scorer,
    psnr,
    psnr_y,
    set_scores,
    ssim,
    ssim_y,
)
from codes.metrics.perceptual import pytorch_fid_inception
from codes.rows import load
from codes.runtime.torchvision_compat import ensure_torchvision
from codes.runtime.uninitialised import uninitialised

GOLDEN = Path(__file__).parent / "golden"
PIXEL_METRICS = {"psnr": psnr, "ssim": ssim, "psnr_y": psnr_y, "ssim_y": ssim_y}
pixel_metric = pytest.mark.parametrize("metric", PIXEL_METRICS.values(), ids=PIXEL_METRICS)


@pytest.fixture(scope="module")
def calibration():
    with np.load(GOLDEN / "perceptual" / "calibration.npz") as archive:
        return {key: archive[key] for key in archive.files}


def noisy_pair(shape=(40, 52, 3), noise=20, seed=0):
    rng = np.random.default_rng(seed)
    wave = 128 + 90 * np.sin(np.arange(math.prod(shape)).reshape(shape) / 37)
    a = wave.round().astype(np.uint8)
    b = (wave + rng.normal(0, noise, shape)).round().clip(0, 255).astype(np.uint8)
    return a, b


# ---- PSNR and SSIM


@pytest.mark.parametrize("difference", [1, 7, 100])
def test_psnr_of_a_constant_difference(difference):
    a = np.full((9, 13, 3), 90, np.uint8)
    expected = 20 * math.log10(255 / difference)
    assert psnr(a, a + np.uint8(difference)) == pytest.approx(expected, rel=1e-12)
    assert psnr(a + np.uint8(difference), a) == pytest.approx(expected, rel=1e-12)
    # Luma has 219 steps from black to white instead of 255.
    assert psnr_y(a, a + np.uint8(difference)) == pytest.approx(expected + 20 * math.log10(255 / 219), rel=1e-12)


@pytest.mark.parametrize(("p", "q"), [(0, 255), (100, 110), (3, 0)])
def test_ssim_of_flat_images_is_the_luminance_term(p, q):
    c1 = 2.55**2
    a, b = np.full((12, 15, 3), p, np.uint8), np.full((12, 15, 3), q, np.uint8)
    assert ssim(a, b) == pytest.approx((2 * p * q + c1) / (p**2 + q**2 + c1), rel=1e-9)


def test_ssim_against_the_definition():
    """Every window by itself, with weighted means and variances."""
    a, b = noisy_pair((17, 14, 3))
    x = np.arange(-5, 6)
    weights = np.exp(-(x[:, None] ** 2 + x**2) / 4.5)
    weights /= weights.sum()
    values = []
    for c in range(3):
        for i in range(17 - 10):
            for j in range(14 - 10):
                p, q = (image[i : i + 11, j : j + 11, c].astype(float) for image in (a, b))
                mp, mq = (weights * p).sum(), (weights * q).sum()
                vp, vq = (weights * (p - mp) ** 2).sum(), (weights * (q - mq) ** 2).sum()
                cov = (weights * (p - mp) * (q - mq)).sum()
                values.append((2 * mp * mq + 2.55**2) * (2 * cov + 7.65**2))
                values[-1] /= (mp**2 + mq**2 + 2.55**2) * (vp + vq + 7.65**2)
    assert ssim(a, b) == pytest.approx(np.mean(values), rel=1e-10)


@pixel_metric
def test_identical_images(metric):
    a, _ = noisy_pair()
    assert metric(a, a.copy()) == (math.inf if metric in (psnr, psnr_y) else 1.0)


@pixel_metric
def test_symmetry_and_flips(metric):
    a, b = noisy_pair()
    value = metric(a, b)
    assert metric(b, a) == pytest.approx(value, rel=1e-12)
    assert metric(a[::-1, ::-1], b[::-1, ::-1]) == pytest.approx(value, rel=1e-12)
    assert metric(a.swapaxes(0, 1), b.swapaxes(0, 1)) == pytest.approx(value, rel=1e-12)


@pixel_metric
def test_crop_border_is_the_metric_of_the_inside(metric):
    a, b = noisy_pair()
    assert metric(a, b, crop_border=4) == metric(a[4:-4, 4:-4], b[4:-4, 4:-4])
    framed = a.copy()
    framed[:4], framed[-4:], framed[:, :4], framed[:, -4:] = 0, 0, 0, 0
    assert metric(a, framed, crop_border=4) == metric(a, a)


@pixel_metric
def test_grey_counts_as_equal_channels(metric):
    a, b = noisy_pair((30, 31))
    expected = metric(np.dstack([a] * 3), np.dstack([b] * 3))
    assert metric(a, b) == pytest.approx(expected, rel=1e-12)
    assert metric(a[:, :, None], b[:, :, None]) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("a", "b", "crop_border", "message"),
    [
        (np.zeros((20, 20, 3)), np.zeros((20, 20, 3)), 0, r"expected 8-bit images \(uint8\), got float64"),
        (np.zeros((20, 20, 3), np.uint8), np.zeros((20, 21, 3), np.uint8), 0, "differ in shape"),
        (np.zeros((20, 20, 4), np.uint8), np.zeros((20, 20, 4), np.uint8), 0, r"got \(20, 20, 4\)"),
        (np.zeros((20, 20, 3), np.uint8), np.zeros((20, 20, 3), np.uint8), -1, "crop_border must be 0 or more, got -1"),
        (np.zeros((20, 8, 3), np.uint8), np.zeros((20, 8, 3), np.uint8), 4, "20x8 pixels without its border of 4"),
    ],
)
@pixel_metric
def test_bad_images_are_refused(metric, a, b, crop_border, message):
    with pytest.raises(ValueError, match=message):
        metric(a, b, crop_border=crop_border)


@pytest.mark.parametrize(("size", "crop_border"), [((10, 30), 0), ((30, 18), 4)])
@pytest.mark.parametrize("metric", [ssim, ssim_y])
def test_ssim_needs_room_for_its_window(metric, size, crop_border):
    image = np.zeros((*size, 3), np.uint8)
    with pytest.raises(ValueError, match=r"too small: .* needed at least 11x11"):
        metric(image, image, crop_border=crop_border)


# ---- the parity group


def golden_without_networks(folder, change=lambda arrays: None):
    with np.load(GOLDEN / "metrics.npz") as archive:
        arrays = {key: archive[key] for key in archive.files}
    change(arrays)
    np.savez(folder / "metrics.npz", **arrays)
    shutil.copy(GOLDEN / "metrics.manifest.json", folder)


def test_published_values_are_reproduced(tmp_path, capsys):
    golden_without_networks(tmp_path)
    assert parity(["--reference", str(tmp_path), "--only", "metrics"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "parity: 94 cases, 0 failed"
    assert "skipped 1" in out and "small_11x11/ssim_crop4" in out


def test_small_deviations_and_unknown_arrays_fail(tmp_path):
    def change(arrays):
        arrays["gradient_noise10/ssim"] = arrays["gradient_noise10/ssim"] * (1 + 1e-9)
        arrays["gray2d/psnr"] = arrays["gray2d/psnr"] * (1 + 1e-9)
        arrays["gray2d/unheard_of"] = np.zeros(2)

    golden_without_networks(tmp_path, change)
    failed = [case.name for case in cases(tmp_path) if case.failed]
    assert failed == ["gradient_noise10/ssim", "gray2d/psnr", "gray2d/unheard_of (unknown key)"]


def test_calibration_cases_are_compared_or_skipped_with_the_command(monkeypatch, tmp_path):
    shutil.copytree(GOLDEN / "perceptual", tmp_path / "perceptual")
    golden_without_networks(tmp_path)

    def missing():
        return LPIPS(tmp_path)

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("parity_groups.metrics.LPIPS", missing)
    skipped = {case.name: case.skipped for case in cases(tmp_path) if case.skipped}
    assert "python scripts/fetch_weights.py" in skipped["perceptual/pair0/lpips_alex"]


# ---- LPIPS


def test_lpips_calibration(lpips, calibration):
    for k in range(4):
        distance = lpips(calibration[f"pair{k}/a"], calibration[f"pair{k}/b"])
        assert distance == pytest.approx(float(calibration[f"pair{k}/lpips_alex"]), abs=1e-4)


def test_lpips_is_the_packages_bit_for_bit(lpips, calibration):
    ensure_torchvision()
    package = pytest.importorskip("lpips")
    with uninitialised():
        theirs = package.LPIPS(net="alex", pnet_rand=True, verbose=False).eval()  # AlexNet's weights come below
    ours = (part[-2] for part in lpips.slices)
    for layer in theirs.net.modules():
        if isinstance(layer, torch.nn.Conv2d):
            layer.load_state_dict(next(ours).state_dict())
    assert next(ours, None) is None
    for k in range(4):
        a, b = (calibration[f"pair{k}/{name}"] for name in "ab")
        with torch.inference_mode():
            distance = theirs(*(torch.tensor(image).permute(2, 0, 1)[None].float() / 127.5 - 1 for image in (a, b)))
        assert float(lpips(a, b)) == float(distance)


def test_making_a_network_without_weights_draws_no_random_numbers():
    before = torch.get_rng_state()
    with uninitialised():
        torch.nn.MultiheadAttention(8, 2)
        torch.nn.init.trunc_normal_(torch.empty(4))
    assert torch.equal(torch.get_rng_state(), before)


def test_lpips_of_equal_images_is_zero_and_order_does_not_matter(lpips, calibration):
    a, b = calibration["pair1/a"], calibration["pair1/b"]
    assert lpips(a, a) == 0
    assert lpips(a, b) == pytest.approx(float(lpips(b, a)), abs=1e-6)


def test_lpips_of_a_batch_equals_that_of_its_images(lpips):
    pairs = [noisy_pair((40, 48, 3), noise, seed) for seed, noise in enumerate((5, 20, 60))]
    batch = lpips(np.stack([a for a, _ in pairs]), np.stack([b for _, b in pairs]))
    assert batch.tolist() == [float(lpips(a, b)) for a, b in pairs]


def test_perceptual_networks_take_grey_as_equal_channels_and_flipped_views(lpips, inception):
    a, b = noisy_pair((40, 48))
    assert lpips(a, b) == lpips(np.dstack([a] * 3), np.dstack([b] * 3))
    assert np.array_equal(inception(a), inception(np.dstack([a] * 3)[:, :, ::-1]))


def test_lpips_refuses_what_alexnet_cannot_take(lpips):
    ok, small = np.zeros((31, 31, 3), np.uint8), np.zeros((30, 64, 3), np.uint8)
    assert lpips(ok, ok) == 0
    with pytest.raises(ValueError, match="30x64 pixels, LPIPS needs at least 31x31"):
        lpips(small, small)
    with pytest.raises(ValueError, match="differ in shape"):
        lpips(ok, small)
    with pytest.raises(ValueError, match=r"expected 8-bit images \(uint8\), got float32"):
        lpips(ok.astype(np.float32), ok.astype(np.float32))


# ---- Inception features


def test_inception_calibration(inception, calibration):
    features = inception(calibration["fid/images"])
    assert np.abs(features - calibration["fid/features"]).max() < 1e-4
    assert np.array_equal(inception(calibration["fid/images"][1]), features[1])


def test_pytorch_fid_layout_gives_the_same_features(inception, calibration):
    """The state dict in the torch cache has torchvision's names: filled here with the weights of our file."""
    if not isinstance(inception.net, torch.jit.ScriptModule):
        pytest.skip("needs our own file: python scripts/fetch_weights.py with an empty torch cache")
    import torchvision

    ours = inception.net.state_dict()
    with torch.random.fork_rng(devices=[]):
        net = torchvision.models.inception_v3(weights=None, num_classes=1008, aux_logits=False, init_weights=False)
    state = net.state_dict()
    convolutions = [key.removesuffix("weight") for key in ours if key.endswith(".weight")]
    names = [key.removesuffix("conv.weight") for key in state if key.endswith(".conv.weight")]
    for theirs, key in zip(names, convolutions, strict=True):  # both in the order of the graph
        state[f"{theirs}conv.weight"] = ours[f"{key}weight"]
        state[f"{theirs}bn.weight"] = torch.ones_like(ours[f"{key}beta"])  # the graph has no scale there
        state[f"{theirs}bn.bias"] = ours[f"{key}beta"]
        state[f"{theirs}bn.running_mean"] = ours[f"{key}mean"]
        state[f"{theirs}bn.running_var"] = ours[f"{key}var"]
    images = torch.tensor(calibration["fid/images"]).permute(0, 3, 1, 2)
    with torch.inference_mode():
        features = pytorch_fid_inception(state)((images.float() - 128) / 128).numpy()
    assert np.abs(features - calibration["fid/features"]).max() < 1e-4


def test_flat_images_have_the_same_features_at_any_size(inception):
    """Resizing leaves them flat, and the published size needs none."""
    large, small = (inception(np.full((*size, 3), 77, np.uint8)) for size in ((299, 299), (20, 33)))
    assert np.abs(large - small).max() < 1e-4


def test_networks_leave_the_users_random_numbers_alone(lpips, inception):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    LPIPS()
    InceptionFeatures()
    assert torch.equal(torch.rand(2), expected)


# ---- missing and wrong weights


@pytest.mark.parametrize(("network", "name"), [(LPIPS, "lpips"), (InceptionFeatures, "fid")])
def test_missing_weights_name_the_command(network, name, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(MissingWeights) as caught:
        network(tmp_path)
    message = str(caught.value)
    assert str(tmp_path) in message and f"python scripts/fetch_weights.py --only {name}" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("network", "file"),
    [
        (LPIPS, "lpips_alex.safetensors"),
        (InceptionFeatures, "inception_fid.pt"),
        (LPIPS, "hub/checkpoints/alexnet-owt-7be5be79.pth"),
        (InceptionFeatures, "hub/checkpoints/pt_inception-2015-12-05-6726825d.pth"),
    ],
)
def test_files_with_other_contents_are_refused_by_name(network, file, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"not a network")
    with pytest.raises(WrongWeights, match=path.name):
        network(tmp_path)


def test_one_changed_weight_is_refused(lpips, tmp_path):
    path = find_weights("lpips")
    if path.suffix != ".safetensors":
        pytest.skip("needs our own file: python scripts/fetch_weights.py with an empty torch cache")
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    (tmp_path / path.name).write_bytes(data)
    with pytest.raises(WrongWeights, match=r"lpips_alex\.safetensors: sha256 is"):
        LPIPS(tmp_path)


# ---- FID and KID


def samples(mean, root, n, seed):
    """n vectors whose sample mean is `mean` and whose sample covariance is root @ root.T, exactly."""
    x = np.random.default_rng(seed).standard_normal((n, len(mean)))
    x -= x.mean(axis=0)
    x = x @ np.linalg.inv(np.linalg.cholesky(x.T @ x / (n - 1))).T
    return x @ root.T + mean


def test_fid_of_gaussians_with_independent_coordinates():
    mean_a, mean_b = np.array([0.0, 1, -2, 3]), np.array([1.0, 1, 0, 3.5])
    std_a, std_b = np.array([1.0, 0.1, 3, 2]), np.array([2.0, 0.1, 1, 0.5])
    a, b = samples(mean_a, np.diag(std_a), 50, 1), samples(mean_b, np.diag(std_b), 31, 2)
    expected = np.sum((mean_a - mean_b) ** 2) + np.sum((std_a - std_b) ** 2)
    assert fid(a, b) == pytest.approx(expected, rel=1e-10)
    assert fid(b, a) == pytest.approx(expected, rel=1e-10)


def test_fid_of_correlated_gaussians():
    rng = np.random.default_rng(4)
    roots = rng.standard_normal((2, 6, 6))
    a, b = samples(np.zeros(6), roots[0], 40, 1), samples(np.ones(6), roots[1], 60, 2)
    ca, cb = (root @ root.T for root in roots)
    expected = 6 + np.trace(ca + cb) - 2 * np.trace(scipy.linalg.sqrtm(ca @ cb)).real
    assert fid(a, b) == pytest.approx(expected, rel=1e-8)


def test_fid_with_fewer_samples_than_features():
    """Gaussians in a few of many dimensions, turned: the distance is that in the few."""
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((300, 300)))[0][:, :4].T
    std_a, std_b = np.array([1.0, 0.1, 3, 2]), np.array([2.0, 0.0, 1, 0.5])
    a, b = samples(np.zeros(4), np.diag(std_a), 20, 1), samples(np.full(4, 0.5), np.diag(std_b), 12, 2)
    expected = 1 + np.sum((std_a - std_b) ** 2)
    assert fid(a @ turn, b @ turn) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("n", [3, 40, 200])
def test_fid_of_a_set_with_itself_is_zero(n):
    features = np.random.default_rng(n).random((n, 64)).astype(np.float32)
    assert 0 <= fid(features, features) < 1e-10
    assert 0 <= fid(features, features[::-1]) < 1e-10


def test_fid_of_a_shifted_set_is_the_squared_shift():
    features = np.random.default_rng(1).standard_normal((25, 64))
    assert fid(features, features + 0.25) == pytest.approx(64 * 0.25**2, rel=1e-10)


def mmd_by_definition(a, b):
    def kernel(x, y):
        return (x @ y / len(x) + 1) ** 3

    n, m = len(a), len(b)
    within_a = sum(kernel(a[i], a[j]) for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    within_b = sum(kernel(b[i], b[j]) for i in range(m) for j in range(m) if i != j) / (m * (m - 1))
    return within_a + within_b - 2 * sum(kernel(x, y) for x in a for y in b) / (n * m)


def test_kid_against_the_definition():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((7, 5)), rng.standard_normal((9, 5)) + 0.5
    assert kid(a, b) == pytest.approx(mmd_by_definition(a, b), rel=1e-12)
    assert kid(b, a) == pytest.approx(kid(a, b), rel=1e-12)


def test_kid_of_gaussians():
    """In one dimension MMD^2 is 3 (difference of means)^2 + 3 (of second)^2 + (of third moments)^2."""
    rng = np.random.default_rng(0)
    values = [kid(rng.normal(0, 1, (500, 1)), rng.normal(1, 1, (500, 1))) for _ in range(40)]
    expected = 3 * 1**2 + 3 * (2 - 1) ** 2 + (4 - 0) ** 2
    assert abs(np.mean(values) - expected) < 4 * np.std(values) / math.sqrt(len(values))
    assert np.std(values) / math.sqrt(len(values)) < 0.05 * expected


def test_kid_of_equal_distributions_has_no_bias_even_for_small_sets():
    rng = np.random.default_rng(0)
    values = [kid(rng.standard_normal((5, 8)), rng.standard_normal((5, 8))) for _ in range(2000)]
    assert abs(np.mean(values)) < 4 * np.std(values) / math.sqrt(len(values))
    assert min(values) < 0


def test_kid_of_two_halves_is_small_beside_that_of_another_distribution():
    rng = np.random.default_rng(0)
    halves, other = rng.standard_normal((600, 32)), rng.standard_normal((300, 32)) + 0.3
    assert abs(kid(halves[:300], halves[300:])) < 0.02 * kid(halves[:300], other)


def test_kid_of_large_sets_averages_the_same_subsets_every_time():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((400, 16)), rng.standard_normal((300, 16)) + 0.3
    value = kid(a, b, subset_size=100)
    assert kid(a, b, subset_size=100) == value
    assert kid(a, b, subset_size=100, seed=1) != value
    assert value == pytest.approx(kid(a, b), rel=0.05)


@pytest.mark.parametrize("metric", [fid, kid])
@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (np.zeros((1, 4)), np.zeros((3, 4)), "at least 2 images, got 1 and 3"),
        (np.zeros((3, 4)), np.zeros((3, 5)), r"got \(3, 4\) and \(3, 5\)"),
        (np.full((3, 4), np.nan), np.zeros((3, 4)), "not all finite"),
    ],
)
def test_bad_features_are_refused(metric, a, b, message):
    with pytest.raises(ValueError, match=message):
        metric(a, b)


# ---- the rows of metrics, and the scorer


def test_every_row_names_a_function():
    assert all(callable(load(row.function)) for row in METRICS.values())


def test_scorer_gives_none_below_the_smallest_side_and_crops_psnr_and_ssim_only(lpips):
    scorer = Scorer(("psnr", "ssim", "lpips"), 2, {"lpips": lpips})
    for side in (32, 31, 30, 15, 14):
        a, b = noisy_pair((side, 40, 3))
        known = {"psnr", *(("ssim",) if side >= 15 else ()), *(("lpips",) if side >= 31 else ())}
        values = scorer(a, b)
        assert {name for name, value in values.items() if value is not None} == known
        assert values["psnr"] == psnr(a, b, crop_border=2)
        assert "ssim" not in known or values["ssim"] == ssim(a, b, crop_border=2)
        assert "lpips" not in known or values["lpips"] == float(lpips(a, b))
    assert Scorer(("psnr", "lpips"))(*noisy_pair())["lpips"] is None


def test_metrics_without_weights_are_noted(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("codes.metrics.perceptual.find_weights", lambda name, _: find_weights(name, tmp_path))
    scorer, notes = make_scorer(("psnr", "lpips", "fid"), 0, torch.device("cpu"))
    assert scorer.names == ("psnr", "lpips") and scorer.not_loaded == ("lpips",)
    assert len(notes) == 1 and notes[0].startswith("LPIPS is n/a: ")
    features, notes = make_features(torch.device("cpu"))
    assert features is None and notes[0].startswith("FID and KID are n/a: ")


def test_set_scores_are_those_of_the_functions():
    a, b = np.random.default_rng(0).standard_normal((2, 20, 8))
    assert set_scores(SET_METRICS, a, b) == {"fid": fid(a, b), "kid": kid(a, b)}


def test_metrics_know_which_way_is_better(lpips):
    functions = PIXEL_METRICS | {"lpips": lpips}
    a, slightly = noisy_pair(noise=5)
    _, badly = noisy_pair(noise=60)
    for name, metric in METRICS.items():
        assert metric.name == name
        if metric.per == "image" and metric.needs_clean:  # the others: test_natural.py
            assert (functions[name](a, badly) < functions[name](a, slightly)) != metric.lower_is_better, name
    rng = np.random.default_rng(0)
    features = rng.standard_normal((50, 8))
    for name, distance in (("fid", fid), ("kid", kid)):
        assert METRICS[name].lower_is_better and METRICS[name].per == "set"
        assert distance(features, features + 1) > distance(features, features + 0.1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        METRICS["psnr"].digits = 3
