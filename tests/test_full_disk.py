"""A disk of test.py and restore.py that fails from any write on, or at it alone: one line, the same results later."""

import json
import shutil

import numpy as np
import pytest

from codes.commands.restore import main as restore
from codes.commands.test import main as evaluate
from codes.data.images import save_image
from codes.runtime.files import JsonLines, read_lines
from codes.runtime.locks import claim

from .evaluation import images_of, timeless, write_images, write_options
from .faults import survives_every_fault


class Runs:
    """Folders run-0, run-1, ...: the first is that of the undisturbed run, and what the others must equal."""

    def __init__(self, root):
        self.root, self.number = root, 0

    @property
    def name(self) -> str:
        return f"run-{self.number}"

    def next(self) -> None:
        if self.number:
            shutil.rmtree(self.root / self.name)
        self.number += 1


def without_leftovers(folder) -> bool:
    return not list(folder.rglob(".mr-*")) and not list(folder.rglob("*.damaged*"))


@pytest.mark.parametrize("only", [False, True], ids=["full", "once"])
def test_an_evaluation_survives_a_full_disk_at_every_write(only, tmp_path, weights, capsys):
    """C5."""
    shutil.copy(weights, tmp_path / "tiny.safetensors")
    write_images(tmp_path / "data", ("rainy",), 2)
    runs = Runs(tmp_path / "results")
    changes = {"sde": {"algorithm": "mrsampler"}, "sampler": {"num_sample_steps": 2}, "metrics": {"names": ["psnr"]}}

    def start():
        return evaluate(["-opt", str(write_options(tmp_path, runs.name, **changes))])

    def check():
        ours, first = runs.root / runs.name, runs.root / "run-0"
        assert images_of(ours) == images_of(first) and len(images_of(ours)) == 2
        assert {key: text.replace(runs.name, "run-0") for key, text in timeless(ours).items()} == timeless(first)
        sheets = [{path.name: path.read_bytes() for path in folder.glob("*.png")} for folder in (ours, first)]
        assert sheets[0] == sheets[1] and sheets[0]
        assert without_leftovers(ours)
        runs.next()

    total = survives_every_fault(start, check, lambda: capsys.readouterr().err, only=only, step=5 if only else 1)
    assert total > 40


@pytest.mark.parametrize("only", [False, True], ids=["full", "once"])
def test_a_restoration_survives_a_full_disk_at_every_write(only, tmp_path, weights, capsys):
    rng = np.random.default_rng(0)
    for name in ("a.png", "trip/b.jpg"):
        save_image(rng.integers(0, 255, (16, 24, 3)).astype(np.uint8), tmp_path / "photos" / name)
    runs = Runs(tmp_path / "out")
    settings = ["--opt", str(weights), "--nfe", "1", "--device", "cpu", "--compare"]

    def start():
        return restore([str(tmp_path / "photos"), "-o", str(runs.root / runs.name), *settings])

    def contents(folder):
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*")
            if path.suffix in (".png", ".jpg")
        }

    def check():
        ours, first = runs.root / runs.name, runs.root / "run-0"
        assert contents(ours) == contents(first) and len(contents(ours)) == 4
        names = {json.loads(line)["name"] for line in (ours / "restored.jsonl").read_text().splitlines()}
        assert names == {"a.png", "trip/b.jpg"}
        assert without_leftovers(ours)
        runs.next()

    assert survives_every_fault(start, check, lambda: capsys.readouterr().err, only=only) > 20


@pytest.mark.parametrize("k", range(4))
def test_an_error_of_records_and_locks_names_them(k, tmp_path):
    """Also where what was begun cannot be cut off again: the next start does that."""
    from .faults import disk

    path = tmp_path / "a.jsonl"
    with disk(full_from=k) as broken, pytest.raises(OSError) as failed, claim(path):
        JsonLines(path).append({"b": 2})
    assert len(broken.operations) > k and failed.value.filename == str(path)
    with claim(path):
        JsonLines(path).append({"b": 2})
    assert {line["b"] for line in read_lines(path).values} == {2} and not read_lines(path).damaged


@pytest.mark.parametrize("number", [13, 30], ids=["permission", "read-only"])
def test_a_folder_that_became_read_only_is_one_line(number, tmp_path, weights, capsys):
    """C8: a results folder that became read-only."""
    from .faults import disk

    shutil.copy(weights, tmp_path / "tiny.safetensors")
    write_images(tmp_path / "data", ("rainy",), 1)
    changes = {"sde": {"algorithm": "mrsampler"}, "sampler": {"num_sample_steps": 2}, "metrics": {"names": ["psnr"]}}
    options = str(write_options(tmp_path, "run", **changes))
    for full_from in (0, 9):
        with disk(full_from=full_from, error=number):
            assert evaluate(["-opt", options]) in (1, 2)
        said = capsys.readouterr().err
        assert ("Permission denied; give yourself permission" in said) or ("Read-only file system; this file" in said)
    assert evaluate(["-opt", options]) == 0
