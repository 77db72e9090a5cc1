"""The solver study: its answers on made-up scores, its files, and whether the project follows its advice."""

import csv
import io
import json
import re
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import yaml

from codes import defaults
from codes.commands import study as command
from codes.commands.study import main as run_study
from codes.evaluation.records import Record, read_records
from codes.evaluation.statistics import Estimate
from codes.networks.checkpoints import load_network
from codes.networks.recommended import given
from codes.solvers import Solver
from codes.study import report as study
from codes.study.candidates import GRIDS, Candidate, combinations
from codes.study.synthetic import SYNTHETIC

from .evaluation import write_images, write_options, write_weights

ROOT = Path(__file__).parent.parent
NFES = (1, 2, 5, 8)
FOUR = ("0", "1", "2", "3")


def c(nfe, scheme="order1", tau=1.0, grid="linear-lambda"):
    return Candidate(nfe=nfe, scheme=scheme, tau=tau, clamp=True, grid=grid)


def made_up_records():
    """Two networks. On 'a' second order gains 0.1 and everything else nothing; on 'b' it loses 0.1 and one evaluation
    is enough. What tau 0 changes differs from image to image by far more than its mean."""

    def lpips(network, candidate, name):
        value = 0.5 + 0.01 * int(name)
        if candidate.scheme == "order2":
            value += 0.1 if network == "b" else -0.1
        if candidate.tau == 0:
            value += (0.05, -0.05, 0.05, -0.04)[int(name)]
        if candidate.nfe < 5:
            value += 0.2 / candidate.nfe if network == "a" else 0
        return value

    records = {}
    for network in "ab":
        records[network] = [
            Record(
                task="rainy",
                solver=candidate.label,
                name=name,
                nfe=candidate.nfe,
                seed=0,
                seconds=0.1,
                metrics={
                    "lpips": lpips(network, candidate, name),
                    "psnr": 20 - lpips(network, candidate, name),
                    "ssim": 0.5,
                },
            )
            for candidate in combinations(NFES, clamps=(True,), grids=GRIDS[:2])
            for name in FOUR
        ]
    # Only begun: not on all images, so it does not count, however good it is.
    begun = Record(task="rainy", solver=c(5, grid="auto").label, name="0", nfe=5, seed=0, seconds=0.1)
    records["a"].append(replace(begun, metrics={"lpips": 0.0}))
    return records


def made_up_study():
    return study.collect(made_up_records(), {"b": {"lpips": 0.4}})


def test_differences_have_standard_errors_and_small_ones_are_none():
    found = made_up_study()
    assert found.networks == ["a", "b"]  # trained ones first
    gap = found.change("a", "second order", 5)
    assert gap.mean == pytest.approx(-0.1) and gap.error == pytest.approx(0, abs=1e-12)
    gap = found.change("a", "tau 0", 5)
    assert gap.mean == pytest.approx(0.0025)
    assert gap.error == pytest.approx(0.0275, rel=0.01)  # standard deviation 0.055 of the four, by the root of 4
    assert study.cell(found.change("a", "tau 0", 5)) == "none"
    assert study.cell(Estimate(-0.1, 0.01, 4)) == "-0.100 ± 0.010"
    assert study.verdict(Estimate(0.02, 0.01, 4)) == "none" and study.verdict(Estimate(0.0201, 0.01, 4)) == "worse"
    assert study.verdict(Estimate(-0.0201, 0.01, 4)) == "better" and study.verdict(None) == ""
    assert c(5, grid="auto") not in found.candidates()
    assert found.change("a", "second order", 1) is None  # with one evaluation there is nothing to ask


def test_the_fewest_evaluations_that_lose_nothing():
    found = made_up_study()
    assert (found.best("a").nfe, found.best("a").scheme) == (5, "order2")
    assert found.cheapest("a") == c(5, "order2")
    assert found.cheapest("b") == c(1)


def test_the_default_changes_only_for_what_harms_no_network():
    found = made_up_study()
    assert found.default() == study.BASE == c(8)  # second order gains on one network and loses on the other
    alone = study.collect({"a": made_up_records()["a"]})
    assert alone.default().scheme == alone.nearest().scheme == "order2" and alone.default().nfe == 8
    assert "no other setting with as many is measurably better for one network and worse for none" in study.paragraph(
        found
    )
    excess = found.excess(c(5))
    assert len(excess) == 8
    assert excess["a/rainy/0"] == pytest.approx(0.5 / found.mean("a", found.best("a")))


def test_answers_in_words_and_tables():
    found = made_up_study()
    line = study.answers(found)[0]
    assert line.startswith("- **second order** instead of order 1, tau 1. 2 evaluations: ")
    assert "5 evaluations: better for a; worse for b" in line
    row = study.summary_table(found).splitlines()[3]
    assert row.startswith("| b | 0.515 / 19.5 | 0.515 / 19.5 | ")
    assert "| +0.100 ± 0.000 |" in row
    rows = list(csv.DictReader(io.StringIO(study.csv_text(found))))
    (row,) = [r for r in rows if (r["network"], r["nfe"], r["scheme"], r["tau"]) == ("a", "5", "order2", "1")][:1]
    assert float(row["lpips"]) == pytest.approx(0.415) and row["images"] == "4"


def test_advice_is_what_a_solver_takes():
    for arguments in study.advice(made_up_study()).values():
        Solver(**arguments)
    assert study.arguments(c(1)) == {
        "algorithm": "mrsampler",
        "order": 1,
        "num_sample_steps": 1,
        "clamp": True,
    }
    assert study.arguments(c(5, tau=0.0, grid="late"))["time_schedule"] == "late"


def test_the_command_knows_all_synthetic_networks(capsys):
    assert set(command.SYNTHETIC) == set(SYNTHETIC)
    assert run_study(["--synthetic", "patchs"]) == 2
    assert "--synthetic" in capsys.readouterr().err


def test_study_measures_what_it_renders(tmp_path, capsys):
    """From weights and images to the tables, and nothing twice."""
    from codes.metrics import MissingWeights, find_weights

    try:
        find_weights("lpips")
    except MissingWeights:
        pytest.skip("no LPIPS weights")
    write_weights(tmp_path / "tiny.safetensors")
    write_images(tmp_path / "data", ("rainy",), 2)
    options = write_options(tmp_path, "study")
    out = tmp_path / "study"
    arguments = ["-opt", str(options), "--model", str(tmp_path / "tiny.safetensors"), "--nfe", "1", "2"]
    arguments += ["--images", "2", "--size", "32", "--synthetic", "fields", "-o", str(out)]
    assert run_study([*arguments, "--dry-run"]) == 0
    assert "tiny: 2 images, " in capsys.readouterr().out and not read_records(out / "tiny")
    page = tmp_path / "page.md"
    page.write_text("# Mine\n\nkept\n")
    assert run_study([*arguments, "--document", str(page)]) == 2
    assert "page.md: expected a page with the lines <!-- study" in capsys.readouterr().err
    page.write_text("# Mine\n<!-- study: written by scripts/study.py -->\nold\n<!-- study: end -->\nkept\n")
    assert run_study([*arguments, "--document", str(page)]) == 0
    records = read_records(out / "tiny")
    found = study.read(out)
    assert found.networks == ["tiny", "fields"] and set(found.exact) == {"fields"}
    assert 2 * len(found.candidates()) == len(records)
    text = page.read_text()
    assert text.startswith("# Mine\n<!--") and text.endswith("<!-- study: end -->\nkept\n") and "\nold\n" not in text
    assert study.paragraph(found) in text and (tmp_path / "images" / "page-study.png").is_file()
    assert run_study(["--render-only", "-o", str(out), "--document", str(page)]) == 0
    assert page.read_text() == text and read_records(out / "tiny") == records
    assert run_study([*arguments, "--all"]) == 0  # what was measured is kept
    everything = read_records(out / "tiny")
    assert {key: everything[key] for key in records} == records
    assert len(everything) > len(records)
    assert run_study(["--render-only", "-o", str(tmp_path / "none")]) == 2
    assert f"{tmp_path / 'none'}: no such folder" in capsys.readouterr().err


def test_study_is_rendered_from_records_alone(tmp_path):
    for network, found in made_up_records().items():
        (tmp_path / network).mkdir()
        lines = "".join(json.dumps(asdict(record)) + "\n" for record in found)
        (tmp_path / network / "records.0.jsonl").write_text(lines)
    code = (
        "import sys; sys.modules['torch'] = None\n"
        f"from pathlib import Path; from codes.study import report; report.render(Path({str(tmp_path)!r}))"
    )
    files = [tmp_path / f"study.{suffix}" for suffix in ("md", "csv", "png", "svg")]
    rounds = []
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
        rounds.append([file.read_bytes() for file in files])
        for file in files:
            file.unlink()
    assert rounds[0] == rounds[1]


# ---- what the project says and does


def advised():
    """The advice of docs/solvers.md."""
    text = (ROOT / "docs" / "solvers.md").read_text()
    inside = text.split("<!-- study: written by scripts/study.py -->")[1].split("<!-- study: end -->")[0]
    return yaml.safe_load(re.search(r"```yaml\n(.*?)```", inside, re.DOTALL)[1])


def test_defaults_follow_the_advice():
    advice = advised()["default"]
    assert advice == {**defaults.SOLVER, "num_sample_steps": defaults.NFE}


def test_the_checkpoint_recommends_what_is_advised():
    recommended = given(load_network(ROOT / defaults.WEIGHTS)[1].recommended.solver)
    advice = advised()[Path(defaults.WEIGHTS).stem]
    if advice["num_sample_steps"] == 1:  # the grid of more evaluations is another question
        recommended.pop("time_schedule", None)
    assert recommended == advice
