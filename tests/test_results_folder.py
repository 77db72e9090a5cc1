"""A results folder is bound by weights, files and settings; solvers are added to it."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import yaml

from codes.commands.test import main as evaluate
from codes.data.images import read_picture, save_image, to_uint8
from codes.evaluation.records import read_records

from .evaluation import images_of, rows, run_one, write_images, write_weights
from .option_files import PUBLISHED


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Weights, images, and a finished run of one solver."""
    folder = tmp_path_factory.mktemp("folder")
    write_weights(folder / "tiny.safetensors")
    write_images(folder / "data", ("rainy",), images=3)
    return folder


def counting(monkeypatch, target: str) -> list[object]:
    """Record the calls of a function."""
    module, name = target.rsplit(".", 1)
    original, calls = getattr(__import__(module, fromlist=[name]), name), []

    def count(*arguments, **keywords):
        calls.append(arguments)
        return original(*arguments, **keywords)

    monkeypatch.setattr(target, count)
    return calls


def first_image(place: Path) -> dict:
    """The first image alone."""
    return {"val": {"root": str(place / "data"), "max_images": 1}}


# ---- solvers are added


def test_a_second_run_adds_its_solvers_and_computes_what_is_new(place, monkeypatch):
    folder = run_one(place)
    before, first = images_of(folder), rows(folder)
    computed = counting(monkeypatch, "codes.restoration.restorer.sample")
    scored = counting(monkeypatch, "codes.evaluation.run.save_input")
    run_one(place, sampler={"num_sample_steps": [2, 3], "order": 1})
    assert len(computed) == 3 and all(score is None for _, _, score, _ in scored)  # inputs.jsonl has their scores
    run_one(place, sde={"algorithm": "posterior"})
    assert len(computed) == 6
    found = rows(folder)
    assert list(found) == ["(input)", "mrsampler-nfe2", "mrsampler-nfe3", "posterior-nfe2"]
    assert {label: found[label] for label in first} == first
    assert before.items() <= images_of(folder).items() and len(images_of(folder)) == 9
    sheet = read_picture(folder / "rainy.png").rgb
    assert sheet.shape[2] > 5 * 220  # LQ, three solvers, GT


def test_a_run_in_two_parts_gives_the_images_of_one_run(place):
    run_one(place)
    two = run_one(place, sde={"algorithm": "posterior"})
    both = {"sde": {"algorithm": ["mrsampler", "posterior"]}}
    one = run_one(place, arguments=("--fresh",), **both)
    assert one == two and images_of(place / "results" / "run-2") == images_of(two)
    other = rows(place / "results" / "run-2")
    assert {label: row["metrics"] for label, row in rows(two).items()} == {
        label: row["metrics"] for label, row in other.items()
    }


def test_a_label_of_two_solvers_becomes_two_labels(place, caplog):
    caplog.set_level("INFO")
    folder = run_one(place)
    before = images_of(folder)
    run_one(place, sampler={"num_sample_steps": 2, "order": 2})
    told = f"mrsampler-nfe2 is called mrsampler-order2-nfe2 in {folder}, beside the solvers of earlier runs"
    assert told in caplog.messages
    assert list(rows(folder)) == ["(input)", "mrsampler-nfe2", "mrsampler-order2-nfe2"]
    # Also with another number of evaluations: mrsampler-nfe3 would look like the first one with one more.
    run_one(place, sampler={"num_sample_steps": 3, "order": 2}, datasets=first_image(place))
    assert list(rows(folder))[-1] == "mrsampler-order2-nfe3"
    assert before.items() <= images_of(folder).items()
    # Each run finds its own solver again, whatever the file calls it.
    sweep = {"num_sample_steps": 2, "order": [2, 1]}
    run_one(place, sampler=sweep)
    assert len(read_records(folder)) == 7
    assert json.loads((folder / "made-with.json").read_text())["solvers"] == {
        "mrsampler-nfe2": {"algorithm": "mrsampler", "num_sample_steps": 2, "order": 1},
        "mrsampler-order2-nfe2": {"algorithm": "mrsampler", "num_sample_steps": 2, "order": 2},
        "mrsampler-order2-nfe3": {"algorithm": "mrsampler", "num_sample_steps": 3, "order": 2},
    }


def test_the_published_version_of_a_solver_says_so_in_the_table(place, capsys):
    variants = {"old": {"algorithm": "posterior", "compat": "official"}, "new": {"algorithm": "posterior"}}
    folder = run_one(place, sampler={"num_sample_steps": 2, "variants": variants})
    run_one(place, sde={"algorithm": "mrsampler"}, sampler={"num_sample_steps": 2, "compat": "official"})
    printed = capsys.readouterr().out.splitlines()
    shown = [line.split("  ")[1].strip() for line in printed if line.startswith("rainy") and "nfe2" in line]
    assert shown[-3:] == ["old-nfe2, published stride", "new-nfe2", "mrsampler-nfe2, published code"]
    assert "| old-nfe2, published stride |" in (folder / "summary.md").read_text()
    assert list(rows(folder)) == ["(input)", "old-nfe2", "new-nfe2", "mrsampler-official-nfe2"]


def test_published_files_of_one_name_run_into_one_table(place):
    """Euler, posterior sampling and MR Sampler, as published; only data, weights and steps are those of this test."""
    for name in ("euler", "posterior", "mrsampler"):
        options = yaml.safe_load((PUBLISHED / f"test-{name}.yml").read_text())
        options["sampler"] |= {"num_sample_steps": 3, "fit_target": "velocity"}
        options |= {
            "results": str(place / "results"),
            "device": "cpu",
            "datasets": {"test1": {**options["datasets"]["test1"], "dataroot_LQ": str(place / "data/rainy/LQ"),
                                   "dataroot_GT": str(place / "data/rainy/GT")}},
            "path": {"pretrain_model_G": str(place / "tiny.safetensors")},
            "metrics": {"names": ["psnr"]},
        }  # fmt: skip
        del options["network_G"], options["distortion"]
        (place / f"{name}.yml").write_text(json.dumps(options))
        assert evaluate(["-opt", str(place / f"{name}.yml")]) == 0
    assert list(rows(place / "results" / "universal-ir")) == ["(input)", "sde-nfe3", "posterior-nfe3", "mrsampler-nfe3"]


def test_more_images_are_added_and_the_table_says_who_lacks_them(place):
    dataset = {"root": str(place / "data"), "max_images": 1}
    run_one(place, datasets={"val": dataset})
    folder = run_one(place, sde={"algorithm": "posterior"})
    assert {label: row["images"] for label, row in rows(folder).items()} == {
        "(input)": 3, "mrsampler-nfe2": 1, "posterior-nfe2": 3,
    }  # fmt: skip
    notes = json.loads((folder / "summary.json").read_text())["notes"]
    assert "fewer images than the others: mrsampler-nfe2; their option file restores the rest" in notes


def test_a_metric_that_an_earlier_run_lacks_is_named(place):
    run_one(place)
    folder = run_one(place, sde={"algorithm": "posterior"}, metrics={"names": ["psnr", "psnr_y"]})
    found = rows(folder)
    assert found["mrsampler-nfe2"]["metrics"]["psnr_y"] is None and found["posterior-nfe2"]["metrics"]["psnr_y"] > 0
    notes = json.loads((folder / "summary.json").read_text())["notes"]
    assert "psnr_y: not computed for images of earlier runs; --score-only computes it" in notes
    run_one(place, arguments=("--score-only",), metrics={"names": ["psnr", "psnr_y"]})
    assert rows(folder)["mrsampler-nfe2"]["metrics"]["psnr_y"] > 0


# ---- what binds


def refused(place: Path, capsys, **changes) -> list[str]:
    """The lines of the refusal; nothing is changed by it."""
    folder = place / "results" / "run"
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    capsys.readouterr()
    run_one(place, 2, **changes)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    return capsys.readouterr().err.strip().splitlines()


def test_changed_weights_are_named(place, capsys):
    folder = run_one(place)
    (place / "tiny.safetensors").unlink()
    write_weights(place / "tiny.safetensors", "data")
    lines = refused(place, capsys)
    assert lines[-3] == (
        f"{folder}: was made with other options and weights, and resuming would mix results; "
        "--fresh starts a new folder"
    )
    assert lines[-2:] == [
        "  fit_target: 'velocity' -> 'data'",
        f"  path.pretrain_model_G: {place}/tiny.safetensors has other content than before",
    ]


@pytest.mark.parametrize("kind", ["LQ", "GT"])
def test_changed_images_are_named(place, capsys, kind):
    folder = run_one(place)
    path = place / "data" / "rainy" / kind / "001.png"
    state = path.stat()
    image = to_uint8(read_picture(path).rgb)
    save_image(np.ascontiguousarray(image[:, ::-1]), path)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))  # content decides, not the time
    assert refused(place, capsys)[-2:] == [
        f"{folder}: was made with other images, and resuming would mix results; --fresh starts a new folder",
        f"  {path}: has other content than before",
    ]
    assert refused(place, capsys, sde={"algorithm": "posterior"})[-1].endswith("has other content than before")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"seed": 1}, "seed: 0 -> 1"),
        ({"compile": True}, "compile: false -> true"),
        ({"tile": 64}, "tile: 'auto' -> 64"),
        ({"precision": "bf16"}, "precision: 'float32' -> 'bfloat16'"),
        (
            {"metrics": {"names": ["psnr"], "crop_border": 4}},
            "metrics.crop_border: 0 -> 4 (--score-only scores all images again)",
        ),
    ],
)
def test_other_settings_are_named(place, capsys, changes, line):
    run_one(place)
    assert refused(place, capsys, **changes)[-1] == f"  {line}"


def test_the_degradation_of_clean_images_binds(place, capsys):
    dataset = {"mode": "GT", "dataroot_GT": str(place / "data/rainy/GT")}
    run_one(place, datasets={"val": dataset}, distortion="denoising")
    lines = refused(place, capsys, datasets={"val": dataset}, distortion="denoising", degradation={"sigma": 10})
    assert lines[-1] == "  val: its degraded images are made in another way: noisy, sigma 50 -> noisy, sigma 10"


def test_another_border_is_scored_again_on_request(place):
    folder = run_one(place)
    before = rows(folder)["mrsampler-nfe2"]["metrics"]["psnr"]
    metrics = {"names": ["psnr"], "crop_border": 4}
    run_one(place, arguments=("--score-only",), metrics=metrics)
    assert rows(folder)["mrsampler-nfe2"]["metrics"]["psnr"] != before
    run_one(place, metrics=metrics, sde={"algorithm": "posterior"})
    assert set(rows(folder)) == {"(input)", "mrsampler-nfe2", "posterior-nfe2"}


def test_a_folder_of_an_earlier_version_keeps_its_labels(place, capsys):
    """That version wrote options.yml, and records without checksums."""
    folder = run_one(place, sampler={"num_sample_steps": 2, "variants": {"paper": {"order": 2}}})
    (folder / "made-with.json").unlink()
    lines = (folder / "options.yml").read_text().splitlines(keepends=True)
    (folder / "options.yml").write_text("".join(lines[1:]))
    records = [json.loads(line) for line in (folder / "records.0.jsonl").read_text().splitlines()]
    old = ("task", "solver", "name", "nfe", "seed", "seconds", "tile", "metrics")
    (folder / "records.0.jsonl").write_text(
        "".join(json.dumps({key: record[key] for key in old}) + "\n" for record in records)
    )
    before = images_of(folder)
    run_one(place, sampler={"num_sample_steps": 2, "order": 2})
    assert images_of(folder) == before and list(rows(folder)) == ["(input)", "paper-nfe2"]
    run_one(place, 2, seed=5)
    assert "  seed: 0 -> 5" in capsys.readouterr().err


def test_weights_are_checked_once(place, monkeypatch):
    calls = counting(monkeypatch, "codes.restoration.loading.check_weights")
    run_one(place)
    assert len(calls) == 1


def test_the_folder_of_a_training_is_refused(place, capsys):
    folder = place / "results" / "run"
    folder.mkdir(parents=True)
    (folder / "options.yml").write_text("name: run\ntrain: {niter: 5}\n")
    assert refused(place, capsys)[-1] == f"{folder}: is the folder of a training; give this run another name"
