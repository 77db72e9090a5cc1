"""Jobs of the web page without a server: restorations, comparisons, cancelling, failures, examples, old files."""

import io
import os
import re
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
import torch
from PIL import Image

from codes.app import choice, jobs, render, service
from codes.app.examples import make_examples
from codes.app.uploads import Limits
from codes.data.images import decode_picture, encode_image, read_image, suffix_of, to_uint8
from codes.metrics import Scorer
from codes.names import TASKS
from codes.networks.recommended import CarefulRule
from codes.restoration.loading import load_restorer
from codes.restoration.restorer import Restorer
from codes.solvers import PlannedSolver, Solver, make_plan

from .app_server import in_gallery, photo, png, settings

SCORER = Scorer(("psnr",))


def test_examples_cover_each_task_and_are_reproducible(tmp_path):
    first, second = (make_examples(tmp_path / name) for name in "ab")
    assert [example.task for example in first] == list(TASKS)
    for one, other in zip(first, second):
        assert one.degraded.read_bytes() == other.degraded.read_bytes() != one.clean.read_bytes()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"nfe": 10**9}, "from 1 to 100"),
        ({"nfe": 0}, "from 1 to 100"),
        ({"nfe": 2.5}, "whole number"),
        ({"nfe": float("nan")}, "whole number"),
        ({"nfe": float("inf")}, "whole number"),
        ({"nfe": True}, "whole number"),
        ({"nfe": "8"}, "whole number"),
        ({"nfe": {"path": "/etc/passwd"}}, "whole number"),
        ({"seed": -1}, "seed: expected from 0"),
        ({"seed": None}, "seed: expected a whole number"),
        ({"seed": 10**400}, "seed: expected from 0"),
        ({"samples": 10000}, "samples: expected from 1 to 16"),
        ({"solver": "../../secret"}, "unknown solver"),
        ({"solver": []}, "unknown solver"),
        ({"automatic": False, "strength": 1.5}, "strength: expected a number from 0 to 1"),
        ({"automatic": False, "strength": float("nan")}, "strength: expected a number from 0 to 1"),
        ({"automatic": False, "strength": True}, "strength: expected a number from 0 to 1"),
        ({"order": 4}, "order: 4 is not possible: order must be from 1 to 3"),
        ({"order": [1]}, "order: expected a single value"),
        ({"tau": float("nan")}, "tau must lie in"),
        ({"tau": 10**400}, "tau: .* is not possible"),
        ({"tau": "much"}, "tau: 'much' is not possible"),
        ({"grid": "secret"}, "grid: 'secret' is not possible"),
        ({"clamp": "maybe"}, "clamp: 'maybe' is not possible"),
        ({"compat": "mine"}, "compat: 'mine' is not possible"),
    ],
)
def test_settings_from_the_browser_are_validated(values, expected):
    with pytest.raises(choice.WorkError, match=expected):
        choice.Choice.of(settings(**values))


def test_page_options_change_the_solver_and_the_label_says_how(restorer):
    def chosen(**values):
        return choice.chosen_solver(restorer, choice.Choice.of(settings(**values)))

    assert chosen(solver="mrsampler", nfe=8) == Solver("mrsampler", 8, order=1, clamp=True)
    assert choice.solver_label(restorer, "mrsampler") == "mrsampler: MR Sampler, order 1, clipped"
    assert choice.solver_label(restorer, choice.ODE) == "mrsampler (ODE): MR Sampler, order 1, ODE, clipped"
    assert choice.solver_label(restorer, "mrsampler-pc") == "mrsampler-pc: predictor-corrector"
    changed = chosen(solver="mrsampler", nfe=8, order=2, tau="0.5", grid="sinh", clamp="off")
    assert changed == Solver("mrsampler", 8, order=2, tau=0.5, time_schedule="sinh", clamp=False)
    assert choice.solver_words(changed) == ["order 2", "tau 0.5", "grid sinh"]
    published = chosen(solver="mrsampler", nfe=8, compat="official")
    assert published == Solver("mrsampler", 8, order=1, compat="official")  # which knows no clamp
    make_plan(restorer.sde, published)
    assert choice.solver_words(chosen(solver="posterior", compat="official")) == ["published stride"]
    assert choice.unused(choice.Choice.of(settings(solver="posterior", order=2))) == "posterior has no use for: order."


@pytest.fixture(scope="module")
def restorer(weights):
    return load_restorer(weights, device="cpu")


@pytest.fixture
def made(restorer, tmp_path):
    with ThreadPoolExecutor(1) as worker:
        yield service.Service(restorer=restorer, scorer=SCORER, folder=tmp_path, worker=worker)


def stored(made, name="photo.png", **size):
    return {"path": str(made.keep(name, png(**size)))}


def restoring(made, *images, reference=None, **changes):
    return made.restoring(in_gallery(*images), reference, settings(**changes), "me")


def address(path):
    return Path(unquote(path.removeprefix("/gradio_api/file=")))


def shown_files(results, kind):
    """The files of the images of a kind in a page's results."""
    return [address(found) for found in re.findall(rf'class="{kind}"><img src="([^"]*)"', results)]


def pixels(path):
    return to_uint8(read_image(path))


def test_restoration_equals_the_python_api_and_reports_every_step(made, restorer):
    reference = stored(made, seed=1)
    views = list(restoring(made, stored(made), reference=reference, solver="mrsampler", nfe=3, seed=5, samples=2))
    expected = restorer.sample(decode_picture(png(), "").rgb, 2, nfe=3, seed=5, algorithm="mrsampler")
    *running, saving, last = views
    texts = [re.search(r"<span>(.*?)</span>", view.status).group(1) for view in running]
    assert [re.sub(", about.*", "", text) for text in texts] == ["reading", "starting"] + [
        f"sample {sample} of 2, step {step} of 3" for sample in (1, 2) for step in (1, 2, 3)
    ]
    assert saving.running and not last.running and not last.error
    (file,) = last.files
    assert np.array_equal(pixels(file), to_uint8(expected.sample))
    (before,), (after,) = shown_files(last.results, "half before"), shown_files(last.results, "half after")
    assert np.array_equal(pixels(before), photo()) and after == file
    (mean,), (heat,) = shown_files(last.results, "mean"), shown_files(last.results, "heat")
    assert np.array_equal(pixels(mean), to_uint8(expected.mean))
    assert np.array_equal(pixels(heat), render.uncertainty(expected.std.numpy())[0])
    compared = {"input": photo(), "restored": to_uint8(expected.sample), "mean of 2": pixels(mean)}
    for name, image in compared.items():
        value = SCORER(image, photo(seed=1))["psnr"]
        assert re.search(rf"<th>{name}</th><td[^>]*>{value:.2f}</td>", last.results)
    # The degraded image, and three steps of the first sample.
    assert last.results.partition('class="strip"')[2].count("<img") == 4
    assert last.report["solver"] == "mrsampler, order 1, clipped" and last.report["nfe"] == 3


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".jpeg", ".webp", ".tif", ".bmp", ".ppm"])
def test_downloads_have_the_format_and_the_name_of_the_photo(made, suffix):
    image = {"path": str(made.keep(f"my photo{suffix}", encode_image(photo(), suffix)))}
    *_, last = restoring(made, image, solver="posterior", nfe=1)
    (file,) = last.files
    assert file.name == f"my photo{suffix}" and suffix_of(file.read_bytes()) == suffix.replace("jpeg", "jpg")
    assert f'download="my photo{suffix}"' in last.results
    (after,) = shown_files(last.results, "half after")
    assert after.suffix in (".png", ".jpg", ".jpeg", ".webp", ".bmp")
    assert np.array_equal(pixels(after), pixels(file))


def test_downloads_keep_transparency_and_metadata(made):
    alpha = np.tile(np.arange(64, dtype=np.uint8), (48, 1))
    image = {"path": str(made.keep("photo.png", encode_image(photo(), ".png", alpha)))}
    *_, last = restoring(made, image, nfe=1)
    assert np.array_equal(decode_picture(last.files[0].read_bytes(), "").alpha, alpha)
    exif = Image.Exif()
    exif[0x010F] = "Maker"
    buffer = io.BytesIO()
    Image.fromarray(photo()).save(buffer, "JPEG", exif=exif)
    *_, last = restoring(made, {"path": str(made.keep("photo.jpg", buffer.getvalue()))}, nfe=1)
    assert Image.open(last.files[0]).getexif()[0x010F] == "Maker"


def test_grey_photos_stay_grey_and_16_bits_stay_16_bits(made):
    import cv2

    pixels = photo()[..., 0].astype(np.uint16) * 257
    image = {"path": str(made.keep("scan.png", cv2.imencode(".png", pixels)[1].tobytes()))}
    *_, last = restoring(made, image, nfe=1)
    found = cv2.imread(str(last.files[0]), cv2.IMREAD_UNCHANGED)
    assert found.dtype == np.uint16 and found.shape == (48, 64)


def test_progress_is_told_within_an_evaluation_of_a_photo_in_tiles(made, restorer):
    made = replace(made, restorer=replace(restorer, tile=64))
    views = list(restoring(made, stored(made, height=150, width=150), nfe=1))
    shares = [float(share) for view in views for share in re.findall(r"width:([\d.]+)%", view.status)]
    assert len([share for share in shares if 0 < share < 100]) >= 3 and shares == sorted(shares)


def test_strength_0_is_the_photo_and_1_the_whole_restoration(made, restorer):
    image, found = stored(made), {}
    for strength in (0, 0.5, 1):
        *_, last = restoring(made, image, automatic=False, strength=strength, solver="posterior")
        found[strength] = pixels(last.files[0]).astype(int)
        assert f"strength {strength:.2f}" in last.results
    assert np.array_equal(found[0], photo())
    assert np.array_equal(found[1], to_uint8(restorer(photo(), nfe=2, algorithm="posterior", strength=1)))
    assert np.abs(found[0] + found[1] - 2 * found[0.5]).max() <= 2


@pytest.mark.parametrize(("bias", "strength"), [(9.0, "1.00"), (-9.0, "0.00")])
def test_what_the_rule_decided_is_told_at_any_strength(made, restorer, bias, strength):
    *_, last = restoring(made, stored(made))
    assert "strength" not in last.results  # no rule, and no choice
    made = replace(made, restorer=replace(restorer, careful=CarefulRule(bias=bias, change=1.0)))
    *_, last = restoring(made, stored(made))
    assert f"strength {strength} (automatic)" in last.results


def test_recognised_degradations_are_shown(made, monkeypatch):
    shares = {"rainy": 0.9, "noisy": 0.06, "hazy": 0.04}
    monkeypatch.setattr(Restorer, "recognise", lambda self, image: shares)
    monkeypatch.setattr(Restorer, "recognises", True)
    *_, last = restoring(made, stored(made), nfe=1)
    shown = re.findall(r"<span>([a-z]+)</span><meter value=\"([\d.]+)\"></meter>(\d+) %", last.results)
    assert shown == [("rainy", "0.900", "90"), ("noisy", "0.060", "6")]
    assert last.report["recognised"] == shares


def test_large_photos_are_shrunk_with_a_note_or_restored_in_full(made, restorer):
    made = replace(made, limits=Limits(at_once=24 * 32))
    *_, last = restoring(made, stored(made), nfe=1)
    assert "Shrunk from 64x48 to 32x24 pixels" in last.results and last.report["size"] == [32, 24]
    assert pixels(last.files[0]).shape == (24, 32, 3)
    *_, last = restoring(made, stored(made), nfe=1, full=True)
    assert "Shrunk" not in last.results
    assert np.array_equal(pixels(last.files[0]), to_uint8(restorer(photo(), nfe=1, algorithm="mrsampler-pc")))


def test_photos_in_full_that_do_not_fit_into_memory_are_refused_before_decoding(made, monkeypatch):
    monkeypatch.setattr(service, "available_memory", lambda: 100_000.0)
    *_, last = restoring(made, stored(made, name="large.png"), nfe=1, full=True)
    assert "large.png: " in last.error and "restore it shrunk" in last.error


def test_several_photos_are_restored_one_after_the_other_and_zipped(made, restorer):
    images = [stored(made, seed=1), stored(made, seed=2), stored(made, name="other.png", seed=3)]
    images.insert(1, {"path": str(made.keep("bad.png", png()[:150]))})
    views = list(restoring(made, *images, solver="posterior"))
    states = [re.findall(r"<small>(.*?)</small>", view.results or "") for view in views]
    assert states[0] == ["in work", "waiting", "waiting", "waiting"]
    assert ["done", "failed: bad.png: ", "in work", "waiting"] in [
        [re.sub("(: bad.png: ).*", r"\1", state) for state in found] for found in states
    ]
    assert "photo 1 of 4" in views[1].status and "Done: 3 of 4 photos." in views[-1].status
    (archive,) = re.findall(r'<a class="download zip" href="([^"]*)"', views[-1].results)
    with zipfile.ZipFile(address(archive)) as found:
        assert found.namelist() == ["photo.png", "photo (2).png", "other.png"]
        for seed, name in enumerate(found.namelist(), 1):
            expected = to_uint8(restorer(photo(seed=seed), nfe=2, algorithm="posterior"))
            assert np.array_equal(to_uint8(decode_picture(found.read(name), "").rgb), expected)
    assert [address(path) for path in re.findall(r'class="download file" href="([^"]*)"', views[-1].results)] == [
        *views[-1].files
    ]


def test_more_photos_than_allowed_are_refused(made):
    (view,) = restoring(made, *[stored(made)] * 21)
    assert "21 photos are too many at once; choose at most 20" in view.status


def test_an_upload_gets_a_preview_that_stands_for_it(made):
    content = encode_image(photo(height=1200, width=1600), ".tif")
    uploaded = made.keep("scan.tif", content)
    path, name, problem = made.uploaded({"path": str(uploaded)})
    assert (name, problem) == ("scan.tif", "") and path.suffix == ".jpg"
    assert pixels(path).shape == (866, 1154, 3)
    assert made.path({"path": str(path)}).read_bytes() == content
    assert made.uploaded({"path": str(path)})[0] == path  # sent again with the next upload


def test_uncertainty_is_bright_where_samples_differ():
    std = np.full((3, 64, 64), 0.01, np.float32)
    std[:, 16:32, 16:32] = 0.1
    colours, brightest = render.uncertainty(std)
    assert brightest == pytest.approx(25.5, rel=1e-3)
    assert colours[20, 20].sum() > colours[0, 0].sum()


def test_comparison_has_a_cell_for_each_solver_and_number(made, restorer):
    solver = Solver("mrsampler", 8, order=2)
    planned = PlannedSolver("mrsampler", solver, make_plan(restorer.sde, solver))
    made = replace(made, restorer=replace(restorer, solvers=(planned,)))
    images = in_gallery(stored(made))
    *running, last = made.comparing(images, stored(made, seed=1), ["posterior", "mrsampler"], [2, 1], 3, "me")
    assert last.results.count("<td><img") == 3 and 'class="best"' in last.results
    assert "order 2 needs num_sample_steps of at least 2" in last.results  # if one solver fails, the others still run
    assert last.results.index("mrsampler") < last.results.index("posterior")  # in the order of CHOICES
    assert sum(view.results is not None for view in running) == 5  # the empty grid, then one after each cell
    assert last.files[0].name == "comparison.png"
    picture = decode_picture(png(), "")
    choices = choice.check_comparison(["heun", "ode"], [1, 2], 3)
    done = jobs.compare(restorer, picture, None, choices, SCORER, lambda state: None)
    expected = restorer(picture.rgb, nfe=2, seed=3, algorithm="ode", strength=1)
    assert np.array_equal(done.cells["ode", 2].image, to_uint8(expected))
    ode = choice.chosen_solver(restorer, choice.Choice(solver=choice.ODE, nfe=2))
    alone = restorer(picture.rgb, nfe=2, seed=3, algorithm=ode)
    assert not torch.equal(alone, restorer(picture.rgb, nfe=2, seed=3, algorithm="mrsampler"))


@pytest.mark.parametrize(
    ("solvers", "nfes", "expected"),
    [
        ([], [2], "choose at least"),
        (["ode"], [], "choose at least"),
        ("ode", [2], "choose at least"),
        (list(choice.CHOICES), [1, 2, 4, 6], "too many"),
        (["secret"], [2], "unknown solver"),
    ],
)
def test_comparisons_of_nothing_or_too_much_are_refused(made, solvers, nfes, expected):
    (view,) = made.comparing(in_gallery(stored(made)), None, solvers, nfes, 0, "me")
    assert expected in view.status and not view.running


def test_wrong_reference_size_and_missing_image_are_reported(made):
    *_, view = restoring(made, stored(made), reference=stored(made, width=65), nfe=1)
    assert "reference has 65x48 pixels, the image 64x48" in view.status
    (view,) = restoring(made)
    assert "Choose a photo first" in view.status


def test_cancelling_stops_sampling_at_the_next_step_and_frees_the_worker(made):
    views = restoring(made, stored(made), solver="posterior", nfe=100, samples=16)
    for _ in range(3):
        assert next(views).running
    made.jobs.stop("somebody else")
    assert next(views).running
    made.jobs.stop("me")
    *_, last = views
    assert service.CANCELLED in last.status and not last.running and made.jobs.stopped("me")
    made.jobs.forget("me")
    assert not made.jobs.stopped("me")
    # There is one worker thread, so this can only run once the cancelled job, of 1600 steps, has ended.
    *_, last = restoring(made, stored(made), solver="posterior", nfe=1)
    assert last.files


def test_photos_done_before_a_cancellation_stay(made):
    found = []
    for view in restoring(made, stored(made), stored(made, seed=1), solver="posterior", nfe=50):
        found.append(view)
        if view.files:
            made.jobs.stop("me")
    with_files = [view for view in found if view.files]
    assert len(with_files) == 1 and with_files[0].files[0].is_file()
    assert found[-1].results is None and service.CANCELLED in found[-1].status  # what is shown stays


def test_closing_the_page_stops_its_job(made):
    steps = []
    started, proceed = threading.Event(), threading.Event()

    def long(report):
        for i in range(1000):
            steps.append(i)
            report(i)
            started.set()
            proceed.wait(60)
        return -1

    views = jobs.stepwise(made.worker, long, threading.Event())
    assert next(views) == 0
    started.wait(60)
    views.close()
    proceed.set()
    made.worker.submit(int).result(60)  # the only thread is free again
    assert steps == [0, 1]


def test_failures_are_reported_and_the_next_job_runs(made, monkeypatch):
    def fail(*args):
        raise RuntimeError("secret of the server")

    with monkeypatch.context() as patch:
        patch.setattr(jobs, "restore", fail)
        *_, last = restoring(made, stored(made), nfe=1)
    assert service.FAILED in last.status.replace("&#x27;", "'") and "secret" not in last.status
    *_, last = restoring(made, stored(made), nfe=1)
    assert last.files


def test_old_and_unfinished_files_are_removed_and_examples_stay(made, tmp_path, monkeypatch):
    examples = make_examples(tmp_path / "examples")
    made = replace(made, examples=examples)
    old, new = made.keep("old.png", b"1"), made.keep("new.png", b"22")
    begun, broken = tmp_path / "tmpbegun", tmp_path / "tmpbroken"  # as uploads arrive
    for path in (begun, broken):
        path.write_bytes(b"part")
    for path in (old, examples[0].degraded):
        os.utime(path, (0, 0))
    os.utime(broken, (time.time() - service.UNFINISHED - 1,) * 2)
    made.sweep()
    assert not old.exists() and not broken.exists()
    assert new.exists() and begun.exists() and examples[0].degraded.exists()
    os.utime(old.parent, (0, 0))
    made.sweep()
    assert not old.parent.exists() and new.parent.exists()
    monkeypatch.setattr(service, "MAX_KEPT", 1)
    made.sweep()
    assert not new.exists() and examples[0].clean.exists()


def test_text_from_the_browser_is_escaped(made):
    assert "<script>" not in render.message("<script>alert(1)</script>")
    assert "<b>" not in render.progress(1, 2, "<b>") and "<b>" not in render.strip([("<b>", photo())])
    name = "<b onclick=alert(1)>\"'.png"
    *_, last = restoring(made, stored(made, name=name), stored(made), nfe=1)
    assert "<b onclick" not in last.results and "&lt;b onclick" in last.results
    assert "\"'" not in last.results
