"""Stages: one option file, several trainings, each beginning with the weights of the one before."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from codes.commands.train import main as train
from codes.config import OptionsError, load_options, load_stages
from codes.networks.checkpoints import load_network
from codes.training import checkpoints, stages

from .helpers import assert_equal, interrupted, torchrun, write_options

STAGES = {
    "base": {"train.niter": 6},
    "sharp": {"train.lr_G": 5e-4, "train.niter": 8, "datasets.train.patch_size": 40},
}


def staged(folder: Path, name: str = "staged", **changes: Any) -> Path:
    return write_options(folder, name, **{"stages": STAGES, "train__val_freq": 100, **changes})


def state(folder: Path, step: int) -> dict[str, Any]:
    return checkpoints.read(folder / "training_state" / f"{step}.state")


@pytest.fixture(scope="module")
def finished(world):
    """A training of two stages that ran without interruption, in a folder of its own."""
    assert train(["-opt", str(staged(world))]) == 0
    return world / "results" / "staged"


def test_each_stage_begins_with_the_averaged_weights_before_it(finished, world):
    assert {path.name for path in finished.iterdir()} == {"base", "sharp"}
    options = yaml.safe_load((finished / "sharp" / "options.yml").read_text())
    ema = finished / "base" / "models" / "6_EMA.safetensors"
    assert options["path"]["pretrain_model_G"] == str(ema) and "stages" not in options
    assert (options["train"]["niter"], options["train"]["lr_G"]) == (8, 5e-4)
    assert options["datasets"]["train"]["patch_size"] == 40
    # The second stage alone, from the same weights, as a training without stages.
    rest = {"train__niter": 8, "train__lr_G": 5e-4, "datasets__train__patch_size": 40, "train__val_freq": 100}
    assert train(["-opt", str(write_options(world, "alone", path={"pretrain_model_G": str(ema)}, **rest))]) == 0
    assert_equal(state(finished / "sharp", 8), state(world / "results" / "alone", 8))


def test_the_first_stage_is_the_training_without_stages(finished, world):
    changes = {"train__niter": 6, "train__val_freq": 100}
    assert train(["-opt", str(write_options(world, "first", **changes))]) == 0
    assert_equal(state(finished / "base", 6), state(world / "results" / "first", 6))


def test_a_file_without_stages_is_one_training(world):
    file = world / "reference.yml"
    (only,) = load_stages(file)
    assert only == load_options(file, kind="train") and stages.folder_of(only) == world / "results" / "reference"


def test_a_finished_training_does_nothing(finished, world):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*") if path.is_file()}
    assert train(["-opt", str(staged(world))]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in finished.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_killed_in_the_second_stage_it_resumes_there_exactly(finished, copy, children):
    options = staged(copy)
    folder = copy / "results" / "staged"
    second = folder / "sharp" / "training_state" / "4.state"
    assert interrupted(children, options, second.is_file, signal.SIGKILL) == -signal.SIGKILL
    first = {path: path.stat().st_mtime_ns for path in (folder / "base").rglob("*") if path.is_file()}
    assert not (folder / "sharp" / "models" / "8_EMA.safetensors").is_file()
    assert train(["-opt", str(options)]) == 0
    assert first == {path: path.stat().st_mtime_ns for path in (folder / "base").rglob("*") if path.is_file()}
    assert_equal(state(folder / "sharp", 8), state(finished / "sharp", 8))
    lines = [json.loads(line)["step"] for line in (folder / "sharp" / "log.jsonl").read_text().splitlines()]
    assert lines == [2, 4, 6, 8, 8]  # the last is the validation


@pytest.mark.slow
def test_stages_in_two_processes(finished, copy):
    torchrun(2, staged(copy))
    folder = copy / "results" / "staged"
    ours, theirs = state(folder / "sharp", 8)["network"], state(finished / "sharp", 8)["network"]
    assert all(torch.allclose(ours[key], theirs[key], rtol=0, atol=5e-5) for key in ours)


def test_changed_options_of_a_finished_stage_are_refused(finished, world, capsys):
    changed = {**STAGES, "base": {"train.niter": 6, "train.lr_G": 1e-4}}
    assert train(["-opt", str(staged(world, stages=changed))]) == 2
    message = capsys.readouterr().err
    assert "  train.lr_G: 0.001 -> 0.0001" in message and "stage base" in message


def test_fresh_stages_go_to_a_numbered_folder(copy):
    short = {"stages": {"a": {"train.niter": 1}, "b": {"train.niter": 2}}}
    for _ in range(2):
        assert train(["-opt", str(staged(copy, **short)), "--fresh"]) == 0
    results = copy / "results"
    assert sorted(path.name for path in results.iterdir()) == ["staged", "staged-2"]
    options = yaml.safe_load((results / "staged-2" / "b" / "options.yml").read_text())
    assert options["path"]["pretrain_model_G"] == str(results / "staged-2" / "a" / "models" / "1_EMA.safetensors")
    assert load_network(results / "staged-2" / "b" / "models")[1].source.endswith("2_EMA.safetensors")


def test_dry_run_shows_all_stages(copy, capsys):
    assert train(["-opt", str(staged(copy)), "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("stage base\nname: base\n") and "\nstage sharp\n" in printed
    assert "  train.niter: 6 -> 8" in printed and "  train.lr_G: 0.001 -> 0.0005" in printed
    assert f"network: averaged weights of stage base; 8 steps into {copy}/results/staged/sharp" in printed
    assert not (copy / "results").exists()


def test_the_command_line_overrides_stages(copy):
    overrides = ["train.niter=3", f"results={copy}/r", "name=n"]
    first, second = load_stages(staged(copy), overrides)
    assert (first.train.niter, second.train.niter, second.train.lr_G) == (3, 3, 5e-4)
    assert second.path.pretrain_model_G == f"{copy}/r/n/base/models/3_EMA.safetensors"


def test_initial_weights_and_states_are_of_the_first_stage_unless_a_stage_names_its_own(copy):
    path = {"pretrain_model_G": "a.pth", "resume_state": "a.state"}
    own = {"one": {}, "two": None, "three": {"path.pretrain_model_G": "b.pth"}}
    one, two, three = load_stages(staged(copy, path=path, stages=own))
    assert (one.path.pretrain_model_G, one.path.resume_state) == ("a.pth", "a.state")
    assert two.path.pretrain_model_G == str(stages.last_weights(one)) and two.path.resume_state is None
    assert three.path.pretrain_model_G == "b.pth" and three.path.resume_state is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"sharp": {"train.nitre": 5}}, "stages.sharp.train.nitre: unknown option, did you mean 'niter'?"),
        ({"sharp": {"train.niter": 0}}, "stages.sharp.train.niter: expected an integer from 1 to 1,000,000,000, got 0"),
        ({"sharp": {"train.task_weights": {"snowy": -1}}}, "stages.sharp.train.task_weights.snowy: expected a number"),
        ({"sharp": {"train": {"niter": 5}}}, "stages.sharp.train: expected dotted keys, for example train.niter"),
        ({"sharp": {"name": "other"}}, "stages.sharp.name: is common to all stages"),
        ({"sharp": {"seed.x": 1}}, "stages.sharp.seed.x: 'seed' is not a section"),
        ({"sharp": 5}, "stages.sharp: expected a mapping of options, for example {train.niter: 4000}, got 5"),
        ({"a/b": {}}, "stages.a/b: expected a name of letters, digits"),
        ([1], "stages: expected a mapping of stages, got [1]"),
        ({"ok": {}, "sharp": {"train.lr_scheme": "MultiStepLR"}}, "train.lr_steps: missing, lr_scheme MultiStepLR"),
    ],
)
def test_bad_stages_are_reported_in_one_line(copy, given, expected):
    file = staged(copy, seed=0, stages=given)
    with pytest.raises(OptionsError) as caught:
        load_stages(file)
    message = str(caught.value)
    assert message.startswith(f"{file}: {expected}") and "\n" not in message
    assert isinstance(given, list) or next(name for name in given if name != "ok") in message


def test_the_problems_of_all_stages_are_told_in_one_go(copy, capsys):
    """Each once, with the first stage that has it; and the folders and weights that are missing."""
    given = {"a": {"train.niter": 0}, "b": {"train.nitre": 5}, "c": {}, "d": {"path.grow_from": "none.pth"}}
    file = staged(copy, tile=3, stages=given, path={"daclip": "absent.pt"})
    assert train(["-opt", str(file)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert sorted(line.split(": ")[1] for line in lines) == [
        "path.daclip", "stages.a.train.niter", "stages.b.train.nitre", "stages.d.path.grow_from", "tile",
    ]  # fmt: skip
    assert all(line.endswith("(stage a)") for line in lines if "stages." not in line)


def test_what_is_missing_for_a_late_stage_is_reported_before_the_first(copy, capsys):
    late = {"base": {}, "sharp": {"datasets.train.dataroot_GT": "nowhere"}}
    assert train(["-opt", str(staged(copy, stages=late))]) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert "nowhere: no such folder" in message and "stage sharp" in message
    assert not (copy / "results").exists()


def test_distillation_in_a_stage_takes_the_weights_before_as_teacher(copy):
    given = {"a": {"train.niter": 2}, "b": {"train.niter": 2, "train.distill": {"teacher_steps": [2]}}}
    assert train(["-opt", str(staged(copy, stages=given))]) == 0
    assert (copy / "results" / "staged" / "b" / "models" / "2_EMA.safetensors").is_file()
