"""Test runs: their results are right, and they can be stopped, resumed and divided among processes."""

import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from codes.commands.test import main as evaluate
from codes.data.images import read_picture, save_image, to_uint8
from codes.data.pairs import image_seed
from codes.evaluation.records import read_records
from codes.metrics import find_weights, psnr
from codes.runtime.signals import stop_on_signal
from codes.solvers import sample

from .evaluation import images_of, timeless, write_images, write_options, write_weights

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Weights, images, and a test run without interruption."""
    folder = tmp_path_factory.mktemp("world")
    write_weights(folder / "tiny.safetensors")
    write_images(folder / "data")
    assert evaluate(["-opt", str(write_options(folder, "reference"))]) == 0
    return folder


def reference(world: Path) -> Path:
    return world / "results" / "reference"


def same_as_reference(folder: Path, world: Path) -> None:
    assert images_of(folder) == images_of(reference(world))
    for kind, text in timeless(folder).items():
        assert text == timeless(reference(world))[kind]


def test_results_folder_is_complete(world):
    folder = reference(world)
    records = read_records(folder)
    assert len(records) == 2 * 4 * 5  # tasks, solvers, images
    assert len(images_of(folder)) == len(records)
    for record in records.values():
        assert record.nfe == int(record.solver[-1])
        assert record.seed == image_seed(0, record.task, record.name)
        assert record.tile is None and record.seconds > 0
        saved = to_uint8(read_picture(folder / record.task / record.solver / f"{record.name}.png").rgb)
        clean = to_uint8(read_picture(world / "data" / record.task / "GT" / f"{record.name}.png").rgb)
        gap = np.mean((saved.astype(float) - clean) ** 2)
        assert record.metrics["psnr"] == pytest.approx(10 * np.log10(255**2 / gap), abs=1e-9)
    (start,) = json.loads((folder / "environment.json").read_text())
    assert start["packages"]["torch"] == torch.__version__ and start["processes"] == 1
    assert "num_sample_steps" in (folder / "options.yml").read_text()
    summary = json.loads((folder / "summary.json").read_text())
    row = next(row for row in summary["rows"] if (row["task"], row["solver"]) == ("rainy", "posterior-nfe2"))
    expected = np.mean(
        [r.metrics["psnr"] for r in records.values() if (r.task, r.solver) == ("rainy", "posterior-nfe2")]
    )
    assert row["metrics"]["psnr"] == pytest.approx(expected, abs=1e-12) and row["images"] == 5
    lq, gt = (to_uint8(read_picture(world / f"data/hazy/{kind}/000.png").rgb) for kind in ("LQ", "GT"))
    first = json.loads((folder / "inputs.jsonl").read_text().splitlines()[1])
    assert (first["task"], first["name"], first["metrics"]["psnr"]) == ("hazy", "000", psnr(lq, gt))
    by_solver = {row["solver"]: row["metrics"]["psnr"] for row in summary["means"]}
    assert next(iter(by_solver)) == "(input)" and len(by_solver) == 5
    for solver, mean in by_solver.items():
        of_tasks = [row["metrics"]["psnr"] for row in summary["rows"] if row["solver"] == solver]
        assert len(of_tasks) == 2 and mean == pytest.approx(np.mean(of_tasks), abs=1e-12)
    for task in ("rainy", "hazy"):
        assert cv2.imread(str(folder / f"{task}.png")).shape[1] > 6 * 200  # LQ, four solvers, GT


def test_saved_images_equal_the_samplers_output(world):
    """The saved image is the output of `sample`, clipped and rounded, and nothing else."""
    from codes.networks.checkpoints import load_network
    from codes.networks.predictor import predictor
    from codes.sde import MeanRevertingSDE
    from codes.solvers import Solver

    network, _ = load_network(world / "tiny.safetensors")
    lq = read_picture(world / "data/rainy/LQ/002.png").rgb[None]
    generator = torch.Generator().manual_seed(image_seed(0, "rainy", "002"))
    solver = Solver("mrsampler-pc", 5, fit_target="velocity")
    out = sample(predictor(network), MeanRevertingSDE(), lq, solver, generator=[generator]).sample
    saved = reference(world) / "rainy" / "mrsampler-pc-nfe5" / "002.png"
    assert np.array_equal(to_uint8(out[0]), to_uint8(read_picture(saved).rgb))


@pytest.mark.parametrize("batch_size", [3, 4])
def test_batch_size_changes_nothing(world, copy, batch_size):
    assert evaluate(["-opt", str(write_options(copy, "reference", batch_size=batch_size))]) == 0
    same_as_reference(copy / "results" / "reference", world)


def test_a_restarted_run_computes_nothing_twice(world, copy, monkeypatch):
    options = str(write_options(copy, "reference"))
    assert evaluate(["-opt", options]) == 0
    before = images_of(copy / "results" / "reference")
    monkeypatch.setattr("codes.restoration.restorer.sample", lambda *a, **k: pytest.fail("computed again"))
    assert evaluate(["-opt", options]) == 0
    assert images_of(copy / "results" / "reference") == before


def test_half_written_records_do_not_count(world, copy):
    options = str(write_options(copy, "reference"))
    assert evaluate(["-opt", options]) == 0
    records = copy / "results" / "reference" / "records.0.jsonl"
    lines = records.read_bytes().splitlines(keepends=True)
    records.write_bytes(b"".join(lines[:7]) + lines[7][: len(lines[7]) // 2])
    assert len(read_records(records.parent)) == 7
    assert evaluate(["-opt", options]) == 0
    assert len(read_records(records.parent)) == 40
    same_as_reference(records.parent, world)


def test_an_image_that_was_deleted_is_restored_again(world, copy):
    options = str(write_options(copy, "reference"))
    assert evaluate(["-opt", options]) == 0
    folder = copy / "results" / "reference"
    (folder / "rainy" / "posterior-nfe2" / "001.png").unlink()
    assert evaluate(["-opt", options]) == 0
    same_as_reference(folder, world)


def run_in_child(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    os._exit(evaluate(arguments))


@pytest.fixture(scope="module")
def children():
    """Start test runs in their own processes quickly: torch is imported only once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["codes.evaluation.run", "tests.test_evaluate"])
    return context


@pytest.mark.slow
def test_a_run_killed_ten_times_still_completes(world, copy, children):
    options = write_options(copy, "reference")
    folder = copy / "results" / "reference"
    for moment in range(10):
        child = children.Process(target=run_in_child, args=(["-opt", str(options)],))
        child.start()
        deadline = time.monotonic() + 60
        while child.is_alive() and time.monotonic() < deadline:
            # A little further each time, and not always right after a record.
            if len(read_records(folder)) >= 4 * moment:
                time.sleep(0.013 * (moment % 4))
                break
            time.sleep(0.002)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        done = read_records(folder)
        for key in done:  # every recorded image is complete
            assert read_picture(folder / key[0] / key[1] / f"{key[2]}.png").rgb.shape[0] == 3
    assert evaluate(["-opt", str(options)]) == 0
    same_as_reference(folder, world)


@pytest.mark.slow
def test_ctrl_c_finishes_the_batch_and_prints_the_table(world, copy, children, capfd):
    options = write_options(copy, "reference", sampler={"num_sample_steps": [2, 5, 60]})
    folder = copy / "results" / "reference"
    child = children.Process(target=run_in_child, args=(["-opt", str(options)],))
    child.start()
    while len(read_records(folder)) < 3 and child.is_alive():
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGINT)
    child.join(60)
    assert child.exitcode == 130
    done = read_records(folder)
    assert 3 <= len(done) < 60
    summary = json.loads((folder / "summary.json").read_text())
    assert sum(row["images"] for row in summary["rows"] if row["nfe"]) == len(done)
    assert any("not restored yet; run the same command again" in note for note in summary["notes"])
    assert not list(folder.rglob("*.part"))


def test_an_echo_of_ctrl_c_is_not_a_second_one(monkeypatch):
    """torchrun forwards to its processes the signal that the terminal has already sent them."""
    with stop_on_signal() as stop:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        assert stop.is_set()
        monkeypatch.setattr("codes.runtime.signals.ECHO", 0.0)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def torchrun(processes: int, options: Path, code: int = 0) -> str:
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={processes}", "--standalone"]
    result = subprocess.run(
        [*command, str(ROOT / "test.py"), "-opt", str(options)], capture_output=True, text=True, timeout=300
    )
    assert result.returncode == code, result.stderr
    return result.stdout


@pytest.mark.slow
def test_images_left_out_by_any_process_are_counted_in_the_table(copy):
    for name in ("000", "003"):
        (copy / "data" / "rainy" / "LQ" / f"{name}.png").write_text("no image")
    (copy / "data" / "hazy" / "LQ" / "002.png").unlink()  # leaves its clean image without a partner
    printed = torchrun(2, write_options(copy, "run"), code=1)
    rows = json.loads((copy / "results" / "run" / "summary.json").read_text())
    assert {(row["task"], row["images"], row["left_out"]) for row in rows["rows"]} == {("rainy", 3, 2), ("hazy", 4, 1)}
    assert "3 (-2)" in printed and not any("not restored yet" in note for note in rows["notes"])


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3])
def test_several_processes_give_the_same_results(world, copy, processes):
    torchrun(processes, write_options(copy, "reference"))
    folder = copy / "results" / "reference"
    shares = [len(path.read_bytes().splitlines()) for path in folder.glob("records.*.jsonl")]
    assert len(shares) == processes
    assert max(shares) - min(shares) <= 4  # one image with four solvers: the tasks are divided as one
    same_as_reference(folder, world)


@pytest.mark.slow
def test_another_number_of_processes_finishes_the_job(world, copy):
    options = write_options(copy, "reference")
    folder = copy / "results" / "reference"
    assert evaluate(["-opt", str(options)]) == 0
    records = folder / "records.0.jsonl"
    records.write_bytes(b"".join(records.read_bytes().splitlines(keepends=True)[:11]))
    records.rename(folder / "records.5.jsonl")  # of a process that no longer exists
    torchrun(2, options)
    assert len((folder / "records.5.jsonl").read_bytes().splitlines()) == 11
    same_as_reference(folder, world)


def test_other_options_in_the_same_folder_are_refused(world, copy, capsys):
    common = {"sde": {"algorithm": "mrsampler-pc"}}
    assert evaluate(["-opt", str(write_options(copy, "reference", sampler={"num_sample_steps": 2}, **common))]) == 0
    changed = str(write_options(copy, "reference", sampler={"num_sample_steps": 2, "tau": 1.0}, seed=3, **common))
    capsys.readouterr()
    assert evaluate(["-opt", changed]) == 2
    message = capsys.readouterr().err
    assert "was made with other options" in message and "--fresh" in message
    assert "  seed: 0 -> 3" in message and "tau" not in message  # solvers are added, not refused
    assert evaluate(["-opt", changed, "--fresh"]) == 0
    assert (copy / "results" / "reference-2" / "summary.json").is_file()
    # Options that do not affect the images may differ.
    other = write_options(copy, "reference", sampler={"num_sample_steps": 2}, batch_size=2, workers=1, **common)
    assert evaluate(["-opt", str(other)]) == 0


def test_score_only_gives_the_same_numbers(world, copy):
    options = str(write_options(copy, "reference"))
    assert evaluate(["-opt", options]) == 0
    before = timeless(copy / "results" / "reference")
    assert evaluate(["-opt", options, "--score-only"]) == 0
    assert timeless(copy / "results" / "reference") == before


def test_score_only_adds_a_metric_to_an_old_run(world, copy):
    assert evaluate(["-opt", str(write_options(copy, "reference"))]) == 0
    more = str(write_options(copy, "reference", metrics={"names": ["psnr", "psnr_y"]}))
    assert evaluate(["-opt", more, "--score-only"]) == 0
    rows = json.loads((copy / "results" / "reference" / "summary.json").read_text())["rows"]
    assert all(row["metrics"]["psnr_y"] > 0 for row in rows)


def test_bad_images_are_left_out_by_name_and_the_others_restored(world, copy, capsys):
    lq = copy / "data" / "rainy" / "LQ"
    whole = (lq / "001.png").read_bytes()
    (lq / "001.png").write_bytes(whole[: len(whole) // 2])
    save_image(np.zeros((9, 9, 3), np.uint8), lq / "002.png")
    (lq / "003.png").write_text("not an image")
    assert evaluate(["-opt", str(write_options(copy, "reference"))]) == 1
    printed = capsys.readouterr().out
    assert "001.png: the PNG file is truncated or damaged" in printed
    assert "002.png: degraded and clean image differ in size, 9x9 and 48x40" in printed
    assert "003.png: not an image in a known format" in printed
    rows = json.loads((copy / "results" / "reference" / "summary.json").read_text())["rows"]
    assert {(row["task"], row["images"], row["left_out"]) for row in rows} == {("rainy", 2, 3), ("hazy", 5, 0)}
    assert "2 (-3)" in printed


def test_images_without_ground_truth_get_no_metrics_that_need_it(world, copy, monkeypatch, tmp_path):
    # Without the parameters of NIQE and BRISQUE, which need none: test_natural.py has both.
    monkeypatch.setattr("codes.metrics.scorer.find_weights", lambda name: find_weights(name, tmp_path))
    dataset = {"photos": {"mode": "LQ", "dataroot_LQ": str(copy / "data" / "rainy" / "LQ")}}
    assert evaluate(["-opt", str(write_options(copy, "plain", datasets=dataset))]) == 0
    summary = json.loads((copy / "results" / "plain" / "summary.json").read_text())
    assert all(row["metrics"] == {"psnr": None, "ssim": None} and row["images"] == 5 for row in summary["rows"])
    assert "n/a" in (copy / "results" / "plain" / "summary.md").read_text()


def test_alpha_is_kept(world, copy):
    alpha = np.arange(40 * 48, dtype=np.uint8).reshape(40, 48)
    path = copy / "data" / "rainy" / "LQ" / "000.png"
    save_image(read_picture(path).rgb, path, alpha)
    assert evaluate(["-opt", str(write_options(copy, "reference"))]) == 0
    restored = read_picture(copy / "results" / "reference" / "rainy" / "posterior-nfe2" / "000.png")
    assert np.array_equal(restored.alpha, alpha)


def test_tiles_are_recorded(world, copy):
    assert evaluate(["-opt", str(write_options(copy, "tiles", tile=64))]) == 0  # larger than the images
    assert all(record.tile is None for record in read_records(copy / "results" / "tiles").values())
    save_image(np.zeros((40, 100, 3), np.uint8), copy / "data" / "rainy" / "LQ" / "wide.png")
    save_image(np.zeros((40, 100, 3), np.uint8), copy / "data" / "rainy" / "GT" / "wide.png")
    assert evaluate(["-opt", str(write_options(copy, "tiles-2", tile=64))]) == 0
    records = read_records(copy / "results" / "tiles-2")
    assert {record.name for record in records.values() if record.tile == 64} == {"wide"}
    assert any("in tiles" in note for note in json.loads((copy / "results/tiles-2/summary.json").read_text())["notes"])


def test_nan_stops_the_run_and_names_image_and_step(world, copy, capsys, monkeypatch):
    from codes.restoration.restorer import Restorer

    original = Restorer.predictor

    def broken(self, lq):
        network = original(self, lq)
        return lambda x, mu, t: network(x, mu, t) * (float("nan") if t < 60 else 1.0)

    monkeypatch.setattr(Restorer, "predictor", broken)
    assert evaluate(["-opt", str(write_options(copy, "nan"))]) == 1
    message = capsys.readouterr().err
    assert "hazy/000 with posterior-nfe2: the state is not finite after step 2 of 2" in message


def test_full_disk_keeps_recorded_results(world, copy, capsys, monkeypatch):
    from codes.evaluation import run as module

    original, written = module.write_atomically, []

    def fills_up(path, content):
        if len(written) >= 6:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        written.append(path)
        original(path, content)

    monkeypatch.setattr(module, "write_atomically", fills_up)
    options = str(write_options(copy, "reference"))
    assert evaluate(["-opt", options]) == 1
    assert "cannot be written: No space left on device" in capsys.readouterr().err
    folder = copy / "results" / "reference"
    assert len(read_records(folder)) == 6
    monkeypatch.undo()
    assert evaluate(["-opt", options]) == 0
    same_as_reference(folder, world)


def test_unwritable_results_folder_is_one_clear_line(world, copy, capsys):
    (copy / "file").write_text("in the way")
    assert evaluate(["-opt", str(write_options(copy, "run", results=str(copy / "file")))]) == 2
    assert "file/run: cannot be written: Not a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"datasets": {"val": {"root": "/nowhere"}}}, "datasets.val: /nowhere: no such folder"),
        ({"datasets": {"val": {"mode": "LQ", "dataroot_LQ": "{folder}"}}}, "datasets.val: {folder}/empty: no images"),
        (
            {"datasets": {"val": {"root": "{folder}/data", "tasks": ["snowy"]}}},
            "datasets.val: {folder}/data: no folder for snowy; expected {folder}/data/snowy/LQ and GT",
        ),
        (
            {"path": {"pretrain_model_G": "pretrained/nothing.pth"}},
            "path.pretrain_model_G: pretrained/nothing.pth: no such file",
        ),
        ({"path": {"pretrain_model_G": "{folder}/text.pth"}}, "text.pth"),
        ({"network_G": {"which_model_G": "ConditionalNAFNet", "setting": {"widht": 8}}}, "did you mean 'width'"),
        (
            {"network_G": {"which_model_G": "ConditionalNAFNet", "setting": {"width": 16}}},
            "tiny.safetensors: the options ask for ConditionalNAFNet",
        ),
        ({"sde": {"max_sigma": 30}}, "sde.max_sigma: 30.0 contradicts the checkpoint, which was trained with 50"),
        ({"sampler": {"fit_target": "noise"}}, "sampler.fit_target: 'noise' contradicts the checkpoint"),
        ({"sampler": {"num_sample_steps": 1}, "sde": {"algorithm": "mrsampler"}}, "order 2 needs num_sample_steps"),
        ({"device": "cuda"}, "needs a GPU, and torch finds none; use cpu or auto"),
        ({"sampler": {"ordr": 2}}, "sampler.ordr: unknown option, did you mean 'order'?"),
    ],
)
def test_bad_options_data_and_weights_give_one_clear_line(copy, capsys, changes, message):
    (copy / "empty").mkdir()
    (copy / "text.pth").write_text("no weights")

    def fill(value):
        if isinstance(value, dict):
            return {key: fill(entry) for key, entry in value.items()}
        return value.replace("{folder}", str(copy)) if isinstance(value, str) else value

    if "LQ" in str(changes.get("datasets", "")):
        changes = {"datasets": {"val": {"mode": "LQ", "dataroot_LQ": str(copy / "empty")}}}
    options = write_options(copy, "bad", **fill(changes))
    assert evaluate(["-opt", str(options)]) == 2
    printed = capsys.readouterr()
    assert message.replace("{folder}", str(copy)) in printed.err
    assert "Traceback" not in printed.err
    assert not (copy / "results").exists()


def test_dry_run_shows_the_work_without_doing_it(world, copy, capsys):
    assert (
        evaluate(["-opt", str(write_options(copy, "dry")), "--dry-run", "--set", "sampler.num_sample_steps=[3, 4]"])
        == 0
    )
    printed = capsys.readouterr().out
    assert "task hazy: 5 images" in printed and "solver posterior-nfe4" in printed
    assert "40 images to restore into" in printed
    assert not (copy / "results").exists()


def test_works_from_another_directory(world, copy, tmp_path):
    options = write_options(copy, "reference", sampler={"num_sample_steps": 2}, sde={"algorithm": "posterior"})
    command = [sys.executable, str(ROOT / "test.py"), "-opt", str(options)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    help_text = subprocess.run([*command[:2], "--help"], capture_output=True, text=True, cwd=tmp_path).stdout
    assert len(help_text.splitlines()) <= 30 and max(map(len, help_text.splitlines())) <= 110
