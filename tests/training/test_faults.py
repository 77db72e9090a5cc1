"""Damaged states and logs, full disks, several trainings of one folder: the weights at the end are always the same."""

import json
import logging
import os
import shutil
import signal
import threading
import time
from itertools import count

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from codes.commands.train import main as train
from codes.runtime.files import read_lines, write_whole
from codes.training import checkpoints

from ..faults import survives_every_fault
from .helpers import SETTING, run_in_child, same_as_reference, write_options

SMALL = {**SETTING, "width": 4, "enc_blk_nums": [1], "dec_blk_nums": [1]}


@pytest.fixture
def finished(world, tmp_path):
    """A copy of a finished training, and the arguments that continue it."""
    shutil.copytree(world / "results", tmp_path / "results")
    return tmp_path / "results" / "reference", [
        "-opt",
        str(world / "reference.yml"),
        "--set",
        f"results={tmp_path / 'results'}",
    ]


def damaged(content: bytes, how: str) -> bytes:
    middle = len(content) // 2
    return {
        "empty": b"",
        "cut": content[:middle],
        "flipped": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
        "noise": os.urandom(500),
        "zeros": bytes(len(content)),
    }[how]


@pytest.mark.parametrize("how", ["empty", "cut", "flipped", "noise", "zeros"])
def test_a_damaged_state_is_refused_and_the_one_before_it_used(how, finished, world, caplog):
    """W3 and C1."""
    folder, arguments = finished
    state = folder / "training_state" / "12.state"
    state.write_bytes(damaged(state.read_bytes(), how))
    with caplog.at_level(logging.INFO):
        assert train(arguments) == 0
    assert "12.state: damaged" in caplog.text and "trying the one before it" in caplog.text
    assert "resuming after step 8" in caplog.text
    same_as_reference(folder, world)
    steps = [line["step"] for line in map(json.loads, (folder / "log.jsonl").read_text().splitlines())]
    assert steps == [2, 4, 6, 6, 8, 10, 12, 12]


def test_damaged_states_are_set_aside_and_do_not_cost_whole_ones_their_place(finished):
    """Nor does one that may not be read, or what only looks like a number."""
    folder, arguments = finished
    states = folder / "training_state"
    content = (states / "8.state").read_bytes()
    (states / "12.state").write_bytes(b"")
    (states / "20.state").write_bytes(content[:1000])
    (states / "².state").write_bytes(content)
    (states / "30.state").mkdir()
    assert train(arguments) == 0
    assert {path.name for path in states.iterdir()} == {
        *("8.state", "12.state", "12.state.damaged", "20.state.damaged", "30.state", "².state")
    }
    assert [checkpoints.read(states / f"{step}.state")["iter"] for step in (8, 12)] == [8, 12]


def test_a_state_of_another_step_than_its_name_is_passed_over(finished, world, caplog):
    """Else a training of 12 steps would be taken for done."""
    folder, arguments = finished
    file = folder / "training_state" / "12.state"
    torch.save({**checkpoints.read(file), "iter": 10**12}, file)
    assert train(arguments) == 0
    assert "12.state: not the state that its name says: it is of step 1000000000000; trying" in caplog.text
    same_as_reference(folder, world)


@pytest.mark.parametrize("entry", ["format", "iter", "network", "ema", "optimizer", "scaler"])
@pytest.mark.parametrize("value", [None, [], "x", torch.zeros(3), float("nan")], ids=str)
def test_a_state_with_entries_of_other_kinds_is_refused(entry, value, finished):
    folder, _ = finished
    file = folder / "training_state" / "12.state"
    torch.save({**checkpoints.read(file), entry: value}, file)
    with pytest.raises(checkpoints.StateError, match=r"12\.state: not a training state"):
        checkpoints.read(file)
    assert checkpoints.newest(folder)["iter"] == 8


@pytest.mark.parametrize("entry", ["network", "ema"])
def test_a_state_with_weights_that_are_not_finite_is_passed_over(entry, finished):
    folder, _ = finished
    file = folder / "training_state" / "12.state"
    state = checkpoints.read(file)
    next(iter(state[entry].values()))[0] = float("nan")
    torch.save(state, file)
    with pytest.raises(checkpoints.StateError, match=r"12\.state: .* the weights \S+ are not finite"):
        checkpoints.read(file)
    assert checkpoints.newest(folder)["iter"] == 8


def test_no_state_left_is_one_line(finished, capsys):
    folder, arguments = finished
    for state in checkpoints.states(folder):
        state.write_bytes(b"")
    for _ in range(2):  # they stay where they are, or the second start would begin anew
        assert train(arguments) == 2
        said = "training_state: none of its training states can be used; --fresh starts a new"
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", ["12_G.pth", "12_EMA.safetensors", "lastest_EMA.pth"])
def test_damaged_weights_are_written_again(name, finished, caplog):
    folder, arguments = finished
    file = folder / "models" / name
    content = file.read_bytes()
    file.write_bytes(damaged(content, "flipped"))
    assert train(arguments) == 0
    assert f"{name}: damaged; the weights of step 12 are written again" in caplog.text
    assert file.read_bytes() == content


def test_a_log_with_bad_bytes(finished, world, caplog):
    """C6: the whole lines stay, and the old file is kept."""
    folder, arguments = finished
    log = folder / "log.jsonl"
    lines = log.read_bytes().split(b"\n")
    lines[1] = b"\xff\xfe\x00" + lines[1]
    log.write_bytes(b"\n".join(lines))
    state = folder / "training_state" / "12.state"
    state.unlink()
    assert train(arguments) == 0
    assert "log.jsonl: 1 damaged lines are left out" in caplog.text
    same_as_reference(folder, world)
    found = read_lines(log)
    assert [line["step"] for line in found.values] == [2, 6, 6, 8, 10, 12, 12] and not found.damaged
    assert (folder / "log.jsonl.damaged").read_bytes() == b"\n".join(lines)


def test_a_state_that_is_something_else(tmp_path):
    path = tmp_path / "1.state"
    good = {"format": 1, "iter": 1, "network": {}, "ema": {}, "optimizer": {}, "scaler": {}}
    cases = [
        ([], "not a training state of this program"),
        ({**good, "format": 7}, "not a training state of this program"),
        ({**good, "iter": -1}, "iter should be a number of steps, got -1"),
        ({**good, "iter": "1"}, "iter should be a number of steps, got '1'"),
        ({**good, "ema": 3}, "ema is missing or of another kind"),
    ]
    for content, message in cases:
        write_whole(path, lambda part, content=content: torch.save(content, part))
        with pytest.raises(checkpoints.StateError, match=message):
            checkpoints.read(path)
    os.mkfifo(tmp_path / "2.state")
    with pytest.raises(checkpoints.StateError, match="a named pipe; expected a file"):
        checkpoints.read(tmp_path / "2.state")


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    """A small state as it is written."""
    path = tmp_path_factory.mktemp("state") / "1.state"
    content = {
        "format": 1, "iter": 1, "network": {"a": torch.arange(5.0)}, "ema": {"a": torch.ones(5)},
        "optimizer": {"state": {0: {"step": torch.tensor(1.0)}}}, "scaler": {},
    }  # fmt: skip
    write_whole(path, lambda part: torch.save(content, part))
    return path.read_bytes()


def same_or_refused(path) -> None:
    try:
        found = checkpoints.read(path)
    except checkpoints.StateError as error:
        assert str(error).startswith(str(path)) and "\n" not in str(error)
        return
    assert (found["iter"], found["format"]) == (1, 1)
    assert torch.equal(found["network"]["a"], torch.arange(5.0)) and torch.equal(found["ema"]["a"], torch.ones(5))
    assert found["optimizer"] == {"state": {0: {"step": torch.tensor(1.0)}}}


def test_a_state_cut_off_anywhere(state, tmp_path):
    path = tmp_path / "1.state"
    for length in range(len(state)):
        path.write_bytes(state[:length])
        with pytest.raises(checkpoints.StateError, match="1.state: damaged"):
            checkpoints.read(path)


def test_a_state_whose_list_of_parts_is_wrong(state, tmp_path):
    """Found by the test below: the checksums were right, and torch read what was never written."""
    path = tmp_path / "1.state"
    start = state.index(b"PK\x01\x02")
    while (start := state.find(b"PK\x01\x02", start)) >= 0:
        for place in (*range(start + 20, start + 28), start + 38):  # both lengths, and whether it is a folder
            path.write_bytes(state[:place] + bytes([state[place] ^ 16]) + state[place + 1 :])
            with pytest.raises(checkpoints.StateError, match="1.state: damaged"):
                checkpoints.read(path)
        start += 4


@given(place=st.floats(0, 1, exclude_max=True), mask=st.integers(1, 255))
def test_a_state_with_one_byte_changed(place, mask, state, tmp_path):
    path, content = tmp_path / "1.state", bytearray(state)
    content[int(place * len(content))] ^= mask
    path.write_bytes(content)
    same_or_refused(path)


# ---- the disk, and others


def test_a_training_survives_a_full_disk_at_every_write(world, copy, capsys):
    """C5: one line, everything intact, and the same weights to the last bit when there is room again."""
    numbers = count()
    current = [next(numbers)]
    changes = {
        "network_G__setting": SMALL, "train__niter": 2, "train__val_freq": 2, "logger__print_freq": 1,
        "logger__save_checkpoint_freq": 1, "datasets__train__batch_size": 2, "datasets__train__patch_size": 16,
    }  # fmt: skip

    def folder(number=None):
        return copy / "results" / f"run{current[0] if number is None else number}"

    def start():
        return train(["-opt", str(write_options(copy, f"run{current[0]}", **changes))])

    def check():
        for name in ("models/2_G.pth", "models/lastest_EMA.pth", "training_state/2.state", "validation/2.png"):
            assert (folder() / name).read_bytes() == (folder(0) / name).read_bytes(), name
        losses = [[line.get("loss") for line in read_lines(folder(n) / "log.jsonl").values] for n in (0, current[0])]
        assert losses[0] == losses[1]
        assert not list(folder().rglob(".mr-*")) and not list(folder().rglob("*.damaged*"))
        if current[0]:
            shutil.rmtree(folder())
        current[0] = next(numbers)

    total = survives_every_fault(start, check, lambda: capsys.readouterr().err)
    assert total > 40


@pytest.mark.slow
def test_a_training_waits_for_another_one_in_its_folder(world, copy, children, caplog):
    """The other one is held in the middle, and then killed: what it saved is continued."""
    options = write_options(copy, "reference")
    state = copy / "results" / "reference" / "training_state" / "4.state"
    other = children.Process(target=run_in_child, args=(["-opt", str(options)],))
    other.start()
    deadline = time.monotonic() + 60
    while not state.is_file() and time.monotonic() < deadline:
        time.sleep(0.003)
    os.kill(other.pid, signal.SIGSTOP)
    threading.Timer(1.0, os.kill, [other.pid, signal.SIGKILL]).start()
    with caplog.at_level(logging.INFO):
        assert train(["-opt", str(options)]) == 0
    other.join()
    assert f"reference: waiting for process {other.pid} (" in caplog.text and "resuming after step" in caplog.text
    same_as_reference(state.parents[1], world)
    assert train(["-opt", str(write_options(copy, "reference", train__lr_G=1.0))]) == 2


@pytest.mark.slow
def test_trainings_started_at_once_do_the_work_once(world, copy, children):
    options = write_options(copy, "reference")
    others = [children.Process(target=run_in_child, args=(["-opt", str(options)],)) for _ in range(3)]
    for other in others:
        other.start()
    for other in others:
        other.join(120)
    assert [other.exitcode for other in others] == [0, 0, 0]
    folder = copy / "results" / "reference"
    same_as_reference(folder, world)
    assert [line["step"] for line in read_lines(folder / "log.jsonl").values] == [2, 4, 6, 6, 8, 10, 12, 12]
    assert not list(folder.rglob(".mr-*"))


@pytest.mark.parametrize("content", [b"", b"[1]\n", b"{\n", b"name: \xff\n", b"train"])
def test_damaged_options_of_a_training_are_one_line(content, finished, capsys):
    """C6."""
    folder, arguments = finished
    (folder / "options.yml").write_bytes(content)
    assert train(arguments) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert said[-1].startswith(f"{folder / 'options.yml'}: damaged") and "delete it to go on" in said[-1]
    (folder / "options.yml").unlink()
    assert train(arguments) == 0


@pytest.mark.slow
def test_trainings_with_other_options_started_at_once_do_not_mix(copy, children):
    """One is taken, the others are told that they differ, whoever comes first."""
    runs = []
    for seed in range(3):
        (copy / f"{seed}").mkdir()
        options = write_options(copy, "run", seed=seed, train__niter=2, network_G__setting=SMALL)
        options = options.rename(copy / f"{seed}" / "run.yml")
        runs.append(children.Process(target=run_in_child, args=(["-opt", str(options)],)))
    for run in runs:
        run.start()
    for run in runs:
        run.join(120)
    assert sorted(run.exitcode for run in runs) == [0, 2, 2]
    winner = next(seed for seed, run in enumerate(runs) if run.exitcode == 0)
    assert f"seed: {winner}\n" in (copy / "results" / "run" / "options.yml").read_text()
