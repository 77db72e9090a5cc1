"""Standard errors, the rule for differences, and the rules for what counts as reproduced."""

import math
from dataclasses import replace

import numpy as np
import pytest

from codes.evaluation.statistics import Estimate, estimate, paired, pooled
from codes.reproduce.findings import COLUMNS
from codes.reproduce.results import Cell, Results
from codes.reproduce.testsets import TEST_SETS
from codes.reproduce.verdicts import NOT, TOLERANCES, verdict


def test_two_standard_errors_hold_the_true_mean_as_often_as_they_should():
    """95 % of the time for 60 normal values, and a difference of five standard errors is always seen."""
    rng = np.random.default_rng(0)
    samples = rng.normal(0, 3, (2000, 60))
    none = [estimate(values.tolist()).differs is False for values in samples]
    assert 0.93 < np.mean(none) < 0.97
    moved = [estimate((values + 5 * 3 / math.sqrt(60)).tolist()).sign(True) for values in samples[:200]]
    assert set(moved) <= {"worse", "none"} and moved.count("worse") > 195


def test_pairs_remove_what_images_have_in_common():
    """Images differ by 5 dB, the methods on each of them by 0.1: unpaired none, paired a difference."""
    rng = np.random.default_rng(1)
    hard = rng.normal(25, 5, 40)
    one = {str(i): value for i, value in enumerate(hard)}
    other = {str(i): value - 0.1 + rng.normal(0, 0.05) for i, value in enumerate(hard)}
    gap = paired(one, other)
    assert gap.sign(lower_is_better=False) == "better" and gap.mean == pytest.approx(0.1, abs=0.03)
    assert estimate(list(one.values())).error > 10 * gap.error
    assert paired(one, {"other": 1.0}) is None


def test_single_values_and_missing_tasks_decide_nothing():
    assert estimate([3.0]).differs is None and estimate([3.0]).sign(True) == "unknown"
    assert pooled([estimate([1.0, 2.0]), None]) is None
    assert pooled([estimate([1.0, 2.0]), estimate([5.0])]).error is None


def cells(values: dict[str, list[float]], nfe: int = 5) -> tuple[Cell, ...]:
    return tuple(
        Cell(
            task="rainy",
            method=method,
            nfe=nfe,
            images=len(each),
            seconds=1.0,
            metrics={"psnr": sum(each) / len(each)},
            values={"psnr": {str(i): value for i, value in enumerate(each)}},
        )
        for method, each in values.items()
    )


def test_methods_are_compared_on_the_images_of_both():
    """One of them has restored only the first two images, which happen to be easy."""
    results = Results(cells=cells({"mr-1": [30.0, 31.0, 20.0, 21.0], "mr-2": [29.0, 30.1]}))
    gap = results.difference(["rainy"], ("mr-1", 5), ("mr-2", 5), "psnr")
    assert (gap.mean, gap.count) == (pytest.approx(0.95), 2)
    assert results.mean(["rainy"], "mr-1", 5, "psnr") < results.mean(["rainy"], "mr-2", 5, "psnr")
    assert results.difference(["rainy", "hazy"], ("mr-1", 5), ("mr-2", 5), "psnr") is None


# ---- reproduced?


@pytest.mark.parametrize(
    ("metric", "published", "ours", "within"),
    [
        ("psnr", 28.6, 28.74, "reproduced within 0.15 dB"),
        ("psnr", 28.6, 28.76, NOT),
        ("ssim", 0.85, 0.8441, "reproduced within 0.006"),
        ("lpips", 0.85, 0.89, "reproduced within 5 %"),
        ("lpips", 0.03, 0.0319, "reproduced within 5 %"),  # 0.002 is more than 5 %
        ("lpips", 0.03, 0.0325, NOT),
        ("fid", 30.0, 33.2, "reproduced within 11 %"),
        ("fid", 30.0, 26.0, NOT),
    ],
)
def test_a_number_is_reproduced_within_the_tolerance(metric, published, ours, within):
    assert verdict(COLUMNS[metric], published, Estimate(ours, 0.0, 100), all_images=True) == within


def test_standard_errors_count_only_on_fewer_images_than_the_papers():
    """With the same images, another mean is another result, however much images differ."""
    ours = Estimate(27.0, 1.0, 10)
    assert verdict(COLUMNS["psnr"], 28.6, ours, all_images=False) == "reproduced within two standard errors"
    assert verdict(COLUMNS["psnr"], 28.6, ours, all_images=True) == NOT
    assert verdict(COLUMNS["psnr"], 29.1, ours, all_images=False) == NOT
    assert verdict(COLUMNS["psnr"], 28.6, replace(ours, error=None), all_images=False) == NOT


def test_tolerances_are_what_the_paper_differs_from_itself():
    """Its posterior sampling and its MR Sampler-1 at NFE 100 are one scheme; all but a doubtful number are within."""
    from codes.names import TASKS
    from codes.reproduce.catalogue import TABLE_OF_TASK
    from codes.reproduce.published import published, remark_on

    outside = []
    for task in TASKS:
        table = published()[TABLE_OF_TASK[task]]
        one, other = (table.values(name, 100) for name in ("Posterior", "MR Sampler-1"))
        outside += [
            (task, name)
            for name, tolerance in TOLERANCES.items()
            if not tolerance.allows(one[name] - other[name], one[name])
        ]
    assert outside == [("rainy", "fid")]
    marked = [remark_on("rainy", name, 100, "fid") for name in ("Posterior", "MR Sampler-1")]
    assert any(remark is not None for remark in marked)


def test_test_sets_have_the_papers_numbers_of_images():
    from codes.reproduce.published import published

    printed = {record["task"]: record["test_images"] for record in published()["datasets"].records()}
    assert {task: known.images for task, known in TEST_SETS.items()} == {task: printed[task] for task in TEST_SETS}
