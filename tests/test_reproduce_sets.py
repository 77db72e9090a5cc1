"""reproduce.py on the paper's test sets: which images, how they are degraded, how many, and with published weights."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from codes.commands.reproduce import main
from codes.config import build_solvers
from codes.data.images import read_picture, save_image, to_uint8
from codes.data.pairs import image_seed
from codes.data.sets import load_item
from codes.networks import architecture, build
from codes.networks.checkpoints import Metadata, save_checkpoint
from codes.reproduce import catalogue
from codes.reproduce.catalogue import METHODS
from codes.reproduce.report import what_differs
from codes.reproduce.results import Results, collect, load, save
from codes.reproduce.runs import Setup, base_options, find_tasks, parts, run_options
from codes.reproduce.testsets import TEST_SETS
from codes.reproduce.verdicts import RULES
from codes.sde import MeanRevertingSDE

from .evaluation import write_options, write_weights
from .network_examples import DACLIP_SETTING, TINY_DACLIP

ROOT = Path(__file__).parent.parent


def picture(seed: int, height: int = 40, width: int = 48) -> np.ndarray:
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (5, 6, 3)).astype(np.uint8)
    return np.kron(small, np.ones((8, 8, 1), np.uint8))[:height, :width]


def write_sets(root: Path, images: int = 3) -> None:
    """The four sets in the documented layout, some images each."""
    for number, known in enumerate(TEST_SETS.values()):
        for i in range(images):
            clean = picture(10 * number + i)
            if known.folder in ("CBSD68", "LIVE1"):
                save_image(clean, root / known.folder / f"{i:04}.png")
            else:
                save_image(clean, root / known.folder / "GT" / f"{i:04}.png")
                save_image((clean // 2).astype(np.uint8), root / known.folder / "LQ" / f"{i:04}.png")


@pytest.fixture
def setup(tmp_path):
    write_sets(tmp_path / "testsets")
    write_weights(tmp_path / "tiny.safetensors", "velocity")
    photos = {"dataroot_GT": str(ROOT / "options/demo/GT"), "degradation": "all"}
    file = write_options(tmp_path, sde={}, sampler={}, datasets={"photos": photos})
    return Setup(model="embedded", file=file, root=tmp_path / "out", data=tmp_path / "testsets", images=2, fid="none")


def test_four_tasks_are_of_the_sets_and_the_others_as_the_options_say(setup):
    tasks, problems = find_tasks(setup, base_options(setup))
    assert problems == {}
    for name, task in tasks.items():
        folders = {str(item.gt.parent) for item in task.items}
        if name in TEST_SETS:
            root = setup.data / TEST_SETS[name].folder
            assert folders == {str(root if name in ("noisy", "jpeg-compressed") else root / "GT")}
            assert len(task.items) == 3  # all of them
        else:
            assert folders == {str(ROOT / "options/demo/GT")} and len(task.items) == 2


def test_clean_sets_are_degraded_as_published(setup):
    """Noise of 50/255, clipped, truncated to 8 bits; JPEG of quality 10 by OpenCV."""
    import cv2

    tasks, _ = find_tasks(setup, base_options(setup))
    for name in ("noisy", "jpeg-compressed"):
        item = tasks[name].items[1]
        loaded = load_item(tasks[name], item, image_seed(0, name, item.name))
        clean = to_uint8(read_picture(item.gt).rgb)
        if name == "noisy":
            noise = np.random.default_rng(image_seed(0, name, item.name)).standard_normal(clean.shape, dtype=np.float32)
            noisy = np.clip(clean.astype(np.float32) / np.float32(255) + np.float32(50 / 255) * noise, 0, 1)
            expected = np.floor(noisy * 255).astype(np.uint8)
        else:
            _, content = cv2.imencode(".jpg", clean[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 10])
            expected = cv2.imdecode(content, cv2.IMREAD_COLOR)[..., ::-1]
        assert (to_uint8(loaded.lq.rgb) == expected).all()


def test_degraded_images_of_a_set_are_used_where_they_are_there(setup):
    (setup.data / "CBSD68" / "GT").mkdir()
    for path in list((setup.data / "CBSD68").glob("*.png")):
        save_image(picture(99), setup.data / "CBSD68" / "LQ" / path.name)
        path.rename(setup.data / "CBSD68" / "GT" / path.name)
    tasks, _ = find_tasks(setup, base_options(setup))
    assert [item.lq.parent.name for item in tasks["noisy"].items] == ["LQ"] * 3


def test_a_missing_set_is_named_with_where_it_comes_from(setup, tmp_path):
    (tmp_path / "testsets" / "Rain100H").rename(tmp_path / "elsewhere")
    tasks, problems = find_tasks(setup, base_options(setup))
    assert "rainy" not in tasks and list(problems) == ["rainy"]
    assert "Rain100H" in problems["rainy"] and "docs/reproduce.md" in problems["rainy"]


def test_the_recommended_solver_is_the_checkpoints(setup):
    chosen = {"algorithm": "mrsampler-pc", "tau": 0.3}
    solvers = run_options(setup, base_options(setup), "rainy", "recommended", recommended=chosen).solvers()
    assert [solver["num_sample_steps"] for _, solver in solvers] == list(METHODS["recommended"].nfes)
    assert {solver["algorithm"] for _, solver in solvers} == {"mrsampler-pc"} and solvers[0][1]["tau"] == 0.3


@pytest.mark.parametrize("recommended", [{"order": 3}, {"predictor": 2}, {}])
def test_a_recommended_order_is_lowered_where_the_evaluations_do_not_reach_it(setup, recommended):
    base, chosen = base_options(setup), {"algorithm": "mrsampler", **recommended}
    ((key, order),) = (recommended or {"order": 2}).items()
    found = {}
    for count, nfes in parts(setup, "recommended", 100):
        assert count == 100
        options = run_options(setup, base, "rainy", "recommended", nfes=nfes, recommended=chosen)
        solvers = [planned.solver for planned in build_solvers(options, MeanRevertingSDE())]
        found |= {solver.num_sample_steps: getattr(solver, key) for solver in solvers}
    assert found == {nfe: min(nfe, order) for nfe in METHODS["recommended"].nfes}


@pytest.fixture
def few(monkeypatch):
    """Methods at few evaluations, above and below the number where fewer images are enough."""
    for name in ("mr-2", "mr-2-noise"):
        monkeypatch.setitem(catalogue.METHODS, name, replace(METHODS[name], nfes=(21, 2)))


def test_many_evaluations_take_the_stated_subset(setup, tmp_path, few, capsys):
    command = ["--table", "parameterization", "-opt", str(setup.file), "--results", str(setup.root)]
    command += ["--data", str(setup.data), "--subset", "2", "--fid", "all"]
    assert main(command) == 0, capsys.readouterr().err
    results = collect(setup.root)
    found = {(cell.method, cell.nfe): cell for cell in results.cells}
    assert {key: cell.images for key, cell in found.items()} == {
        (method, nfe): images for method in ("mr-2", "mr-2-noise") for nfe, images in ((21, 2), (2, 3))
    }
    # The first images by name; their mean is that of the values on record, and FID is not compared across numbers.
    for cell in found.values():
        assert list(cell.values["psnr"]) == ["0000", "0001", "0002"][: cell.images]
        assert np.mean(list(cell.values["psnr"].values())) == pytest.approx(cell.metrics["psnr"], abs=1e-3)
    assert all(cell.metrics.get("fid") is None for (_, nfe), cell in found.items() if nfe == 21)
    gap = results.difference(["rainy"], ("mr-2", 2), ("mr-2", 21), "psnr")
    values = [found["mr-2", nfe].values["psnr"] for nfe in (2, 21)]
    assert gap.count == 2 and gap.mean == pytest.approx(np.mean([values[0][n] - values[1][n] for n in values[1]]))
    report = (setup.root / "REPORT.md").read_text()
    assert "The paper's images: Rain100H, 3 of 100, whole images" in report
    assert "with more than 20 evaluations at most 2, the first by name" in report
    before = {path: path.read_bytes() for path in (setup.root / "runs").rglob("*") if path.is_file()}
    assert main(command) == 0  # resumed: nothing is left to do
    assert {path: path.read_bytes() for path in (setup.root / "runs").rglob("*") if path.is_file()} == before
    save(results, tmp_path / "cells.json")
    again = load(tmp_path / "cells.json")
    assert {repr(cell) for cell in again.cells} == {repr(cell) for cell in results.cells}


def test_whole_sets_are_restored_beside_the_parts_that_the_tables_are_of(setup, monkeypatch, capsys):
    monkeypatch.setitem(catalogue.METHODS, "recommended", replace(METHODS["recommended"], nfes=(8, 5)))
    command = ["--table", "rainy", "-opt", str(setup.file), "--results", str(setup.root)]
    for name in ("mr-1", "mr-2", "pc", "posterior", "posterior-official", "euler", "euler-official"):
        monkeypatch.setitem(catalogue.METHODS, name, replace(METHODS[name], nfes=(5,)))
    command += ["--data", str(setup.data), "--images", "2", "--size", "16", "--full", "--fid", "none"]
    assert main(command) == 0, capsys.readouterr().err
    results = collect(setup.root)
    assert {cell.images for cell in results.cells} == {2} and results.settings["set_size"] == 16
    full = results.full
    assert {(cell.task, cell.method, cell.nfe, cell.images) for cell in full.cells} == {
        ("rainy", "recommended", nfe, 3) for nfe in (8, 5)
    }
    assert full.settings["set_size"] is None and full.settings["sets"]["rainy"]["images"] == 3
    report = (setup.root / "REPORT.md").read_text()
    section = report[report.index("## The paper's test sets in full") :].split("\n## ")[0]
    assert "The paper's images: Rain100H, 3 of 100, whole images" in section
    assert f"| 5 | Recommended solver | {full.cell('rainy', 'recommended', 5).metrics['psnr']:.2f} ± " in section
    assert "|  | MR Sampler-1 | – (" in section
    assert load(setup.root / "cells.json").full == full
    assert "--data testsets --images 2 --size 16" in report and "--fid none --full`" in report


def test_what_differs_is_said_for_each_network_and_set():
    sets = {"sets": {"noisy": {"folder": "CBSD68", "images": 68}}}
    ours = Results(settings={"model": "embedded", "size": 256, "parameters": 8_300_000, **sets})
    text = what_differs(ours, "noisy")
    assert "CBSD68, 68 of 68, whole images" in text and "8.3 million" in text and "trained on ten data sets" in text
    assert "not the paper's images" in what_differs(ours, "hazy")
    theirs = Results(settings={"model": "daclip", **sets})
    assert what_differs(theirs, "noisy").endswith("What differs from the paper: the noise that is drawn.")


# ---- published weights


def small_daclip(folder: Path) -> list[str]:
    """Random weights in DA-CLIP's published format; the changes to options/mrsampler.yml that make them small."""
    torch.manual_seed(0)
    setting = DACLIP_SETTING | {"context_dim": 32}
    state = build(architecture("ConditionalUNet", setting, "daclip")).state_dict()
    torch.save({f"module.{key}": value for key, value in state.items()}, folder / "universal-ir.pth")
    clip = architecture("DaCLIP", TINY_DACLIP)
    save_checkpoint(folder / "daclip.safetensors", build(clip).state_dict(), Metadata(clip))
    return [
        f"network_G.setting={json.dumps(setting)}",
        f"path.pretrain_model_G={folder / 'universal-ir.pth'}",
        f"path.daclip={folder / 'daclip.safetensors'}",
        "device=cpu",
    ]


def test_published_weights_get_published_ours_difference_and_a_verdict(tmp_path, monkeypatch, capsys):
    write_sets(tmp_path / "testsets", images=2)
    out = tmp_path / "out"
    command = ["--model", "daclip", "--table", "parameterization", "--data", str(tmp_path / "testsets")]
    command += ["--fid", "none", "--results", str(out), "--set", *small_daclip(tmp_path)]
    for name in ("mr-2", "mr-2-noise"):
        monkeypatch.setitem(catalogue.METHODS, name, replace(METHODS[name], nfes=(5,)))  # which the paper has
    assert main(command) == 0, capsys.readouterr().err
    printed = capsys.readouterr().out
    assert printed.startswith(RULES)  # before anything is run
    cell = collect(out).cell("rainy", "mr-2", 5)
    assert cell is not None and cell.images == 2
    report = (out / "REPORT.md").read_text()
    assert RULES in report and "| NFE | method |  | published | ours | difference | verdict |" in report
    ours, change = cell.estimate("psnr"), cell.metrics["psnr"] - 28.82
    line = (
        f"| 5 | data prediction | PSNR | 28.82 | {ours.mean:.2f} ± {ours.error:.2f} | {change:+.2f} | not reproduced |"
    )
    assert line in report
    assert "| Ablation: noise against data prediction | 6 | " in report
    with (out / "tables" / "parameterization.csv").open() as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    assert rows["data prediction"]["psnr_verdict"] == "not reproduced"
    assert float(rows["data prediction"]["psnr_error"]) == pytest.approx(ours.error)
