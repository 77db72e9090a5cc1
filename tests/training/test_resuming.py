"""A training stopped at any step, or divided among processes, ends with the same weights."""

import json
import math
import shutil
import signal
from collections.abc import Callable

import pytest
import torch

from codes.commands.train import main as train
from codes.training import checkpoints, loop
from codes.training.loader import batches

from .helpers import interrupted, make_run, same_as_reference, torchrun, weights, write_options


def test_a_loss_that_is_not_finite_names_step_and_images(copy, capsys, monkeypatch):
    original = loop.batch_loss

    def broken(run, network, batch):
        loss, prediction = original(run, network, batch)
        if first not in batch.names:
            return loss, prediction
        prediction = prediction.clone()
        prediction[batch.names.index(first)] = math.nan
        return loss * math.nan, prediction

    run = make_run(copy)
    first = list(batches(run.data, 0, 3))[2].names[1]
    monkeypatch.setattr(loop, "batch_loss", broken)
    assert train(["-opt", str(write_options(copy))]) == 1
    message = capsys.readouterr().err
    assert "the loss is not finite; images: " in message and first in message
    assert not list((copy / "results" / "run").rglob("12_G.pth"))


def test_weights_that_are_not_finite_are_not_saved(copy):
    run = make_run(copy)
    with torch.no_grad():
        next(run.models.network.parameters())[0] = math.inf
    with pytest.raises(checkpoints.StateError, match="nothing saved after step 3, the weights .* are not finite"):
        checkpoints.save(copy, 3, network=run.models.network, ema=run.models.ema, rest={}, metadata=run.metadata)
    assert not (copy / "models").exists()


def test_a_finished_run_does_nothing(world, copy):
    options = str(write_options(copy, "reference"))
    assert train(["-opt", options]) == 0
    before = {path: path.stat().st_mtime_ns for path in (copy / "results" / "reference" / "models").iterdir()}
    assert train(["-opt", options]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in (copy / "results" / "reference" / "models").iterdir()}


def test_a_damaged_state_is_passed_over(world, copy):
    options = str(write_options(copy, "reference"))
    assert train(["-opt", options]) == 0
    folder = copy / "results" / "reference"
    state = folder / "training_state" / "12.state"
    state.write_bytes(state.read_bytes()[:1000])
    assert train(["-opt", options]) == 0
    same_as_reference(folder, world)
    lines = [json.loads(line)["step"] for line in (folder / "log.jsonl").read_text().splitlines()]
    assert lines == [2, 4, 6, 6, 8, 10, 12, 12]


def test_other_options_in_the_same_folder_are_refused(world, copy, capsys):
    assert train(["-opt", str(write_options(copy, "reference"))]) == 0
    capsys.readouterr()
    assert train(["-opt", str(write_options(copy, "reference", train__lr_G=1e-4))]) == 2
    assert "  train.lr_G: 0.001 -> 0.0001" in capsys.readouterr().err
    # What does not change the weights may differ.
    free = {"train__val_freq": 100, "logger__print_freq": 1, "datasets__train__cache": 10}
    assert train(["-opt", str(write_options(copy, "reference", **free))]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_killed_and_continued_it_has_the_same_weights(world, copy, children, workers):
    options = write_options(copy, "reference", datasets__train__n_workers=workers)
    folder = copy / "results" / "reference"
    log = folder / "log.jsonl"
    # After a checkpoint, and while one is being written.
    moments: list[Callable[[], bool]] = [
        lambda: (folder / "training_state" / "4.state").is_file(),
        lambda: (folder / "models" / "8_G.pth").is_file(),
    ]
    for moment in moments[workers:]:
        assert interrupted(children, options, moment, signal.SIGKILL) == -signal.SIGKILL
    assert train(["-opt", str(options)]) == 0
    same_as_reference(folder, world)
    steps = [line["step"] for line in map(json.loads, log.read_text().splitlines()) if "loss" in line]
    assert steps == [2, 4, 6, 8, 10, 12]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_saves_and_resumes(world, copy, children, number):
    options = write_options(copy, "reference", logger__save_checkpoint_freq=100, logger__print_freq=1)
    folder = copy / "results" / "reference"
    log = folder / "log.jsonl"
    code = interrupted(children, options, lambda: log.is_file() and log.read_text().count("\n") >= 3, number)
    assert code == 130
    (state,) = checkpoints.states(folder)
    assert 3 <= int(state.stem) < 12
    assert train(["-opt", str(options)]) == 0
    same_as_reference(folder, world)


@pytest.mark.slow
@pytest.mark.parametrize("optimiser", ["AdamW", "Muon"])
def test_two_processes_equal_one_with_the_whole_batch(world, copy, optimiser):
    if optimiser == "Muon":
        world = copy / "alone"
        shutil.copytree(copy / "photos", world / "photos")
        assert train(["-opt", str(write_options(world, "reference", train__optimizer=optimiser))]) == 0
    torchrun(2, write_options(copy, "reference", train__optimizer=optimiser))
    folder = copy / "results" / "reference"
    ours, theirs = weights(folder), weights(world / "results" / "reference")
    # 12 steps of Adam, which magnifies the rounding of gradients that are almost 0; weights are moved by up to 0.01.
    assert all(torch.allclose(ours[key], theirs[key], rtol=0, atol=2e-5) for key in ours)
    assert json.loads((folder / "environment.json").read_text())[0]["processes"] == 2
    losses = [
        [line["loss"] for line in map(json.loads, (f / "log.jsonl").read_text().splitlines()) if "loss" in line]
        for f in (folder, world / "results" / "reference")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
