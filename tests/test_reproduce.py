"""The paper's tables: published numbers, rendering from stored cells, verdicts, and the runs behind them."""

import csv
import json
import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from codes.commands.reproduce import NAMES as ALL_NAMES
from codes.commands.reproduce import main
from codes.evaluation.tables import QUALITY
from codes.names import TASKS
from codes.reproduce import catalogue
from codes.reproduce.catalogue import METHODS, PAPER_NFES, SAME, TABLE_OF_TASK, TABLES, all_runs
from codes.reproduce.drawing import NAMES as FIGURE_NAMES
from codes.reproduce.drawing import curve_points, draw
from codes.reproduce.findings import EXPECTATIONS, judge, orders, speed_up, theory
from codes.reproduce.published import published, remarks
from codes.reproduce.render import best, compared_rows
from codes.reproduce.report import write_report
from codes.reproduce.results import Cell, Results, collect, load, save

from .evaluation import write_images, write_options, write_weights

ROOT = Path(__file__).parent.parent
NAMES = [name for name in ALL_NAMES if name not in FIGURE_NAMES]
PRINTED = {"posterior-official": "Posterior", "euler-official": "Euler", "mr-1": "MR Sampler-1", "mr-2": "MR Sampler-2"}


def paper_as_results(model: str = "daclip") -> Results:
    """Every cell of every table: the paper's numbers where it has them, else what theory expects."""
    cells = []
    for task, method in all_runs(NAMES):
        table = published()[TABLE_OF_TASK[task]]
        for nfe in METHODS[method].nfes:
            values = dict(table.values(PRINTED.get(method, "MR Sampler-1"), nfe) or table.values("MR Sampler-1", 5))
            if (method, nfe) in {("mr-2-noise", 10), ("mr-2-noise", 5), ("mr-2", 2)}:
                values |= {"psnr": 6.5, "lpips": 1.4}
            metrics = {name: values[name] for name in sorted(values)}
            cells.append(Cell(task=task, method=method, nfe=nfe, images=4, seconds=nfe / 10, metrics=metrics))
    environment = {"commit": ["0123456789abcdef"], "torch": ["2.13.0"]}
    settings = {"model": model, "images": 4, "size": 128, "seed": 0}
    return Results(settings=settings, environment=environment, cells=tuple(cells))


def without(results: Results, *cells: tuple[str, str, int]) -> Results:
    return replace(
        results, cells=tuple(cell for cell in results.cells if (cell.task, cell.method, cell.nfe) not in cells)
    )


def written(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# ---- what was published


def test_every_published_number_is_the_papers():
    paper = json.loads((ROOT / "tests" / "golden" / "paper_tables.json").read_text())
    expected = {
        **paper["tasks"],
        "parameterization": paper["ablat_param"],
        "solver-type": paper["ablat_solver"],
        **{f"wall-clock-{task}": rows for task, rows in paper["wall_clock_A800"].items()},
        "optimal-nfe": paper["optimal_nfe_snowy"],
        "datasets": paper["datasets"],
    }
    assert {name: table.records() for name, table in published().items()} == expected
    assert sum(len(rows) for rows in expected.values()) == 10 * 20 + 8 + 8 + 10 + 10 + 9 + 10


def test_remarks_are_about_printed_numbers():
    for one in remarks():
        assert published()[one.table].values(one.method, one.nfe)[one.metric.lower()] == one.printed
    assert [(one.table, one.nfe, one.printed) for one in remarks() if one.certain] == [("motion-blurry", 50, 0.244)]


def test_every_published_row_is_in_a_table_of_ours():
    shown = set()
    for table in TABLES.values():
        for part in table.parts:
            for line in compared_rows(table, part, Results()):
                shown |= {(part.published, line.nfe, value) for value in line.paper.values() if value is not None}
    for table in published().values():
        for record in table.records():
            for name, value in record.items():
                if name in ("LPIPS", "FID", "PSNR", "SSIM", "seconds"):
                    assert (table.name, record["nfe"], value) in shown


def test_paper_counts_of_first_against_second_order():
    text = orders(Results())
    assert re.findall(r"\| (\w+) \| (\d+ of \d+) \|", text) == [
        ("LPIPS", "36 of 50"), ("FID", "29 of 50"), ("PSNR", "48 of 50"), ("SSIM", "50 of 50"),
    ]  # fmt: skip


# ---- rendering


def test_rendering_is_deterministic_and_does_not_depend_on_the_order_of_cells(tmp_path):
    results = paper_as_results()
    write_report(results, tmp_path / "a", NAMES, [])
    cells = list(results.cells)
    random.Random(0).shuffle(cells)
    write_report(replace(results, cells=tuple(cells)), tmp_path / "b", NAMES, [])
    write_report(load(tmp_path / "a" / "cells.json"), tmp_path / "c", NAMES, [])
    assert written(tmp_path / "a") == written(tmp_path / "b") == written(tmp_path / "c")
    suffixes = sorted(path.suffix for path in (tmp_path / "a" / "tables").iterdir())
    assert suffixes == sorted([".md", ".csv"] * len(NAMES))


def test_cells_survive_being_saved(tmp_path):
    results = paper_as_results()
    save(results, tmp_path / "cells.json")
    again = load(tmp_path / "cells.json")
    assert set(map(repr, again.cells)) == set(map(repr, results.cells))
    assert (again.settings, again.environment) == (results.settings, results.environment)


def test_our_number_the_papers_and_the_difference(tmp_path):
    results = paper_as_results()
    cells = [
        replace(cell, metrics={**cell.metrics, "psnr": 30.0})
        if (cell.task, cell.method, cell.nfe) == ("rainy", "mr-2", 20)
        else cell
        for cell in results.cells
    ]
    write_report(replace(results, cells=tuple(cells)), tmp_path, ["rainy"], [])
    row = "MR Sampler-2 | 0.0635 (0.0635, +0.0000) | **27.79** (27.79, +0.00) | **30.00** (28.6, +1.40)"
    assert row in (tmp_path / "tables" / "rainy.md").read_text()
    with (tmp_path / "tables" / "rainy.csv").open() as file:
        line = next(row for row in csv.DictReader(file) if (row["method"], row["nfe"]) == ("MR Sampler-2", "20"))
    assert (line["psnr"], line["psnr_paper"], line["psnr_difference"]) == ("30.0", "28.6", "1.4")


def test_embedded_model_is_not_compared_by_difference(tmp_path):
    write_report(paper_as_results("embedded"), tmp_path, NAMES, [])
    report = (tmp_path / "REPORT.md").read_text()
    assert "are of another network" in report and "not the paper's images" in report
    assert "0.0635 (0.0635)" in report and "(0.0635, " not in report
    assert "reproduced within" not in report


def test_a_missing_cell_shows_as_missing(tmp_path, capsys):
    results = without(paper_as_results(), ("rainy", "mr-2", 20))
    save(results, tmp_path / "cells.json")
    assert main(["--render-only", "--results", str(tmp_path), "--table", "rainy", "overview"]) == 1
    message = capsys.readouterr().err
    assert "1 of 550 cells are missing, the first: rainy, MR Sampler-2 at NFE 20" in message
    markdown = (tmp_path / "tables" / "rainy.md").read_text()
    assert "| MR Sampler-2 | – (0.0635) | – (27.79) | – (28.6) | – (0.8559) |" in markdown
    assert "1 of 55 rows are missing" in markdown
    assert "| MR Sampler-2 | – " in (tmp_path / "tables" / "overview.md").read_text()  # no mean over nine tasks
    with (tmp_path / "tables" / "rainy.csv").open() as file:
        line = next(row for row in csv.DictReader(file) if (row["method"], row["nfe"]) == ("MR Sampler-2", "20"))
    assert (line["images"], line["lpips"], line["lpips_paper"], line["lpips_difference"]) == ("0", "", "0.0635", "")


def test_without_results_it_says_so(tmp_path, capsys):
    assert main(["--render-only", "--results", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_rendering_needs_no_torch(tmp_path):
    save(paper_as_results(), tmp_path / "cells.json")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from codes.commands.reproduce import main\n"
        f"sys.exit(main(['--render-only', '--results', {str(tmp_path)!r}, '--table', 'rainy', 'overview']))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    assert "## Expected by theory" in (tmp_path / "REPORT.md").read_text()


def test_misprints_are_marked_and_not_corrected(tmp_path):
    write_report(paper_as_results(), tmp_path, NAMES, [])
    assert "(0.244<sup>!</sup>, " in (tmp_path / "tables" / "motion-blurry.md").read_text()
    assert "misprint: motion-blurry, NFE 50, MR Sampler-1, LPIPS 0.244: " in (tmp_path / "REPORT.md").read_text()


def test_best_is_the_best_at_that_nfe():
    table = TABLES["inpainting"]
    lines = compared_rows(table, table.parts[0], without(paper_as_results(), ("uncompleted", "pc", 20)))
    for column in QUALITY:
        for nfe in PAPER_NFES:
            values = [
                line.ours[column.name].mean for line in lines if line.nfe == nfe and line.ours[column.name] is not None
            ]
            marked = [lines[i].ours[column.name].mean for i in best(lines, column) if lines[i].nfe == nfe]
            assert set(marked) == {min(values) if column.lower_is_better else max(values)}


def test_rows_of_fewer_images_are_named(tmp_path):
    results = paper_as_results()
    cells = [replace(c, images=3) if (c.task, c.method, c.nfe) == ("hazy", "pc", 8) else c for c in results.cells]
    write_report(replace(results, cells=tuple(cells)), tmp_path, ["hazy"], [])
    report = (tmp_path / "REPORT.md").read_text()
    assert "4 images; fewer in some rows, as they say" in report
    assert re.search(r"\| mrsampler-pc \| 3 \|", report) and re.search(r"\| MR Sampler-1 \| 4 \|", report)


def test_curves_show_the_cells_and_the_papers_numbers_with_its_own_model():
    ours = curve_points(paper_as_results("embedded"))
    assert len(ours) == 10 * (55 + 2) and not any(point.published for point in ours)  # 2: both strides at NFE 100
    theirs = [point for point in curve_points(paper_as_results()) if point.published]
    assert len(theirs) == 10 * 20
    values = next(one.values for one in theirs if (one.task, one.method, one.nfe) == ("uncompleted", "Euler", 5))
    assert values == {"lpips": 0.8525, "fid": 384.7, "psnr": 9.587, "ssim": 0.1042}


def test_published_curves_are_drawn_where_the_images_are_the_papers():
    results = paper_as_results("embedded")
    sets = {"noisy": {"folder": "CBSD68", "images": 68}}
    points = curve_points(replace(results, settings={**results.settings, "sets": sets}))
    assert {point.task for point in points if point.published} == {"noisy"}


def test_a_report_to_keep_has_no_svg_files_and_no_copies_of_its_tables(tmp_path):
    save(paper_as_results(), tmp_path / "cells.json")
    arguments = ["--render-only", "--results", str(tmp_path), "--table", "rainy", "curves"]
    assert main(arguments) == 0
    assert {path.suffix for path in (tmp_path / "figures").iterdir()} == {".png", ".svg"}
    assert main([*arguments, "--report", str(tmp_path / "kept")]) == 0
    assert {path.name for path in (tmp_path / "kept").rglob("*") if path.is_file()} == {
        "REPORT.md", "cells.json", "curves.png",
    }  # fmt: skip


def test_pictures_of_an_earlier_drawing_are_kept(tmp_path):
    picture = tmp_path / "figures" / "stability.png"
    picture.parent.mkdir()
    picture.write_bytes(b"drawn before")
    found = draw(Results(), tmp_path, tmp_path, ["stability", "comparison"])
    assert [(name, path) for name, _, path in found] == [("stability", picture)]
    write_report(Results(), tmp_path, ["rainy"], found)
    assert "![stability](figures/stability.png)" in (tmp_path / "REPORT.md").read_text()


# ---- verdicts


def test_expectations_follow_from_the_cells():
    results = paper_as_results()
    assert [judge(expectation, results)[1] for expectation in EXPECTATIONS] == [True] * len(EXPECTATIONS)
    assert f"{len(EXPECTATIONS)} of {len(EXPECTATIONS)} came out, 0 did not." in theory(results)


def test_a_failed_expectation_is_reported_with_its_meaning():
    results = paper_as_results()
    good = next(cell for cell in results.cells if (cell.task, cell.method, cell.nfe) == ("rainy", "mr-2", 50))
    cells = [
        replace(cell, metrics=good.metrics) if (cell.method, cell.nfe) == ("mr-2-noise", 10) else cell
        for cell in results.cells
    ]
    text = theory(replace(results, cells=tuple(cells)))
    assert f"{len(EXPECTATIONS) - 1} of {len(EXPECTATIONS)} came out, 1 did not" in text
    assert text.count("**did not come out** (rainy).") == 1
    assert "What that may mean: The reference is data prediction" in text


def test_an_expectation_without_its_cells_is_not_decided():
    results = without(paper_as_results(), ("snowy", "pc", 2))
    undecided = [expectation.text for expectation in EXPECTATIONS if judge(expectation, results)[1] is None]
    assert undecided == ["mrsampler-pc does not collapse at 2 evaluations."]
    assert all(judge(expectation, Results())[1] is None for expectation in EXPECTATIONS)


def test_speed_up_is_the_fewest_evaluations_as_good_as_posterior_with_100():
    results = paper_as_results()
    cells = [replace(cell, metrics={"lpips": 0.1 if cell.nfe >= 10 else 0.2, "psnr": 20.0}) for cell in results.cells]
    text = speed_up(replace(results, cells=tuple(cells)))
    assert "| MR Sampler-2 | 10 | +0.0000 | 10.0 | 10.0 |" in text
    assert "| Posterior, correct stride | 10 | +0.0000 | 10.0 | 10.0 |" in text


# ---- the cells


def test_with_as_many_evaluations_as_steps_both_strides_are_one_scheme():
    from codes import MeanRevertingSDE, Solver, make_plan

    sde = MeanRevertingSDE()
    for (ours, nfe), theirs in SAME.items():
        plans = [make_plan(sde, Solver(num_sample_steps=nfe, **METHODS[name].options)) for name in (ours, theirs)]
        assert plans[0].parameterization == plans[1].parameterization and plans[0].clamp == plans[1].clamp
        for a, b in zip(plans[0].steps, plans[1].steps, strict=True):
            assert a.point.t == b.point.t
            numbers = [(step.advance.a, step.advance.b, *step.advance.c, abs(step.advance.d)) for step in (a, b)]
            assert numbers[0] == pytest.approx(numbers[1], rel=1e-9, abs=1e-12)


def test_every_method_has_the_label_that_its_run_gives_it(tmp_path):
    from codes.reproduce.results import label
    from codes.reproduce.runs import Setup, base_options, run_options

    setup = Setup(model="embedded", file=ROOT / "options" / "paper" / "embedded.yml", root=tmp_path, images=2)
    base = base_options(setup)
    for method, chosen in METHODS.items():
        solvers = run_options(setup, base, "rainy", method).solvers()
        assert [name for name, _ in solvers] == [label(method, nfe) for nfe in chosen.nfes]


@pytest.fixture
def few(monkeypatch):
    """Methods at few evaluations, so that all runs take seconds."""
    for name in ("mr-2", "mr-2-noise"):
        monkeypatch.setitem(catalogue.METHODS, name, replace(METHODS[name], nfes=(5, 2)))


def test_runs_are_done_once_and_refuse_to_be_mixed(tmp_path, few, capsys):
    write_weights(tmp_path / "tiny.safetensors", "noise")
    write_images(tmp_path / "data", ("rainy",), images=2)
    options = {
        "datasets": {"val": {"root": str(tmp_path / "data")}},
        "path": {"pretrain_model_G": str(tmp_path / "tiny.safetensors")},
        "metrics": {"names": ["psnr", "ssim"]},
        "device": "cpu",
    }
    (tmp_path / "options.yml").write_text(json.dumps(options))
    out = tmp_path / "out"
    command = ["--table", "parameterization", "-opt", str(tmp_path / "options.yml"), "--results", str(out)]
    command += ["--model", "daclip", "--fid", "none"]
    assert main(command) == 0
    results = collect(out)
    cells = {(cell.task, cell.method, cell.nfe, cell.images) for cell in results.cells}
    assert cells == {("rainy", method, nfe, 2) for method in ("mr-2", "mr-2-noise") for nfe in (5, 2)}
    summary = json.loads((out / "runs" / "rainy" / "mr-2" / "summary.json").read_text())
    row = next(row for row in summary["rows"] if row["solver"] == "mr-2-nfe5")
    assert results.mean(["rainy"], "mr-2", 5, "psnr") == row["metrics"]["psnr"]
    degraded = next(row for row in summary["rows"] if row["solver"] == "(input)")
    assert f"| 0 | degraded image | {degraded['metrics']['psnr']:.2f} ± " in (out / "REPORT.md").read_text()
    before = written(out / "runs")
    assert main(command) == 0  # everything is there
    assert written(out / "runs") == before

    capsys.readouterr()
    assert main([*command, "--images", "1"]) == 2
    assert "other settings, and resuming would mix results; choose another --results" in capsys.readouterr().err
    (tmp_path / "tiny.safetensors").unlink()
    write_weights(tmp_path / "tiny.safetensors", "velocity")
    assert main(command) == 2
    assert "sha256" in capsys.readouterr().err
    assert main(["--table", "hazy", *command[2:-4], "--results", str(tmp_path / "other"), "--fid", "none"]) == 1
    assert "no folder for hazy" in capsys.readouterr().err


def test_crops_are_the_middles_of_degraded_images(tmp_path):
    from codes.data.images import read_picture
    from codes.reproduce.runs import Setup, base_options, cut, find_tasks
    from codes.runtime.distributed import Process

    demo = f"datasets.photos.dataroot_GT={ROOT / 'options' / 'demo' / 'GT'}"
    file = ROOT / "options" / "paper" / "embedded.yml"
    setup = Setup(model="embedded", file=file, root=tmp_path, images=2, size=100, overrides=(demo,))
    tasks = cut(setup, find_tasks(setup, base_options(setup))[0], 0, Process())
    assert [(name, len(task.items)) for name, task in tasks.items()] == [(task, 2) for task in TASKS]
    for task in tasks.values():
        for item in task.items:
            whole = read_picture(ROOT / "options" / "demo" / "GT" / f"{item.name}.png").rgb
            assert (read_picture(item.gt).rgb == whole[:, 78:178, 78:178]).all()
            assert read_picture(item.lq).rgb.shape == (3, 100, 100)
    assert {item.name for task in tasks.values() for item in task.items} == {
        path.stem for path in (ROOT / "options" / "demo" / "GT").iterdir()
    }


def test_all_ten_tasks_have_a_table_and_every_table_its_runs():
    assert {TABLE_OF_TASK[task] for task in TASKS} <= set(TABLES)
    assert {method for _, method in all_runs(["rainy"])} == set(METHODS) - {"mr-2-noise", "mr-2-ode"}
    assert all_runs(["parameterization"]) == [("rainy", "mr-2"), ("rainy", "mr-2-noise")]


def test_missing_weights_are_one_line(tmp_path, capsys):
    changes = ["path.pretrain_model_G=none.safetensors", f"datasets.photos.dataroot_GT={ROOT / 'options/demo/GT'}"]
    assert main(["--table", "rainy", "--set", *changes, "--results", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and "none.safetensors: no such file" in message


# ---- what is missing, and what the rest costs


@pytest.fixture
def world(tmp_path, few):
    """The options of a tiny network and two images of the task rainy alone."""
    write_weights(tmp_path / "tiny.safetensors", "noise")
    write_images(tmp_path / "data", ("rainy",), images=2)
    file = write_options(tmp_path, sde={}, sampler={})
    return ["-opt", str(file), "--model", "daclip", "--results", str(tmp_path / "out"), "--fid", "none"]


def test_what_is_missing_is_said_per_table_and_the_rest_is_done(world, tmp_path, capsys):
    assert main(["--table", "parameterization", "solver-type", "comparison", *world]) == 1
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert "table solver-type: no data" in lines and not any("parameterization: no data" in line for line in lines)
    assert "figure comparison: no data for low-light, noisy" in lines
    assert any("no folder for uncompleted" in line for line in lines)
    assert "6 of 10 cells are missing, the first: uncompleted, MR Sampler-2 at NFE 5" in captured.err
    assert {cell.task for cell in collect(tmp_path / "out").cells} == {"rainy"}


def test_missing_files_are_named_before_anything_is_loaded(world, tmp_path, capsys, monkeypatch):
    from codes.restoration import loading

    monkeypatch.setattr(loading, "load_networks", lambda *_: pytest.fail("loaded"))
    files = ["path.pretrain_model_G=a.pth", "path.daclip=b.pt", f"datasets.val.root={tmp_path / 'none'}"]
    assert main(["--table", "rainy", "hazy", *world, "--set", *files]) == 2
    *data, weights, encoder = capsys.readouterr().err.splitlines()
    assert data[0].endswith("none: no such folder") and data[1:] == ["table hazy: no data", "table rainy: no data"]
    assert "a.pth: no such file" in weights and "b.pt: no such file" in encoder
    assert not (tmp_path / "out").exists()
    assert main(["--table", "hazy", *world]) == 1  # without any images nothing needs to be loaded
    assert main(["--list", *world, "--set", *files]) == 0
    listed = {line.split()[1]: line for line in capsys.readouterr().out.splitlines() if line.startswith("table")}
    assert all(line.endswith(" no data") for name, line in listed.items() if name != "datasets")


def test_costs_are_listed_for_what_has_data(world, capsys):
    assert main(["--list", *world]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"table +hazy +Hazy +no data\n", printed)
    assert re.search(r"table +parameterization .* 28 evaluations, about \d+ s\n", printed)  # 2 images at NFE 5 and 2
    assert re.search(r"table +overview .* evaluations, about \d+ s; no data for motion-blurry, hazy, ", printed)


class Clock:
    """Time that passes while a network computes, 10 ms for 1000 pixels, and a little whenever it is read."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        self.now += 0.01
        return self.now

    def evaluate(self, x, mu, embedding):
        self.now += 1e-5 * x[:, 0].numel()
        return torch.zeros_like(x)


def test_estimated_time_is_right_within_a_factor_of_two(world, tmp_path, monkeypatch):
    """For images of two sizes, none of them the size that is timed."""
    from codes.networks.nafnet import NAFNet
    from codes.reproduce import cost
    from codes.reproduce.runs import Setup, base_options, find_tasks, run_all
    from codes.restoration.loading import restorer_of
    from codes.runtime.distributed import Process
    from codes.study import bench

    clock = Clock()
    monkeypatch.setattr(NAFNet, "evaluate", lambda _, *arguments: clock.evaluate(*arguments))
    monkeypatch.setattr(bench, "time", clock)
    setup = Setup(model="daclip", file=Path(world[1]), root=tmp_path / "out", fid="none")
    base = base_options(setup)
    restorer = restorer_of(base)
    tasks, _ = find_tasks(setup, base)
    images = cost.images_of(tasks, setup)
    assert images == {"rainy": cost.Images(2, (40 * 48 + 40 * 36) / 2)}
    pairs = all_runs(["parameterization"])
    evaluations, estimated = cost.cost(setup, pairs, images, cost.measure(setup, base, restorer, Process()))
    assert evaluations == 28
    start = clock.now
    assert run_all(setup, pairs, tasks, Process(), restorer, print) == (0, [])
    assert estimated / 2 < clock.now - start < 2 * estimated
    assert cost.cost(setup, pairs, images, None) == (0, 0)  # nothing is left
