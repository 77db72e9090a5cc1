"""Jobs of the web page without a server: restorations, comparisons, cancelling, failures, examples, old files."""

import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from codes.app import jobs, render, service
from codes.app.examples import make_examples
from codes.data.images import decode_picture, encode_image, to_uint8
from codes.metrics import Scorer
from codes.names import TASKS
from codes.restoration.loading import load_restorer
from codes.solvers import PlannedSolver, Solver, make_plan

from .app_server import photo, png

SCORER = Scorer(("psnr",))


def test_examples_cover_each_task_and_are_reproducible(tmp_path):
    first, second = (make_examples(tmp_path / name) for name in "ab")
    assert [example.task for example in first] == list(TASKS)
    for one, other in zip(first, second):
        assert one.degraded.read_bytes() == other.degraded.read_bytes() != one.clean.read_bytes()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (("mrsampler-pc", 10**9), "from 1 to 100"),
        (("mrsampler-pc", 0), "from 1 to 100"),
        (("mrsampler-pc", 2.5), "whole number"),
        (("mrsampler-pc", float("nan")), "whole number"),
        (("mrsampler-pc", float("inf")), "whole number"),
        (("mrsampler-pc", True), "whole number"),
        (("mrsampler-pc", "8"), "whole number"),
        (("mrsampler-pc", {"path": "/etc/passwd"}), "whole number"),
        (("mrsampler-pc", 8, -1), "seed: expected from 0"),
        (("mrsampler-pc", 8, None), "seed: expected a whole number"),
        (("mrsampler-pc", 8, 0, 10000), "samples: expected from 1 to 16"),
        (("../../secret", 8), "unknown solver"),
        (([], 8), "unknown solver"),
    ],
)
def test_settings_from_the_browser_are_validated(values, expected):
    with pytest.raises(jobs.WorkError, match=expected):
        jobs.Choice(*values)


@pytest.fixture(scope="module")
def restorer(weights):
    return load_restorer(weights, device="cpu")


@pytest.fixture
def made(restorer, tmp_path):
    with ThreadPoolExecutor(1) as worker:
        yield service.Service(restorer, SCORER, tmp_path, worker)


def stored(made, name="photo.png", **size):
    return {"path": str(made.keep(name, png(**size)))}


def test_restoration_equals_the_python_api_and_reports_every_step(made, restorer):
    reference = stored(made, seed=1)
    views = list(made.restoring(stored(made), reference, "mrsampler", 3, 5, 2, "me"))
    expected = restorer.sample(decode_picture(png(), "").rgb, 2, nfe=3, seed=5, algorithm="mrsampler")
    *running, last = views
    assert [re.search(r"<span>(.*?)</span>", view.status).group(1) for view in running[1:]] == [
        f"sample {sample} of 2, step {step} of 3" for sample in (1, 2) for step in (1, 2, 3)
    ]
    read = {
        name: to_uint8(decode_picture(getattr(last, name).read_bytes(), "").rgb) for name in ("mean", "uncertainty")
    }
    assert np.array_equal(to_uint8(decode_picture(last.pair[1].read_bytes(), "").rgb), to_uint8(expected.sample))
    assert np.array_equal(to_uint8(decode_picture(last.pair[0].read_bytes(), "").rgb), photo())
    assert np.array_equal(read["mean"], to_uint8(expected.mean))
    assert np.array_equal(read["uncertainty"], render.uncertainty(expected.std.numpy())[0])
    compared = {"degraded": photo(), "restored": to_uint8(expected.sample), "mean of 2": read["mean"]}
    for name, image in compared.items():
        value = SCORER(image, photo(seed=1))["psnr"]
        assert re.search(rf"<th>{name}</th><td[^>]*>{value:.2f}</td>", last.summary)
    assert last.strip.count("<img") == 4  # the degraded image, and three steps of the first sample


def test_downloads_keep_transparency_and_name(made):
    alpha = np.tile(np.arange(64, dtype=np.uint8), (48, 1))
    image = {"path": str(made.keep("my photo.png", encode_image(photo(), ".png", alpha)))}
    *_, last = made.restoring(image, None, "posterior", 1, 0, 1, "me")
    assert last.pair[1].name == "my photo-restored.png"
    assert np.array_equal(decode_picture(last.pair[1].read_bytes(), "").alpha, alpha)


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
    *running, last = made.comparing(stored(made), stored(made, seed=1), ["posterior", "mrsampler"], [2, 1], 3, "me")
    assert last.grid.count("<td><img") == 3 and 'class="best"' in last.grid
    assert "order 2 needs num_sample_steps of at least 2" in last.grid  # if one solver fails, the others still run
    assert last.grid.index("mrsampler") < last.grid.index("posterior")  # in the order of CHOICES
    assert sum(view.grid is not None for view in running) == 5  # the empty grid, then one after each cell
    picture = decode_picture(png(), "")
    done = jobs.compare(restorer, picture, None, ["heun", "ode"], [1, 2], 3, SCORER, lambda state: None)
    expected = restorer(picture.rgb, nfe=2, seed=3, algorithm="ode")
    assert np.array_equal(done.cells["ode", 2].image, to_uint8(expected))
    alone = restorer(picture.rgb, nfe=2, seed=3, algorithm=jobs.chosen_solver(restorer, jobs.Choice(jobs.ODE, 2)))
    assert not torch.equal(alone, restorer(picture.rgb, nfe=2, seed=3, algorithm="mrsampler"))


@pytest.mark.parametrize(
    ("solvers", "nfes", "expected"),
    [([], [2], "choose at least"), (["ode"], [], "choose at least"), (list(jobs.CHOICES), [1, 2, 4, 6], "too many")],
)
def test_comparisons_of_nothing_or_too_much_are_refused(made, solvers, nfes, expected):
    (view,) = made.comparing(stored(made), None, solvers, nfes, 0, "me")
    assert expected in view.status and not view.running


def test_wrong_reference_size_and_missing_image_are_reported(made):
    (view,) = made.restoring(stored(made), stored(made, width=65), "ode", 1, 0, 1, "me")
    assert "reference has 65x48 pixels, the image 64x48" in view.status
    (view,) = made.restoring(None, None, "ode", 1, 0, 1, "me")
    assert "Choose an image first" in view.status


def test_cancelling_stops_sampling_at_the_next_step_and_frees_the_worker(made):
    views = made.restoring(stored(made), None, "posterior", 100, 0, 16, "me")
    for _ in range(3):
        assert next(views).running
    assert made.jobs.stop("somebody else") == 0
    assert made.jobs.stop("me") == 1
    assert made.jobs.was_stopped("me") and not made.jobs.was_stopped("me")
    *_, last = views
    assert service.CANCELLED in last.status and not last.running
    # There is one worker thread, so this can only run once the cancelled job, of 1600 steps, has ended.
    *_, last = made.restoring(stored(made), None, "posterior", 1, 0, 1, "me")
    assert last.finished and made.jobs.stop() == 0


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
        patch.setattr(service, "restore", fail)
        *_, last = made.restoring(stored(made), None, "ode", 1, 0, 1, "me")
    assert service.FAILED in last.status.replace("&#x27;", "'") and "secret" not in last.status
    *_, last = made.restoring(stored(made), None, "ode", 1, 0, 1, "me")
    assert last.finished


def test_old_files_are_removed_and_examples_stay(made, tmp_path, monkeypatch):
    examples = make_examples(tmp_path / "examples")
    made = replace(made, examples=examples)
    old, new = made.keep("old.png", b"1"), made.keep("new.png", b"22")
    for path in (old, examples[0].degraded):
        os.utime(path, (0, 0))
    made.sweep()
    assert not old.exists() and new.exists() and examples[0].degraded.exists()
    monkeypatch.setattr(service, "MAX_KEPT", 1)
    made.sweep()
    assert not new.exists() and examples[0].clean.exists()


def test_text_from_the_browser_is_escaped():
    assert "<script>" not in render.message("<script>alert(1)</script>")
    assert "<b>" not in render.progress(1, 2, "<b>") and "<b>" not in render.strip([("<b>", photo())])
