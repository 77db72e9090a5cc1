"""What test.py makes of damaged, hostile and crowded folders: one line, nothing lost, exact continuation.

Names such as W2 are those of docs/reliability.md.
"""

import errno
import io
import json
import os
import shutil
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from codes.commands.test import main as evaluate
from codes.data.images import save_image
from codes.evaluation.records import read_records
from codes.evaluation.summary import set_features
from codes.runtime.files import write_arrays

from .evaluation import images_of, rows, run_one, write_images, write_options, write_weights

SOLVERS = {"sampler": {"num_sample_steps": [2, 3]}, "sde": {"algorithm": "mrsampler-pc"}}
IMAGES = 6  # two solvers, three images


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Weights, images, and a finished run."""
    folder = tmp_path_factory.mktemp("faults")
    write_weights(folder / "tiny.safetensors")
    write_images(folder / "data", ("rainy",), images=3)
    run_one(folder, **SOLVERS)
    return folder


def whole(place: Path, world: Path) -> None:
    """The run is as if nothing had happened."""
    ours, theirs = place / "results" / "run", world / "results" / "run"
    assert images_of(ours) == images_of(theirs)
    assert len(read_records(ours)) == IMAGES
    assert [(label, row["metrics"], row["images"]) for label, row in rows(ours).items()] == [
        (label, row["metrics"], row["images"]) for label, row in rows(theirs).items()
    ]
    assert (ours / "rainy.png").read_bytes() == (theirs / "rainy.png").read_bytes()


def spoiled(content: bytes, how: str) -> bytes:
    if how == "empty":
        return b""
    if how == "cut":
        return content[: len(content) * 2 // 3]
    if how == "noise":
        return bytes(range(256)) * 3
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


HARMS = ("empty", "cut", "flipped", "noise")


@pytest.mark.parametrize("kind", ["pipe", "folder", "link", "circle"])
def test_what_stands_in_place_of_a_restored_image_is_replaced_w2(world, place, kind):
    image, victim = place / "results" / "run" / "rainy" / "mrsampler-pc-nfe2" / "000.png", place / "victim"
    victim.write_bytes(b"precious")
    image.unlink()
    {
        "pipe": lambda: os.mkfifo(image),
        "folder": image.mkdir,
        "link": lambda: image.symlink_to(victim),
        "circle": lambda: image.symlink_to("000.png"),
    }[kind]()
    run_one(place, **SOLVERS)
    whole(place, world)
    assert victim.read_bytes() == b"precious" and not image.is_symlink()
    assert image.with_name("000.png.damaged").is_dir() == (kind == "folder")  # set aside, not deleted


def test_a_link_in_place_of_the_records_is_refused(world, place, capsys):
    records, victim = place / "results" / "run" / "records.0.jsonl", place / "victim"
    records.rename(victim)
    before = victim.read_bytes()
    records.symlink_to(victim)
    changed = {**SOLVERS, "sampler": {"num_sample_steps": [2, 3, 4]}}
    run_one(place, 2, **changed)
    assert f"{records}: a symbolic link, which could lead anywhere; remove it" in capsys.readouterr().err
    assert victim.read_bytes() == before


@pytest.mark.parametrize("how", HARMS)
@pytest.mark.parametrize("name", ["000", "002"])
def test_a_damaged_restored_image_is_restored_again_w2(world, place, caplog, how, name):
    path = place / "results/run/rainy/mrsampler-pc-nfe2" / f"{name}.png"
    path.write_bytes(spoiled(path.read_bytes(), how))
    run_one(place, **SOLVERS)
    assert f"{path}: damaged or changed; restored again" in caplog.messages
    whole(place, world)
    assert len((place / "results/run/records.0.jsonl").read_text().splitlines()) == IMAGES


def test_a_damaged_image_of_another_solver_is_taken_out_of_the_table_w2(world, place, caplog):
    path = place / "results/run/rainy/mrsampler-pc-nfe3/001.png"
    path.write_bytes(b"")
    only = {**SOLVERS, "sampler": {"num_sample_steps": 2}}
    run_one(place, **only)
    assert f"{path}: damaged or changed; a run with mrsampler-pc-nfe3 restores it again" in caplog.messages
    assert rows(place / "results/run")["mrsampler-pc-nfe3"]["images"] == 2
    run_one(place, **SOLVERS)
    whole(place, world)


FILES = ("environment.json", "options.yml", "made-with.json", "inputs.jsonl", "records.0.jsonl", "summary.json")


@pytest.mark.parametrize("how", HARMS)
@pytest.mark.parametrize("name", FILES)
def test_damaged_files_are_noticed_and_written_again_c6(world, place, caplog, name, how):
    path = place / "results/run" / name
    before = path.read_bytes()
    path.write_bytes(spoiled(before, how))
    run_one(place, **SOLVERS)
    whole(place, world)
    if name in ("made-with.json", "inputs.jsonl") and how != "cut":
        assert any(f"{name}: damaged" in message for message in caplog.messages)
    if name in ("options.yml", "made-with.json"):
        assert path.read_bytes() == before.replace(str(world).encode(), str(place).encode()) or name == "options.yml"


@pytest.mark.parametrize(
    "line",
    [
        {"task": [], "solver": "s", "name": "n", "nfe": 1, "seed": 0, "seconds": 0},
        {"task": "rainy", "solver": "mrsampler-pc-nfe2", "name": "000", "nfe": 1, "seed": 0, "seconds": 0,
         "metrics": None},
        {"task": "rainy", "solver": "mrsampler-pc-nfe2", "name": "000", "nfe": "x", "seed": 0, "seconds": 0},
        {"task": "rainy", "solver": "mrsampler-pc-nfe2", "name": "000", "nfe": 2, "seed": 0, "seconds": 0,
         "metrics": {"psnr": []}},
        {"unknown": 1},
        [1, 2],
        None,
    ],
)  # fmt: skip
def test_records_of_wrong_types_do_not_count_c6(world, place, line):
    path = place / "results/run/records.0.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([json.dumps(line) + "\n", *lines[:2], json.dumps(line) + "\n", *lines[3:]]))
    run_one(place, **SOLVERS)
    whole(place, world)


@pytest.mark.parametrize(
    "changed",
    [
        {"task": "../../victim"},
        {"solver": "../../victim/s"},
        {"solver": "(input)/../../../victim/s"},
        {"name": "../../../../victim/s/a"},
        {"name": "VICTIM"},  # an absolute path
        {"name": "x" * 5000},
        {"name": "ä" * 255},  # fits into some file systems, and not into others
        {"name": "a\0b"},
    ],
)
def test_a_record_leads_nothing_out_of_its_folder_e4(world, place, changed):
    (place / "victim" / "s" / "a.png").mkdir(parents=True)
    line = {"task": "rainy", "solver": "s", "name": "a", "nfe": 1, "seed": 0, "seconds": 0, "image": "0"} | changed
    line["name"] = line["name"].replace("VICTIM", str(place / "victim" / "s" / "a"))
    (place / "results/run/records.9.jsonl").write_text(json.dumps(line) + "\n")
    run_one(place, **SOLVERS)
    whole(place, world)
    assert [path.name for path in (place / "victim" / "s").iterdir()] == ["a.png"]  # not set aside


def test_a_label_of_made_with_leads_nothing_out_of_its_folder_e4(world, place, caplog):
    path = place / "results/run/made-with.json"
    found = json.loads(path.read_text())
    del found["check"]
    found["solvers"]["../../../victim"] = {"algorithm": "mrsampler"}
    path.write_text(json.dumps(found))
    run_one(place, **SOLVERS)
    whole(place, world)
    assert f"{path}: damaged, not what binds a results folder" in caplog.text


def test_records_cut_at_any_length_c6(world, place):
    path = place / "results/run/records.0.jsonl"
    content = path.read_bytes()
    for length in (0, 1, 40, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:length])
        run_one(place, **SOLVERS)
        whole(place, world)


@pytest.mark.parametrize("how", HARMS)
def test_a_damaged_made_with_does_not_hide_other_weights_c6(place, capsys, how):
    path = place / "results/run/made-with.json"
    path.write_bytes(spoiled(path.read_bytes(), how))
    (place / "tiny.safetensors").unlink()
    write_weights(place / "tiny.safetensors", "data")
    capsys.readouterr()
    run_one(place, 2, **SOLVERS)
    assert "which ones cannot be told: made-with.json was damaged or lost" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content", ["null", "5", "[]", '{"solvers": {"a": 5}}', '{"solvers": {}, "weights": 5}', '{"solvers": null}']
)
def test_a_made_with_of_other_kinds_is_set_aside_c6(world, place, caplog, content):
    path = place / "results/run/made-with.json"
    path.write_text(content)
    run_one(place, **SOLVERS)
    whole(place, world)
    assert content == "null" or f"{path}: damaged" in caplog.text


@pytest.mark.parametrize(
    "content", ["!!python/name:os.system", "a: &a [*a]", "a: &a {b: *a}", "datasets: 5", "a: &a [x, x]\n" * 3]
)
def test_options_of_other_kinds_are_one_line_c6(place, capsys, content):
    folder = place / "results/run"
    for name in ("made-with.json", "records.0.jsonl"):
        (folder / name).unlink()
    (folder / "options.yml").write_text(content + "\n")
    run_one(place, 2, **SOLVERS)
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith(f"{folder / 'options.yml'}: ") and len(said) < 400


@pytest.mark.parametrize("how", HARMS)
def test_damaged_scores_are_set_aside_c6(world, place, how):
    run_one(place, arguments=("--score-only",), **SOLVERS)
    path = place / "results/run/scores.jsonl"
    path.write_bytes(spoiled(path.read_bytes(), how))
    run_one(place, **SOLVERS)
    whole(place, world)


@pytest.mark.parametrize("how", HARMS)
def test_damaged_features_are_computed_again_c6(world, tmp_path, how, caplog):
    from codes.data.sets import Task
    from codes.evaluation.job import Job

    path = tmp_path / "features/t/GT.npz"
    write_arrays(path, {"names": np.array(["a"]), "features": np.full((1, 4), 7, np.float32)})
    path.write_bytes(spoiled(path.read_bytes(), how))
    image = world / "data/rainy/GT/000.png"
    job = Job(folder=tmp_path, tasks=(), plans=())
    found = set_features(job, Task(name="t", items=()), "GT", {"a": image}, lambda pixels: np.ones(4, np.float32))
    assert (found == 1).all() and "computed again" in caplog.text
    again = set_features(
        job, Task(name="t", items=()), "GT", {"a": image}, lambda pixels: pytest.fail("computed again")
    )
    assert (again == found).all()


# ---- bad inputs


def test_an_image_that_does_not_fit_into_memory_is_left_out_c2(place, capsys, monkeypatch):
    from codes.restoration.restorer import Restorer

    original = Restorer.batch

    def limited(self, lq, *arguments, **keywords):
        if lq.shape[-1] > 60:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 48000000000 bytes")
        return original(self, lq, *arguments, **keywords)

    monkeypatch.setattr(Restorer, "batch", limited)
    for kind in ("LQ", "GT"):
        save_image(np.zeros((40, 80, 3), np.uint8), place / f"data/rainy/{kind}/000-large.png")
    for _ in range(2):
        run_one(place, 1, **SOLVERS)
        printed = capsys.readouterr().out
        assert printed.count("left out: ") == 1
        assert f"left out: {place}/data/rainy/LQ/000-large.png: 80x40 pixels do not fit into memory" in printed
        assert {row["images"] for row in rows(place / "results/run").values()} == {3} and "3 (-1)" in printed
        assert "not restored yet" not in printed


def test_an_image_without_room_for_restoring_it_is_not_even_decoded_c2(place, capsys, monkeypatch):
    """The system would end the process, not raise an error; decoding alone would fit."""
    from codes.data import images
    from codes.data import sets as sets_module

    for kind in ("LQ", "GT"):
        save_image(np.zeros((400, 500, 3), np.uint8), place / f"data/rainy/{kind}/000-large.png")
    monkeypatch.setattr(images, "available_memory", lambda: 20e6)
    decoded, original = [], sets_module.decode_picture
    monkeypatch.setattr(
        sets_module, "decode_picture", lambda content, name: decoded.append(name) or original(content, name)
    )
    run_one(place, 1, **SOLVERS)
    printed = capsys.readouterr().out
    assert f"{place}/data/rainy/LQ/000-large.png: restoring 0 megapixels takes 0.0 GB of memory, 0.0 GB" in printed
    assert decoded and not any("large" in name for name in decoded) and "3 (-1)" in printed


def test_a_clean_image_that_is_too_small_to_be_degraded_is_left_out_c2(place, capsys):
    small = place / "data" / "rainy" / "GT" / "000.png"  # the first one: those after it are restored
    save_image(np.full((16, 20, 3), 90, np.uint8), small)
    clean = {"datasets": {"val": {"mode": "GT", "dataroot_GT": str(small.parent), "degradation": ["rainy"]}}}
    folder = run_one(place, 1, name="clean", **clean).with_name("clean")
    assert f"left out: {small}: 20x16 is too small to be degraded (rainy), at least 32x32" in capsys.readouterr().out
    assert [Path(path).name for path in images_of(folder)] == ["001.png", "002.png"]


def test_a_name_with_control_characters_is_one_plain_line_c19(place, capsys):
    (place / "data/rainy/LQ/a\n\x1b[2J.png").write_text("no image")
    (place / "data/rainy/GT/a\n\x1b[2J.png").write_text("no image")
    run_one(place, 1, **SOLVERS)
    printed = capsys.readouterr().out
    assert f"left out: {place}/data/rainy/GT/a\\n\\x1b[2J.png: not an image" in printed and "\x1b" not in printed


def test_a_name_that_is_not_utf8_is_left_out_c3(place, capsys):
    for kind in ("LQ", "GT"):
        folder = os.fsencode(place / f"data/rainy/{kind}")
        shutil.copy(folder + b"/000.png", folder + b"/\xff\xfe.png")
    run_one(place, 1, **SOLVERS)
    printed = capsys.readouterr().out
    assert "its name is not UTF-8; rename the file" in printed and "3 (-1)" in printed


@pytest.mark.parametrize("length", [244, 251])
def test_long_names_are_restored_c4(place, length):
    for kind in ("LQ", "GT"):
        shutil.copy(place / f"data/rainy/{kind}/000.png", place / f"data/rainy/{kind}" / ("n" * length + ".png"))
    run_one(place, **SOLVERS)
    assert {row["images"] for row in rows(place / "results/run").values()} == {4}


def test_a_name_that_the_results_folder_cannot_have_is_left_out_c4(place, capsys, monkeypatch):
    from codes.evaluation import run

    original = run.write_atomically

    def refuse(path, content):
        if "000" in path.name:
            raise OSError(errno.ENAMETOOLONG, "File name too long", str(path))
        original(path, content)

    shutil.rmtree(place / "results")
    monkeypatch.setattr(run, "write_atomically", refuse)
    run_one(place, 1, **SOLVERS)
    printed = capsys.readouterr().out
    assert f"left out: {place}/data/rainy/LQ/000.png: its result cannot be written: File name too long" in printed
    assert {row["images"] for label, row in rows(place / "results/run").items() if label != "(input)"} == {2}


def test_a_subfolder_that_cannot_be_read_is_named_w5(place, capsys, monkeypatch):
    closed = place / "data/rainy/LQ/closed"
    closed.mkdir()
    original = os.scandir

    def scandir(path):
        if os.fspath(path) == str(closed):
            raise PermissionError(errno.EACCES, "Permission denied", str(closed))
        return original(path)

    monkeypatch.setattr(os, "scandir", scandir)
    run_one(place, 1, **SOLVERS)
    printed = capsys.readouterr().out
    assert f"left out: {closed}: this folder cannot be read: Permission denied" in printed


# ---- names, disks, terminals, several at once


@pytest.mark.parametrize("name", ["../out", "/abs/out", "a/b", ".", "..", "x" * 300])
def test_the_name_of_a_set_is_no_path_e1(place, capsys, name):
    dataset = {"name": name, "mode": "LQ", "dataroot_LQ": str(place / "data/rainy/LQ")}
    run_one(place, 2, datasets={"v": dataset})
    assert "datasets.v.name: expected a name of letters, digits" in capsys.readouterr().err


def test_the_name_of_a_set_is_no_file_of_the_results_folder_c9(place, capsys):
    dataset = {"name": "summary.json", "mode": "LQ", "dataroot_LQ": str(place / "data/rainy/LQ")}
    run_one(place, 2, datasets={"v": dataset})
    assert "'summary.json' cannot be the name of a set of images" in capsys.readouterr().err


def test_the_name_of_a_file_is_no_path_e2(place, capsys):
    options = json.loads(write_options(place).read_text())
    del options["name"]
    (place / "...yml").write_text(json.dumps(options))
    assert evaluate(["-opt", str(place / "...yml")]) == 2
    assert "name: missing, and the file's own name '..' is not a name of letters" in capsys.readouterr().err


WRITES = {"write_all": (0, 1, 3, 6, 11, 16, 18, 20), "fsync": (0, 9), "replace": (0, 4, 10)}


@pytest.mark.parametrize("call", WRITES)
def test_a_full_disk_at_any_write_is_one_line_and_costs_nothing_c5(world, place, capsys, monkeypatch, call):
    """The k-th write, flush or renaming fails, and all that follow; then there is room again."""
    from codes.runtime import files

    owner = {"write_all": files, "fsync": os, "replace": Path}[call]
    original, left = getattr(owner, call), [0]

    def fills_up(*arguments):
        if left[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] -= 1
        return original(*arguments)

    monkeypatch.setattr(owner, call, fills_up)
    failed = 0
    for k in WRITES[call]:
        shutil.rmtree(place / "results")
        left[0] = k
        code = evaluate(["-opt", str(write_options(place, **SOLVERS))])
        printed = capsys.readouterr().err
        assert code in (0, 1) and printed.count("No space left on device") == code, (k, printed)
        assert ": cannot be" in printed or code == 0
        failed += code
        kept = read_records(place / "results/run")
        left[0] = 10**9
        run_one(place, **SOLVERS)
        after = read_records(place / "results/run")
        assert all(after[key] == record for key, record in kept.items())  # computed once
        whole(place, world)
        capsys.readouterr()
    assert failed > len(WRITES[call]) // 2


def test_any_terminal_c10(place, monkeypatch):
    for encoding in ("ascii", "latin-1"):
        buffer = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(buffer, encoding=encoding))
        run_one(place, **SOLVERS)
        sys.stdout.flush()
        assert b"PSNR ^" in buffer.getvalue() and b"mrsampler-pc-nfe3" in buffer.getvalue()


def at_once(*runs: dict) -> list[int]:
    """Exit codes of test.py in several threads."""
    codes: list[int] = [-1] * len(runs)

    def start(i: int, file: Path) -> None:
        codes[i] = evaluate(["-opt", str(file)])

    threads = [threading.Thread(target=start, args=(i, run["file"])) for i, run in enumerate(runs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return codes


def test_several_at_once_share_the_work(world, place, monkeypatch):
    from codes.restoration import restorer

    shutil.rmtree(place / "results")
    calls, original = [], restorer.sample
    monkeypatch.setattr(restorer, "sample", lambda *a, **k: (calls.append(1), original(*a, **k))[1])
    files = []
    for number, steps in enumerate((2, 3, [2, 3])):
        options = json.loads(write_options(place, **{**SOLVERS, "sampler": {"num_sample_steps": steps}}).read_text())
        files.append({"file": place / f"{number}.yml"})
        files[-1]["file"].write_text(json.dumps(options))
    assert at_once(*files) == [0, 0, 0]
    assert len(calls) == IMAGES  # nothing twice
    run_one(place, **SOLVERS)
    assert images_of(place / "results/run") == images_of(world / "results/run")
    assert not list((place / "results/run").rglob(".mr-*"))


def test_several_at_once_with_other_seeds_do_not_mix(place, capsys):
    shutil.rmtree(place / "results")
    files = []
    for seed in (0, 1):
        options = json.loads(write_options(place, seed=seed, **SOLVERS).read_text())
        files.append({"file": place / f"seed{seed}.yml"})
        files[-1]["file"].write_text(json.dumps(options))
    assert sorted(at_once(*files)) == [0, 2]
    assert "seed: " in capsys.readouterr().err
    assert len(read_records(place / "results/run")) == IMAGES


def test_fresh_folders_are_never_shared(place):
    files = [{"file": write_options(place, **SOLVERS)}] * 3
    codes = []
    threads = [
        threading.Thread(target=lambda: codes.append(evaluate(["-opt", str(files[0]["file"]), "--fresh"])))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert codes == [0, 0, 0]
    assert sorted(path.name for path in (place / "results").iterdir()) == ["run", "run-2", "run-3", "run-4"]
    assert all(len(read_records(place / "results" / name)) == IMAGES for name in ("run-2", "run-3", "run-4"))
