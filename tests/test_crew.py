"""Several processes that restore the photos of a folder together."""

import io
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch

from codes.commands.restore import main as restore
from codes.restoration import photos as restoring
from codes.restoration.loading import load_restorer
from codes.restoration.meter import Meter
from codes.restoration.photo_results import RestoreSettings
from codes.restoration.tiling import BYTES_PER_PIXEL
from codes.runtime.crew import LEAST_MEGAPIXELS, Lost, _begin, crew_size, crew_within

ROOT = Path(__file__).parents[1]


@pytest.fixture
def photos(tmp_path):
    """Photos of mixed sizes, and a file that is none."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "photos"
    folder.mkdir()
    for i, (height, width) in enumerate([(64, 64), (96, 40), (33, 70), (64, 64), (48, 80)]):
        small = rng.integers(0, 255, (6, 6, 3)).astype(np.uint8)
        cv2.imwrite(str(folder / f"{i}.png"), cv2.resize(small, (width, height)))
    (folder / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    return folder


def records(folder: Path) -> dict[str, dict]:
    lines = [json.loads(line) for line in (folder / "restored.jsonl").read_text().splitlines()]
    found = {line["name"]: line for line in lines if "name" in line}
    assert len(found) == sum("name" in line for line in lines)  # nobody restored a photo twice
    return found


def test_files_and_records_do_not_depend_on_the_number_of_processes(photos, tmp_path, capsys):
    one, two = tmp_path / "one", tmp_path / "two"
    assert restore([str(photos), "-o", str(one), "--workers", "1"]) == 1
    told = capsys.readouterr().err
    assert restore([str(photos), "-o", str(two), "--workers", "2"]) == 1
    assert "5 restored, 1 left out" in told and "5 restored, 1 left out" in capsys.readouterr().err
    names = sorted(path.name for path in one.glob("*.png"))
    assert names == [f"{i}.png" for i in range(5)] == sorted(path.name for path in two.glob("*.png"))
    assert all((one / name).read_bytes() == (two / name).read_bytes() for name in names)
    assert records(one) == records(two)
    # A crew finds what is done, like a single process.
    assert restore([str(photos), "-o", str(one), "--workers", "2"]) == 1
    assert "0 restored, 5 already there, 1 left out" in capsys.readouterr().err


def started(photos: Path, output: Path) -> subprocess.Popen:
    command = [
        sys.executable,
        str(ROOT / "restore.py"),
        str(photos),
        "-o",
        str(output),
        "--workers",
        "2",
        "--nfe",
        "400",
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True)


def family(process: subprocess.Popen) -> list[int]:
    """Processes of the same session that are still there."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == process.pid and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_stays_after_a_stop_and_the_same_command_resumes(number, photos, tmp_path, capsys):
    output = tmp_path / "out"
    process = started(photos, output)
    deadline = time.monotonic() + 120
    while not list(output.glob(".mr-*.lock")) and time.monotonic() < deadline:  # until a photo is claimed
        time.sleep(0.05)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.kill()
    told = process.communicate(timeout=60)[1]
    while family(process) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert family(process) == []
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in told
    (photos / "broken.png").unlink()
    assert restore([str(photos), "-o", str(output), "--workers", "2", "--nfe", "1"]) == 0
    assert sorted(path.name for path in output.glob("*")) == [*(f"{i}.png" for i in range(5)), "restored.jsonl"]
    capsys.readouterr()


def test_the_time_left_of_several_photos_at_a_time_is_that_of_all_processes():
    with Meter([2.0, 2.0, 2.0, 4.0, 8.0], together=2) as meter:
        assert meter.left is None
        meter.finish(2.0, None)  # was there: says nothing about the speed
        assert meter.left is None
        meter.finish(2.0, 10.0)  # 5 s for a megapixel in each of two processes: 14 are left
        assert meter.left == 35.0
        meter.finish(2.0, 14.0)
        assert meter.left == 24.0 / 4.0 / 2 * 12.0
        meter.finish(4.0, 4.0)  # both were slow to begin with
        assert meter.left == 1.0 / 2 * 8.0
        assert meter.number == 4


def test_a_process_of_a_crew_prints_any_name(monkeypatch):
    """Its streams have the terminal's encoding, which may lack what a name has."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii"))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(threading, "Thread", lambda **_: SimpleNamespace(start=lambda: None))
    monkeypatch.setattr(logging, "disable", lambda _: None)
    cv2_threads = cv2.getNumThreads()
    _begin(pickle.dumps(dict), torch.get_num_threads(), None)
    cv2.setNumThreads(cv2_threads)
    print("Bäume → ☃.png", flush=True)
    assert written.getvalue() == b"Baume -> \\u2603.png\n"


def test_a_crew_is_as_large_as_it_pays():
    enough = [LEAST_MEGAPIXELS] * 9
    assert crew_size(None, 4, "cpu", enough) == 4
    assert crew_size(None, 1, "cpu", enough) == 1  # the user allows one thread
    assert crew_size(None, 4, "cpu", [0.1] * 9) == 1  # starting would take longer
    assert crew_size(None, 4, "cpu", [40.0]) == 1  # one photo is for one process
    assert crew_size(None, 4, "cuda", enough) == 1
    assert crew_size(3, 1, "cpu", [0.1] * 9) == 3
    assert crew_size(3, 1, "cpu", [0.1] * 2) == 2


def test_the_processes_restore_at_the_precision_that_was_asked_for(photos, tmp_path, monkeypatch):
    asked = []

    def run(restorer, *arguments, load, **options):
        asked.extend([restorer.precision, load().precision])
        return restoring.Report()

    monkeypatch.setattr(restoring, "run", run)
    for precision in ("fp32", "fp16"):
        assert restore([str(photos), "-o", str(tmp_path / "out"), "--workers", "2", "--precision", precision]) == 0
    assert asked == ["fp32", "fp32", "fp16", "fp16"]


def test_a_crew_is_as_large_as_memory_allows(photos, tmp_path, weights, monkeypatch):
    """With 32 threads and 8 GB: as many processes as have room for the largest photo, not one for each thread."""
    restorer = replace(load_restorer(weights, "cpu"), memory=4e9)
    needed = restoring.most_memory(restorer, RestoreSettings(), [1.0, 12.0, 1000.0], 8e9)
    assert 12e6 * BYTES_PER_PIXEL < needed < 5e9  # one of 1000 megapixels is left out, so it takes nothing
    assert restoring.most_memory(restorer, RestoreSettings(tile=64), [12.0], 8e9) < needed
    assert crew_within(32, 8e9, 2e9) == 4 and crew_within(2, 8e9, 2e9) == 2 and crew_within(32, 1e9, 2e9) == 1
    sizes = []

    def crew(size, threads, start):
        sizes.append(size)
        raise Lost("enough seen")

    monkeypatch.setattr(restoring, "crew", crew)
    monkeypatch.setattr(restoring, "crew_size", lambda wanted, *_: wanted or 32)
    monkeypatch.setattr(restoring, "available_memory", lambda: 2.5e9)
    for workers in (None, 3):  # what the user asks for is taken as it is
        restoring.run(restorer, [str(photos)], tmp_path, RestoreSettings(), weights, workers=workers, load=pytest.fail)
    assert sizes == [4, 3]


def test_tiles_do_not_depend_on_the_memory_that_other_processes_take(photos, tmp_path, weights, monkeypatch):
    """What is free when the command starts decides for all of its processes."""
    free = iter([2e9, *[1e6] * 99])
    monkeypatch.setattr("codes.runtime.device.available_memory", lambda: next(free))
    restorers = []

    def run(restorer, *arguments, load, **options):
        restorers.extend([restorer, load()])
        return restoring.Report()

    monkeypatch.setattr(restoring, "run", run)
    assert restore([str(photos), "-o", str(tmp_path / "out"), "--opt", str(weights), "--device", "cpu"]) == 0
    assert [each.memory for each in restorers] == [1e9, 1e9]
    large = torch.empty(1, 3, 500, 500, device="meta")
    assert [each.tile_for(large) for each in restorers] == [None, None]
    assert replace(restorers[0], memory=None).tile_for(large) == 128
