"""The committed results: README and documentation say what they say, and they stay small."""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from codes.defaults import WEIGHTS
from codes.evaluation.tables import QUALITY
from codes.names import TASKS, OptionsError
from codes.reproduce.catalogue import DATASETS, METHODS, TABLES, all_runs
from codes.reproduce.claims import CHANGED, CLAIMS, OPEN, SUPPORTED, WITHDRAWN
from codes.reproduce.documents import BLOCKS, blocks, fill, filled
from codes.reproduce.report import write_report
from codes.reproduce.results import Cell, Results, load
from codes.reproduce.testsets import TEST_SETS
from codes.runtime.files import digest

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "results" / "embedded"
DOCUMENTS = [ROOT / "README.md", ROOT / "pretrained" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WITH_BLOCKS = [path for path in DOCUMENTS if blocks(path.read_text())]
MEASURED = [claim for claim in CLAIMS if claim.measure is not None]
_BLOCK = re.compile(r"<!-- results: .*?<!-- end of results -->", re.DOTALL)


def committed() -> Results:
    return load(FOLDER / "cells.json")


# ---- what is claimed


@pytest.mark.parametrize("path", WITH_BLOCKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_say_what_the_results_say(path):
    """Else: python scripts/reproduce.py --results docs/results/embedded --render-only --fill FILE"""
    text = path.read_text()
    assert filled(text, committed()) == text


def test_every_claim_and_the_four_sets_are_told_from_results():
    assert blocks((ROOT / "README.md").read_text()) == ["four-sets"]
    assert blocks((ROOT / "pretrained" / "README.md").read_text()) == ["card"]
    told = blocks((ROOT / "docs" / "CLAIMS.md").read_text())
    assert told == ["run", "claims", *(f"claim-{claim.number}" for claim in MEASURED)]
    assert {*told, "four-sets", "card"} == set(BLOCKS)


def test_no_measurement_of_the_network_is_written_by_hand():
    text = _BLOCK.sub("", (ROOT / "docs" / "CLAIMS.md").read_text())
    sections = re.split(r"^### \d+\. ", text, flags=re.MULTILINE)[1:]
    assert len(sections) == len(CLAIMS) and not any("**network**" in section for section in sections)


def test_the_report_is_of_the_cells_beside_it(tmp_path):
    figures = re.findall(r"^!\[([\w-]+)\]\((.*)\)\n\n\*(.*)\*$", (FOLDER / "REPORT.md").read_text(), re.MULTILINE)
    shown = [(name, caption, tmp_path / path) for name, path, caption in figures]
    write_report(committed(), tmp_path, [*TABLES, DATASETS], shown, files=False)
    assert (tmp_path / "REPORT.md").read_text() == (FOLDER / "REPORT.md").read_text()
    for name in ("cells.json", "full.json"):
        assert (tmp_path / name).read_text() == (FOLDER / name).read_text()
    assert all((FOLDER / path).is_file() for _, path, _ in figures)


def test_results_are_of_the_network_that_comes_with_the_project():
    """Else run the tables again: docs/reproduce.md."""
    assert committed().settings["sha256"] == digest(ROOT / WEIGHTS)


def test_study_and_peers_are_of_it_too():
    """Else run scripts/study.py and scripts/peers.py again: docs/solvers.md, docs/peers.md."""
    short = digest(ROOT / WEIGHTS)[:12]
    assert f"- mr-universal: weights {short}, " in (ROOT / "docs" / "solvers.md").read_text()
    assert json.loads((ROOT / "docs" / "peers.json").read_text())["sha256"].startswith(short)


def test_links_lead_to_sections_of_the_report():
    headings = re.findall(r"^##+ (.*)$", (FOLDER / "REPORT.md").read_text(), re.MULTILINE)
    assert {claim.rests for claim in MEASURED} <= set(headings)


# ---- how it is told


def results_with(psnr: dict[tuple[str, int], float], lpips: dict[tuple[str, int], float]) -> Results:
    """All cells on three images each; the named ones differ from the rest, for every image by nearly the same."""
    cells = []
    for task, method in all_runs(TABLES):
        for nfe in METHODS[method].nfes:
            means = {"psnr": psnr.get((method, nfe), 25.0), "lpips": lpips.get((method, nfe), 0.2)}
            values = {
                name: {str(i): round(mean + 0.001 * (i - 1) * ((nfe + len(method)) % 3), 5) for i in range(3)}
                for name, mean in means.items()
            }
            cell = Cell(
                task=task, method=method, nfe=nfe, images=3, seconds=nfe / 10, metrics=dict(means), values=values
            )
            cells.append(cell)
    return Results(settings={"model": "embedded", "recommended_nfe": 1}, cells=tuple(cells))


COLLAPSED = {(method, nfe): 15.0 for method in ("posterior-official", "euler-official") for nfe in (20, 10, 5)}
COLLAPSED |= {("mr-2-noise", nfe): 8.0 for nfe in (10, 5)} | {("mr-2", 2): 9.0}
AS_BEFORE = results_with(
    COLLAPSED,
    dict.fromkeys(COLLAPSED, 0.8) | {("mr-2-ode", nfe): 0.25 for nfe in (50, 20)} | {("mr-2-ode", 5): 0.15},
)


@pytest.mark.parametrize("claim", MEASURED, ids=lambda claim: str(claim.number))
def test_each_claim_is_supported_by_what_it_says_and_open_without_cells(claim):
    assert claim.measure(AS_BEFORE).status == SUPPORTED
    assert claim.measure(Results()).status == OPEN


@pytest.mark.parametrize(
    ("number", "psnr", "lpips", "status"),
    [
        (1, COLLAPSED, dict.fromkeys([("mr-1", 50), ("mr-2", 50)], 0.4), WITHDRAWN),
        (1, COLLAPSED, {("mr-1", 10): 0.4, ("mr-2", 10): 0.4}, CHANGED),
        (2, {}, {}, WITHDRAWN),
        (2, COLLAPSED | {("posterior", 5): 12.0}, dict.fromkeys(COLLAPSED, 0.8) | {("posterior", 5): 0.8}, CHANGED),
        (4, COLLAPSED, {("mr-2", 10): 0.15}, CHANGED),
        (4, COLLAPSED, {("mr-2", nfe): 0.15 for nfe in (100, 50, 20, 10, 5)}, WITHDRAWN),
        (5, {}, {}, CHANGED),
        (7, {}, {}, CHANGED),
        (7, {}, {("mr-2", 50): 0.3, ("mr-2", 5): 0.1}, WITHDRAWN),
        (8, {}, {}, CHANGED),
    ],
)  # fmt: skip
def test_other_results_change_or_withdraw_a_verdict(number, psnr, lpips, status):
    claim = next(claim for claim in CLAIMS if claim.number == number)
    assert claim.measure(results_with(psnr, lpips)).status == status


def test_a_difference_within_two_standard_errors_supports_nothing():
    """Order 2 is better by 0.01 in the mean, but not from image to image."""
    cells = []
    for cell in results_with(COLLAPSED, {}).cells:
        if cell.method == "mr-2":
            noise = {"0": 0.3, "1": 0.1, "2": 0.17}
            cell = replace(cell, metrics={**cell.metrics, "lpips": 0.19}, values={**cell.values, "lpips": noise})
        cells.append(cell)
    claim = next(claim for claim in CLAIMS if claim.number == 4)
    found = claim.measure(replace(AS_BEFORE, cells=tuple(cells)))
    assert found.status == SUPPORTED and "(none)" in found.text and "(better)" not in found.text


def test_unknown_blocks_and_files_without_any_are_one_line(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("no block")
    with pytest.raises(OptionsError, match="no block") as error:
        fill(path, AS_BEFORE)
    assert "\n" not in str(error.value)
    path.write_text("<!-- results: nonsense -->\n<!-- end of results -->\n")
    with pytest.raises(OptionsError, match="unknown block 'nonsense'"):
        fill(path, AS_BEFORE)
    path.write_text("a\n<!-- results: claim-5 -->\n- old, 7.7 dB\n<!-- end of results -->\nb\n")
    fill(path, AS_BEFORE)
    assert "7.7" not in path.read_text() and path.read_text().startswith("a\n") and path.read_text().endswith("\nb\n")


def test_numbers_of_the_four_sets_are_those_of_the_cells():
    sets = {task: {"folder": known.folder, "images": known.images} for task, known in TEST_SETS.items()}
    inputs = tuple(
        Cell(task=task, method="(input)", nfe=0, images=3, seconds=0, metrics={"psnr": 14.62}) for task in sets
    )
    cells = [
        replace(cell, metrics={"psnr": 26.49}) if (cell.method, cell.nfe) == ("recommended", 1) else cell
        for cell in AS_BEFORE.cells
    ]
    results = replace(AS_BEFORE, settings={"sets": sets}, inputs=inputs, cells=tuple(cells))
    text = BLOCKS["four-sets"](results)
    assert text.count("from 14.62 to 26.49 ± 0.00") == 4 and "CBSD68 (noisy)" in text
    assert text.count("(paper ") == 4 and "CBSD68 (noisy) from 14.62 to 26.49 ± 0.00 (paper 27.51)" in text
    # Of parts of the images, the paper has no numbers.
    part = replace(results, settings={"sets": sets, "set_size": 64})
    text = BLOCKS["four-sets"](part)
    assert "(paper " not in text and "On crops of 64x64 pixels of the paper's own test images" in text
    few = replace(part, settings={"sets": {task: {**known, "images": 4} for task, known in sets.items()}})
    assert "On 4 of each set of the paper's own test images" in BLOCKS["four-sets"](few)
    # Where whole sets were restored as well, they are told.
    assert BLOCKS["four-sets"](replace(part, full=results)) == BLOCKS["four-sets"](results)


def test_the_model_card_has_a_row_for_each_task_with_its_scores():
    inputs = tuple(
        Cell(task=task, method="(input)", nfe=0, images=3, seconds=0, metrics={"psnr": 14.62}) for task in TASKS
    )
    lines = BLOCKS["card"](replace(AS_BEFORE, inputs=inputs)).splitlines()
    rows = [line for line in lines if line.startswith(tuple(f"| {task} |" for task in TASKS))]
    assert len(rows) == 10 and all("| photographs | 3 | 14.62 | 25.00 ± 0.00 | 25.00 ± 0.00 |" in row for row in rows)


# ---- how large it is


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a clone")
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def test_committed_pictures_are_small():
    pictures = [path for path in tracked() if path.suffix in (".png", ".jpg", ".jpeg", ".webp", ".gif", ".svg")]
    assert pictures and sum(path.stat().st_size for path in pictures) < 6 << 20
    assert [path.name for path in pictures if path.suffix == ".svg" and path.stat().st_size > 200_000] == []


def test_there_is_one_report_and_it_is_small():
    results = [path for path in tracked() if FOLDER.parent in path.parents]
    assert [path for path in results if path.name == "REPORT.md"] == [FOLDER / "REPORT.md"]
    assert sum(path.stat().st_size for path in results) < 2_221_546  # of the report before this one
    assert {column.name for column in QUALITY} >= {name for cell in committed().cells for name in cell.metrics}


def test_test_sets_and_photographs_are_not_committed():
    names = {part for path in tracked() for part in path.relative_to(ROOT).parts}
    assert names.isdisjoint({"testsets", "photos", "CBSD68", "LIVE1", "LOL-eval15", "Rain100H"})
