"""Tables: averages of records, the best of a column, and the same rows in every format."""

import csv
import io
import json

import pytest

from codes.evaluation import tables
from codes.evaluation.records import Record
from codes.evaluation.tables import ALL, averages, best, mean, overall
from codes.rows import METRICS

PSNR, LPIPS, FID = (METRICS[name] for name in ("psnr", "lpips", "fid"))


def record(task, solver, name, psnr, lpips=0.5, seconds=1.0, tile=None):
    return Record(
        task=task,
        solver=solver,
        name=name,
        nfe=5,
        seed=0,
        seconds=seconds,
        tile=tile,
        metrics={"psnr": psnr, "lpips": lpips},
    )


def two_tasks(hazy_lpips=0.3):
    records = [
        record("rainy", "a", "0", 20.0, 0.2, 1.0),
        record("rainy", "a", "1", 30.0, 0.4, 3.0, tile=64),
        record("rainy", "b", "0", 24.0),
        record("hazy", "a", "0", 10.0, hazy_lpips),
        record("hazy", "b", "0", 12.0),
    ]
    order = [(task, solver) for task in ("rainy", "hazy", "snowy") for solver in ("a", "b")]
    return averages(records, order, [PSNR, LPIPS, FID], {"rainy": 2}, {("rainy", "a"): {"fid": 7.0}})


def test_mean_needs_every_value():
    assert mean([1.0, 2.0, 6.0]) == 3.0
    assert mean([1.0, None]) is None
    assert mean([]) is None


def test_best_is_the_best_of_at_least_two_known_values():
    assert best([1.0, 3.0, 2.0], lower_is_better=False) == {1}
    assert best([1.0, 3.0, None, 1.0], lower_is_better=True) == {0, 3}  # ties
    assert best([1.0, None], lower_is_better=True) == set()
    groups = ["a", "b", "a", "b", "c"]
    assert best([1.0, 5.0, 2.0, 4.0, 9.0], True, groups) == {0, 3}  # c has nothing to be compared with


def test_averages_are_over_the_records_of_a_task_and_solver():
    rows = two_tasks()
    assert [(row.task, row.solver) for row in rows] == [("rainy", "a"), ("rainy", "b"), ("hazy", "a"), ("hazy", "b")]
    first = rows[0]
    assert (first.images, first.left_out, first.nfe, first.seconds, first.tiled) == (2, 2, 5.0, 2.0, 1)
    assert first.metrics == {"psnr": 25.0, "lpips": pytest.approx(0.3), "fid": 7.0}
    assert rows[1].metrics["fid"] is None  # neither in the records nor given for the set


def test_the_mean_over_tasks_counts_every_task_the_same():
    means = overall(two_tasks())
    assert [(row.task, row.solver, row.images) for row in means] == [(ALL, "a", 3), (ALL, "b", 2)]
    assert means[0].metrics["psnr"] == 17.5  # not 20, the mean over images
    assert means[0].metrics["fid"] is None  # known for one of the tasks only
    assert overall(two_tasks(hazy_lpips=None))[0].metrics["lpips"] is None
    assert overall(two_tasks()[:2]) == []  # one task is its own mean
    assert [row.solver for row in overall(two_tasks()[:3])] == ["a"]  # b lacks a task


def test_terminal_table_is_aligned_and_marks_the_best_of_each_task():
    lines = tables.text_table(two_tasks(), [PSNR, LPIPS, FID]).splitlines()
    assert lines == [
        "task   solver  NFE  images  PSNR ↑  LPIPS ↓  FID ↓  s/image",
        "rainy  a         5  2 (-2)  25.00*  0.3000*   7.00     2.00",
        "rainy  b         5  1 (-2)   24.00   0.5000    n/a     1.00",
        "hazy   a         5       1   10.00  0.3000*    n/a     1.00",
        "hazy   b         5       1  12.00*   0.5000    n/a     1.00",
    ]


def test_markdown_has_the_alignment_in_its_rule():
    assert (
        tables.markdown(["a", "b", "c"], [["1", "2", "3"]]) == "| a | b | c |\n| --- | ---: | ---: |\n| 1 | 2 | 3 |\n"
    )
    assert tables.markdown(["a", "b", "c"], [], "rlr").splitlines()[1] == "| ---: | --- | ---: |"
    assert tables.markdown(["a", "b"], [], "l").splitlines()[1] == "| --- | --- |"
    assert tables.markdown(["a"], [], "llr").splitlines()[1] == "| --- |"
    text = tables.markdown_table(two_tasks(), [PSNR])
    assert "| rainy | a | 5 | 2 (-2) | **25.00** | 2.00 |\n" in text and "| rainy | b | 5 | 1 (-2) | 24.00 |" in text


def test_csv_has_all_digits_and_empty_cells():
    assert tables.csv_text(["a", "b"], [["x, y", 0.1 + 0.2], [None, ""]]) == 'a,b\n"x, y",0.30000000000000004\n,\n'
    first, second, *_ = csv.DictReader(io.StringIO(tables.csv_table(two_tasks(), [PSNR, LPIPS, FID])))
    assert (first["task"], first["images"], first["left_out"], first["tiled"]) == ("rainy", "2", "2", "1")
    assert float(first["lpips"]) == mean([0.2, 0.4]) and first["seconds"] == "2.0000" and second["fid"] == ""


def test_json_has_rows_means_and_notes():
    rows = two_tasks()
    content = json.loads(tables.json_table(rows, overall(rows), ["a note"]))
    assert [row["metrics"]["psnr"] for row in content["rows"]] == [25.0, 24.0, 10.0, 12.0]
    assert content["means"][0]["task"] == ALL and content["notes"] == ["a note"]


def test_a_column_says_which_direction_is_better():
    assert (PSNR.heading, LPIPS.heading) == ("PSNR ↑", "LPIPS ↓")
    assert (LPIPS.text(0.12345), LPIPS.text(None), LPIPS.text(None, "–")) == ("0.1235", "n/a", "–")
