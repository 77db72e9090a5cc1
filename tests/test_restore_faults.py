"""restore.py among hostile files, beside other processes and after kills."""

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from codes.commands.restore import main as restore
from codes.data.images import ImageError, save_image
from codes.restoration import photos as restoring
from codes.restoration.loading import load_restorer
from codes.restoration.meter import Meter, spoken
from codes.restoration.photo_files import RECORDS, Results
from codes.restoration.photo_results import RestoreSettings
from codes.runtime.files import JsonLines
from codes.runtime.locks import claim
from codes.runtime.problems import Busy

ROOT = Path(__file__).parent.parent


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    for name in ("a.png", "b.png", "c.png"):
        save_image(rng.integers(0, 255, (16, 24, 3)).astype(np.uint8), tmp_path / "photos" / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(folder, weights):
    def start(*arguments: str) -> int:
        return restore([*arguments, "--opt", str(weights), "--nfe", "2", "--device", "cpu"])

    return start


def results(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and path.name != RECORDS)


# ---- files


def test_whatever_looks_like_an_image_is_restored_or_named(run, folder, capsys):
    photos = folder / "photos"
    for name in ("x.gif", "raw.CR2", "x.jxl"):
        (photos / name).write_bytes(b"GIF89a" + bytes(20))
    (photos / "notes.txt").write_text("no image")
    (photos / "gone.png").symlink_to("nowhere.png")
    os.mkfifo(photos / "pipe.png")
    assert run("photos", "-o", "out") == 1
    printed = capsys.readouterr().err
    for line in (
        "left out: photos/x.gif: .gif files are not supported; save it as PNG",
        "left out: photos/raw.CR2: .cr2 files are not supported; save it as PNG",
        "left out: photos/x.jxl: .jxl files are not supported; save it as PNG",
        "left out: photos/gone.png: a link to a file that does not exist",
        "left out: photos/pipe.png: a named pipe; expected a file",
        "3 restored, 5 left out, in out",
    ):
        assert line in printed, line
    assert "notes.txt" not in printed and results(folder / "out") == ["a.png", "b.png", "c.png"]


@pytest.mark.parametrize("name", ["/dev/zero", "pipe", "~nobody-of-this-name/x.png"])
def test_devices_pipes_and_unknown_homes_are_one_line(run, folder, capsys, name):
    os.mkfifo(folder / "pipe")
    assert run(name, "photos/a.png", "-o", "out") == 1
    printed = capsys.readouterr().err
    reason = {"/dev/zero": "a device; expected a file", "pipe": "a named pipe; expected a file"}
    assert f"{name}: {reason.get(name, 'no such file or folder')}" in printed and "1 restored, 1 left out" in printed


def test_a_pattern_that_leads_up_again_writes_into_the_output_folder_alone(run, folder):
    (folder / "photos" / "inner").mkdir()
    (folder / "photos" / "a.png").rename(folder / "up.png")
    assert run("photos/*/../../up.png", "-o", "results/out") == 0
    assert (folder / "results/out/up.png").is_file() and not (folder / "results/up.png").exists()


def test_patterns_do_not_follow_links_in_circles(run, folder, capsys):
    (folder / "photos" / "up").symlink_to("..")
    (folder / "photos" / "here").symlink_to(".")
    (folder / "photos" / ".hidden.png").write_bytes((folder / "photos" / "a.png").read_bytes())
    for pattern in ("photos/**", "photos/**/*.png", "photos/***", "**/?.png"):
        assert run(pattern, "-o", "out") == 0
        assert capsys.readouterr().err.endswith(("3 restored, in out\n", "3 already there, in out\n"))
    assert {path.name for path in (folder / "out").rglob("*.png")} == {"a.png", "b.png", "c.png"}


@pytest.mark.parametrize("kind", ["pipe", "folder", "circle", "nowhere"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_what_stands_in_place_of_a_result_stops_no_other_photo(run, folder, capsys, kind, overwrite):
    (folder / "out").mkdir()
    place = folder / "out" / "a.png"
    {
        "pipe": lambda: os.mkfifo(place),
        "folder": place.mkdir,
        "circle": lambda: place.symlink_to("a.png"),
        "nowhere": lambda: place.symlink_to("../new.png"),
    }[kind]()
    replaced = overwrite and kind == "nowhere"
    assert run("photos", "-o", "out", *(["--overwrite"] if overwrite else [])) == (0 if replaced else 1)
    assert ("3 restored" if replaced else "2 restored, 1 left out") in capsys.readouterr().err
    assert results(folder / "photos") == ["a.png", "b.png", "c.png"] and not (folder / "new.png").exists()


def test_a_link_in_place_of_the_records_is_refused(run, folder, capsys):
    (folder / "out").mkdir()
    (folder / "victim").write_text("precious")
    (folder / "out" / RECORDS).symlink_to("../victim")
    assert run("photos", "-o", "out") == 2
    assert "out/restored.jsonl: a symbolic link, which could lead anywhere; remove it" in capsys.readouterr().err
    assert (folder / "victim").read_text() == "precious" and results(folder / "out") == []


def test_files_without_end_are_not_read(run, folder, capsys, monkeypatch):
    """A file of /proc says that it is empty and waits; a sparse one says that it is larger than all memory."""
    with (folder / "large.png").open("wb") as large:
        large.truncate(1 << 42)
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) if path.suffix != ".png" else pytest.fail("read"))
    assert run("large.png", "/proc/self/maps", "-o", "out") == 1
    printed = capsys.readouterr().err
    assert "left out: large.png: does not fit into memory" in printed
    assert "left out: /proc/self/maps: the file is empty" in printed


def test_a_stream_without_end_is_read_as_far_as_memory_goes(weights, monkeypatch):
    class Endless(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            assert 0 < size < 100_000
            return bytes(size)

    monkeypatch.setattr("codes.data.images.available_memory", lambda: 400_000)
    with pytest.raises(ImageError, match="stdin: does not fit into memory"):
        restoring.pipe(load_restorer(weights, "cpu"), Endless(), io.BytesIO(), RestoreSettings())


def test_a_folder_that_may_not_be_read_is_named(run, folder, capsys, monkeypatch):
    (folder / "photos" / "closed").mkdir()
    scandir = os.scandir

    def refusing(path="."):
        if os.fspath(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return scandir(path)

    monkeypatch.setattr("os.scandir", refusing)
    assert run("photos", "-o", "out") == 1
    printed = capsys.readouterr().err
    assert (
        "left out: photos/closed: cannot be read: Permission denied" in printed and "3 restored, 1 left out" in printed
    )


def test_names_that_are_too_long_or_no_text_do_not_stop_the_others(run, folder, capsys):
    content = (folder / "photos" / "a.png").read_bytes()
    long = "n" * 244 + ".png"
    (folder / "photos" / long).write_bytes(content)
    Path(os.fsdecode(bytes(folder / "photos") + b"/\xff\xfe.png")).write_bytes(content)
    assert run("photos", "-o", "out") == 0
    assert len(results(folder / "out")) == 5
    assert run("photos", "-o", "out") == 0
    assert "0 restored, 5 already there" in capsys.readouterr().err
    # A comparison has a longer name than its photo, and this one has no room for it.
    assert run("photos", "-o", "more", "--compare") == 1
    printed = capsys.readouterr().err
    assert "4 restored, 1 left out" in printed and "File name too long; choose a shorter name" in printed


def test_a_photo_too_large_for_memory_is_left_out_before_it_is_decoded(run, folder, capsys, monkeypatch):
    Image.fromarray(np.zeros((3000, 4000), np.uint8)).save(folder / "photos" / "big.png")
    monkeypatch.setattr("codes.data.images.available_memory", lambda: 1e9)
    assert run("photos", "-o", "out") == 1
    printed = capsys.readouterr().err
    assert "left out: photos/big.png: restoring 12 megapixels takes 1.7 GB of memory, 1.0 GB are free" in printed
    assert "3 restored, 1 left out" in printed


def test_a_name_with_control_characters_is_one_plain_line_c19(run, folder, capsys):
    for name in ("a", "b"):
        (folder / "photos" / f"{name}.png").unlink()
    (folder / "photos" / "a\n\x1b[2J.png").write_text("no image")
    assert run("photos", "-o", "out") == 1
    printed = capsys.readouterr().err
    assert "left out: photos/a\\n\\x1b[2J.png: not an image" in printed and "\x1b" not in printed


def test_frames_are_noted_per_photo(run, folder, capsys):
    frames = [Image.fromarray(np.full((20, 20, 3), 80 * k, np.uint8)) for k in range(2)]
    frames[0].save(folder / "many.tif", save_all=True, append_images=frames[1:])
    assert run("many.tif", "-o", "out") == 0
    assert "many.tif: only the first of 2 pages is taken" in capsys.readouterr().err


# ---- records


@pytest.mark.parametrize(
    "line",
    [
        '{"name": "a.png", "source": "x", "settings": {}, "files": ["a.png"]}',
        '{"name": "a.png", "source": "x", "settings": [], "files": {"a.png": "y"}}',
        '{"name": ["a.png"], "source": 1, "settings": {}, "files": {}}',
        '{"name": "a.png"}',
        "[" * 100_000,
        '"text"',
    ],
)
def test_odd_records_are_passed_over(run, folder, line, capsys):
    (folder / "out").mkdir()
    (folder / "out" / RECORDS).write_text(line + "\n")
    assert run("photos", "-o", "out") == 0
    assert run("photos", "-o", "out") == 0
    assert "0 restored, 3 already there" in capsys.readouterr().err


@pytest.mark.parametrize("file", ["{photo}", "../photos/a.png", "x/../../photos/a.png"])
def test_a_record_makes_no_photo_outside_its_folder_a_result_e4(run, folder, file, capsys):
    (folder / "out").mkdir()
    files = {file.format(photo=folder / "photos" / "a.png"): "0"}
    record = {"name": "a.png", "source": "x", "settings": {}, "files": files}
    (folder / "out" / RECORDS).write_text(json.dumps(record) + "\n")
    assert run("photos", "-o", "out") == 0
    assert "3 restored" in capsys.readouterr().err


def test_a_damaged_record_is_told_and_its_result_is_not_touched(run, folder, capsys):
    assert run("photos", "-o", "out") == 0
    before = {name: (folder / "out" / name).read_bytes() for name in results(folder / "out")}
    path = folder / "out" / RECORDS
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0].replace('"seed": 0', '"seed": 1'), *lines[1:]]) + "\n")
    assert run("photos", "-o", "out") == 1
    printed = capsys.readouterr().err
    assert "restored.jsonl: damaged, 1 of its lines cannot be read and are left out" in printed
    assert "out/a.png: exists but is not a result of restore.py; --overwrite replaces it" in printed
    assert {name: (folder / "out" / name).read_bytes() for name in before} == before


# ---- several at once


def test_a_photo_that_another_process_has_is_done_last(run, folder, capsys, monkeypatch):
    """Another process holds a.png and gives it back when this one has done the others."""
    order = []
    original = restoring._claimed
    monkeypatch.setattr(restoring, "_claimed", lambda *a: order.append(a[1].name) or original(*a))
    held = claim(Path("out/a.png"))
    held.__enter__()
    pauses = []

    def pause(stop):
        def release():
            pauses.append(list(order))
            held.__exit__(None, None, None)

        return release

    monkeypatch.setattr(restoring, "_pause", pause)
    assert run("photos", "-o", "out") == 0
    assert order == ["b.png", "c.png", "a.png"] and pauses == [["b.png", "c.png"]]
    printed = capsys.readouterr().err
    assert "out/a.png: in use by process" in printed and "3 restored, in out" in printed


def test_what_another_process_finished_meanwhile_is_found_done(folder, weights, capsys):
    """Two sets of results in one process stand for two processes: the records of one are seen by the other."""
    settings = {"seed": 0, "strength": 1.0}
    first, second = (Results(folder / "out", dict(settings)) for _ in range(2))
    with first.claimed("a.png", 0.0):
        with pytest.raises(Busy), second.claimed("a.png", 0.0):
            pass
        first.write("a.png", "digest", {"a.png": b"content"}, {})
    with second.claimed("a.png", 0.0):
        assert second.state("a.png", "digest", ["a.png"]) == (True, "")
    other = Results(folder / "out", {"seed": 1, "strength": 1.0})
    with other.claimed("a.png", 0.0):
        done, obstacle = other.state("a.png", "digest", ["a.png"])
    assert not done and "was made with other settings (seed: 0 -> 1)" in obstacle


@pytest.mark.parametrize("different", [False, True], ids=["equal settings", "other settings"])
def test_three_at_once_overwrite_nothing_and_tell_the_truth(folder, weights, different):
    rng = np.random.default_rng(1)
    names = [f"{i}.png" for i in range(12)]
    for name in names:
        save_image(rng.integers(0, 255, (16, 16, 3)).astype(np.uint8), folder / "many" / name)
    command = [sys.executable, str(ROOT / "restore.py"), "many", "-o", "out", "--opt", str(weights), "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    started = [
        subprocess.Popen(
            [*command, "--nfe", str(n if different else 2)], stderr=subprocess.PIPE, text=True, env=environment
        )
        for n in (1, 2, 3)
    ]
    printed = [process.communicate(timeout=240)[1] for process in started]
    codes = [process.returncode for process in started]
    records = [json.loads(line) for line in (folder / "out" / RECORDS).read_text().splitlines()]
    assert sorted(record["name"] for record in records) == sorted(names), printed  # each was made once
    assert results(folder / "out") == sorted(names)
    restored = [int(text.splitlines()[-1].split(" restored")[0]) for text in printed]
    assert sum(restored) == len(names)
    if different:
        assert all(code == (0 if count == len(names) else 1) for code, count in zip(codes, restored, strict=True)), (
            printed
        )
        assert all("was made with other settings" in text for text, code in zip(printed, codes, strict=True) if code)
    else:
        assert codes == [0, 0, 0], printed
    assert not any("is not a result of restore.py" in text for text in printed)


def test_leftovers_of_killed_runs_are_removed_and_those_of_living_ones_stay(run, folder):
    (folder / "out").mkdir()
    (folder / "out" / ".mr-dead.part").write_bytes(b"half")
    with claim(folder / "out" / "elsewhere.png"):
        assert run("photos", "-o", "out") == 0
        left = [path.name for path in (folder / "out").iterdir() if path.name.startswith(".mr-")]
    assert len(left) == 1 and left[0].endswith(".lock")
    assert not list((folder / "out").glob(".mr-*"))


def test_a_record_that_another_process_writes_at_the_same_moment_is_read(tmp_path, monkeypatch):
    """Between the look at the records and the own line: it counted as seen, and its photo as nobody's."""
    ours, theirs = (Results(tmp_path, {"strength": 1.0}) for _ in range(2))
    append = JsonLines.append

    def first_theirs(self, record):
        if record["name"] == "a.png":
            theirs.write("b.png", "source", {"b.png": b"b"}, {})
        return append(self, record)

    monkeypatch.setattr(JsonLines, "append", first_theirs)
    ours.write("a.png", "source", {"a.png": b"a"}, {})
    for results, name in ((ours, "b.png"), (theirs, "a.png")):
        with results.claimed(name, 0.0):
            assert results.state(name, "source", [name]) == (True, "")


# ---- progress


def test_the_time_left_follows_the_restored_megapixels():
    now = [0.0]
    with Meter([2.0, 4.0, 6.0], clock=lambda: now[0]) as meter:
        assert meter.left is None
        meter.begin(2.0)
        meter.end(False)  # done earlier: no time, and no speed
        assert meter.left is None and meter.done == 2.0
        meter.begin(4.0)
        now[0] += 10.0
        meter.advance(0.25)  # reading and preparing are part of these 10 s
        assert meter.left is None
        now[0] += 4.0
        meter.advance(0.5)  # a megapixel in 4 s: 8 are left
        assert meter.left == pytest.approx(32.0) and meter.left_in_words == "about 32 s left"
        now[0] += 8.0
        meter.advance(1.0)
        meter.end(True)  # the next photo is read and prepared too: 4 megapixels took 22 s
        assert meter.left == pytest.approx(33.0) and meter.number == 2
        meter.begin(6.0)
        meter.advance(1.0)
        meter.end(True)
        assert meter.left_in_words == ""
    assert (spoken(59.6), spoken(3599), spoken(3600)) == ("1:00 min", "59:59 min", "1:00 h")


def test_a_slow_start_does_not_spoil_the_time_left():
    now = [0.0]
    with Meter([1.0] * 10, clock=lambda: now[0]) as meter:
        for seconds, left in ((5.0, None), (0.5, 4.0), (0.5, 3.5)):
            meter.begin(1.0)
            now[0] += seconds
            meter.advance(1.0)  # at once: one evaluation of one tile
            meter.end(True)
            assert meter.left == left


def test_progress_counts_the_tiles_of_all_samples(weights):
    from codes import load_restorer

    restorer, shares = load_restorer(weights, device="cpu"), []
    image = torch.rand(3, 64, 200, generator=torch.Generator().manual_seed(0))
    restorer.sample(image, 2, nfe=2, tile=64, progress=shares.append)
    tiles = 4  # along 200 pixels, with an overlap of 16
    assert shares == pytest.approx([(k + 1) / (2 * 2 * tiles) for k in range(2 * 2 * tiles)])


def test_an_interruption_ends_after_one_tile(weights):
    from codes import load_restorer

    calls = []

    def stop(share):
        calls.append(time.monotonic())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_restorer(weights, device="cpu").sample(torch.rand(3, 64, 200), 2, nfe=2, tile=64, progress=stop)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"tile": True}, "tile must be an integer from 64 to"),
        ({"tile": 1.5}, "tile must be an integer from 64 to"),
        ({"tile": 63}, "tile must be an integer from 64 to"),
        ({"tile": "x"}, "tile must be 'auto', 'off' or an integer from 64 on, got 'x'"),
        ({"seed": -1}, "seed must be an integer from 0 to"),
        ({"seed": 10**400}, "seed must be an integer from 0 to"),
        ({"seed": 1.0}, "seed must be an integer from 0 to"),
        ({"n": 0}, "n must be an integer from 1 to 1000, got 0"),
        ({"n": 1001}, "n must be an integer from 1 to 1000, got 1001"),
        ({"n": True}, "n must be an integer from 1 to 1000, got True"),
    ],
)
def test_arguments_of_the_api_have_bounds(weights, arguments, reason):
    from codes import load_restorer

    with pytest.raises(ValueError, match="must be") as refused:
        load_restorer(weights, device="cpu").sample(torch.rand(3, 64, 64), **{"n": 1, "nfe": 1, **arguments})
    assert reason in str(refused.value) and len(str(refused.value)) < 150
