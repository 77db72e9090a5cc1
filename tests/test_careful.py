"""Careful restoration: what is recognised, the strength, and what a checkpoint recommends."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from codes import OptionsError, load_restorer, read_image
from codes.commands.calibrate import main as calibrate
from codes.commands.convert import main as convert
from codes.commands.restore import main as restore
from codes.data.degradations import tensor_degradation
from codes.data.images import from_uint8, save_image, to_uint8
from codes.data.pairs import image_seed
from codes.data.varied import KINDS
from codes.networks import architecture
from codes.networks.checkpoints import Metadata, SDESettings, metadata_of, read_checkpoint, save_checkpoint
from codes.networks.recommended import CarefulRule, Recommended, from_json
from codes.restoration import calibration
from codes.restoration.calibration import Trial, choose, measure, outcome
from codes.restoration.photo_files import RECORDS
from codes.solvers import Solver

from .evaluation import random_network

SETTING = {"width": 8, "enc_blk_nums": [1], "middle_blk_num": 1, "dec_blk_nums": [1], "encoder_width": 4}
ADVICE = Recommended(Solver("mrsampler-pc", 3, tau=0.5), CarefulRule(bias=0.5, none=1.0))


def write_coded(path, none: float = 0.0, advice: Recommended | None = ADVICE) -> None:
    """A random network that recognises: the logit of 'none' is `none`, the others are close to 0."""
    choice = architecture("CodedNAFNet", SETTING)
    state = random_network(choice).state_dict()
    state["encoder.name.weight"].zero_()
    state["encoder.name.bias"].zero_()[-1] = none
    save_checkpoint(path, state, Metadata(choice, "velocity", SDESettings(50), recommended=advice))


@pytest.fixture
def coded(tmp_path):
    def load(none: float = 0.0, advice: Recommended | None = ADVICE):
        write_coded(tmp_path / "coded.safetensors", none, advice)
        restorer = load_restorer(tmp_path / "coded.safetensors", device="cpu")
        (tmp_path / "coded.safetensors").unlink()
        return restorer

    return load


@pytest.fixture
def image():
    return torch.rand(3, 24, 32, generator=torch.Generator().manual_seed(0))


def test_the_rule_is_the_documented_formula_clipped():
    rule = CarefulRule(bias=2.0, none=0.25, change=0.5)
    odds = math.log(0.9 / 0.1)
    assert rule.strength(0.9, 28.0) == pytest.approx(2.0 - 0.25 * odds - 0.5 * 2.8)
    assert rule.strength(0.001, 20.0) == 1 and rule.strength(0.999, 40.0) == 0
    assert rule.bounds(0.9) == (rule.strength(0.9, 60), rule.strength(0.9, 5))
    assert CarefulRule(bias=0.5, none=1.0).strength(0.5, 10.0) == 0.5
    for none in (0.0, 1.0):  # certainty is finite
        assert CarefulRule(bias=0.5, none=0.01).strength(none, math.inf) == pytest.approx(0.5, abs=0.1)


def test_recognise_gives_the_probabilities_of_the_network(coded, image):
    found = coded(none=2.0).recognise(image)
    assert set(found) == set(KINDS) and next(iter(found)) == "none"
    share = math.exp(2) / (math.exp(2) + 10)
    assert found["none"] == pytest.approx(share) and found["rainy"] == pytest.approx((1 - share) / 10)


def test_strength_goes_from_the_image_to_its_restoration(coded, image):
    restorer = coded()
    whole = restorer.sample(image, 2, seed=3, strength=1)
    half = restorer.sample(image, 2, seed=3, strength=0.5)
    assert whole.strength == 1 and half.strength == 0.5 and not torch.equal(whole.sample, image)
    torch.testing.assert_close(half.samples, (image + whole.samples) / 2)
    none = restorer.sample(image, 2, seed=3, strength=0)
    assert none.strength == 0 and none.nfe == 0 and torch.equal(none.samples, image.expand(2, -1, -1, -1))
    assert torch.equal(restorer(image, seed=3, strength=1), whole.sample)
    for bad in (-0.1, 1.1, math.nan, True, "1"):
        with pytest.raises(ValueError, match="strength must be a number from 0 to 1, got"):
            restorer(image, strength=bad)


@pytest.mark.parametrize(("none", "strength"), [(9.0, 0.0), (math.log(10), 0.5), (-9.0, 1.0)])
def test_by_default_the_rule_decides(coded, image, none, strength):
    restorer = coded(none)  # the strength is 1/2 minus the log odds of none
    careful, whole = restorer.sample(image, 1), restorer.sample(image, 1, strength=1)
    assert careful.strength == pytest.approx(strength, abs=1e-6)
    assert careful.nfe == (0 if strength == 0 else 3) and careful.recognised == restorer.recognise(image)
    torch.testing.assert_close(careful.sample, torch.lerp(image, whole.sample, strength))
    assert replace(restorer, careful=None).sample(image, 1).strength == 1


def test_the_rule_may_depend_on_the_change_alone(coded, image):
    restorer = coded(9.0, Recommended(careful=CarefulRule(bias=1.5, change=1.0)))
    whole = restorer.sample(image, 1, strength=1)
    change = -10 * math.log10(float((whole.sample - image).square().mean()))
    assert restorer.sample(image, 1).strength == pytest.approx(min(max(1.5 - change / 10, 0), 1), abs=1e-5)


# ---- what a checkpoint recommends


def test_recommendations_are_kept_by_the_file_and_used_by_default(coded, tmp_path, image):
    restorer = coded()
    assert restorer.solver() == ADVICE.solver and restorer.careful == ADVICE.careful
    assert restorer.solver(nfe=5) == replace(ADVICE.solver, num_sample_steps=5)
    assert restorer.solver("mrsampler-pc") == ADVICE.solver and restorer.solver("heun") == Solver("heun", 8)
    assert restorer.sample(image, 1, strength=1).nfe == 3
    plain = coded(advice=None)
    assert plain.solver() == Solver("mrsampler", 8, order=1, clamp=True) and plain.careful is None
    write_coded(tmp_path / "again.safetensors")
    assert metadata_of(read_checkpoint(tmp_path / "again.safetensors")).recommended == ADVICE


def test_an_option_file_decides_before_the_checkpoint(tmp_path):
    write_coded(tmp_path / "coded.safetensors")
    for sampler, expected in (
        ({}, ADVICE.solver),
        ({"num_sample_steps": 6}, replace(ADVICE.solver, num_sample_steps=6)),
        ({"tau": 0.0}, replace(ADVICE.solver, tau=0.0)),
    ):
        options = {"path": {"pretrain_model_G": str(tmp_path / "coded.safetensors")}, "sampler": sampler}
        (tmp_path / "run.yml").write_text(json.dumps(options))
        assert load_restorer(tmp_path / "run.yml", device="cpu").solver() == expected
    restorer = load_restorer(tmp_path / "run.yml", device="cpu", overrides=["sde.algorithm=posterior"])
    assert restorer.solver().algorithm == "posterior" and restorer.careful == ADVICE.careful


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "expected some of solver, careful"),
        ('{"solvers": {}}', "expected some of solver, careful"),
        ('{"solver": {"algorithm": "mrsampler", "ordr": 2}}', "solver: expected some of algorithm, num_sample_steps"),
        ('{"solver": {"algorithm": "heu"}}', "solver: unknown algorithm 'heu', did you mean 'heun'?"),
        ('{"solver": {"num_sample_steps": 2}}', "solver: "),
        ('{"careful": {"bias": "1"}}', "careful: bias: expected a number from -1000 to 1000, got '1'"),
        ('{"careful": {"bias": 1, "none": -1}}', "careful: none: expected 0 or more, got -1"),
        ('{"careful": {"bias": NaN}}', "careful: bias: expected a number"),
        ("{", "Expecting"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_damaged_recommendations_are_refused_by_the_name_of_the_file(tmp_path, text, reason, monkeypatch):
    monkeypatch.setattr(Recommended, "to_json", lambda self: text)
    write_coded(tmp_path / "bad.safetensors")
    with pytest.raises(OptionsError) as refused:
        load_restorer(tmp_path / "bad.safetensors")
    assert f"bad.safetensors: its metadata cannot be used: recommended: {reason}" in str(refused.value)


def test_recommendations_survive_their_text():
    for advice in (Recommended(), Recommended(Solver("heun", 4)), ADVICE):
        assert from_json(advice.to_json()) == advice
    assert json.loads(ADVICE.to_json())["solver"] == {"algorithm": "mrsampler-pc", "num_sample_steps": 3, "tau": 0.5}


# ---- restore.py


def test_restore_says_what_it_did_with_each_photo(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pixels = np.random.default_rng(0).integers(0, 255, (16, 24, 3)).astype(np.uint8)
    save_image(pixels, tmp_path / "a.png")
    write_coded(tmp_path / "clean.safetensors", none=9.0)
    base = ["a.png", "--opt", "clean.safetensors", "--device", "cpu"]
    assert restore([*base, "-o", "careful", "--describe"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "a.png: none 100 %\n" and "careful/a.png: left as it is (none 100 %), " in captured.err
    assert np.array_equal(to_uint8(read_image("careful/a.png")), pixels)
    record = json.loads((tmp_path / "careful" / RECORDS).read_text())
    assert record["strength"] == 0 and record["recognised"]["none"] == pytest.approx(1, abs=0.01)
    assert record["settings"]["strength"] == "careful"

    write_coded(tmp_path / "degraded.safetensors", none=-9.0)
    assert restore(["a.png", "--opt", "degraded.safetensors", "--device", "cpu", "-o", "full"]) == 0
    assert re.search(r"full/a.png: strength 1.00 \([\w-]+ \d+ %\), ", capsys.readouterr().err)

    write_coded(tmp_path / "doubtful.safetensors", none=-1.0, advice=Recommended(careful=CarefulRule(bias=-9, none=1)))
    assert restore(["a.png", "--opt", "doubtful.safetensors", "--device", "cpu", "-o", "doubtful"]) == 0
    assert re.search(r"left as it is \((?!none)[\w-]+ \d+ %, none [34] %\), ", capsys.readouterr().err)

    assert restore([*base, "-o", "half", "--strength", "0.5"]) == 0
    assert "half/a.png: strength 0.50, " in capsys.readouterr().err
    assert restore([*base, "-o", "whole", "--strength", "1"]) == 0
    printed = capsys.readouterr().err
    assert "strength" not in printed and "left as it is" not in printed
    expected = load_restorer("clean.safetensors", device="cpu")(read_image("a.png"), strength=1)
    assert np.array_equal(to_uint8(read_image("whole/a.png")), to_uint8(expected))
    old = json.loads((tmp_path / "whole" / RECORDS).read_text())
    assert old["settings"].pop("strength") == 1 and old.pop("check")  # as an earlier version wrote it
    (tmp_path / "whole" / RECORDS).write_text(json.dumps(old) + "\n")
    assert restore([*base, "-o", "whole", "--strength", "1"]) == 0
    assert "0 restored, 1 already there" in capsys.readouterr().err

    assert restore([*base, "-o", "careful", "--strength", "1"]) == 1
    assert "was made with other settings (strength: 'careful' -> 1.0)" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        restore([*base, "-o", "x", "--strength", "1.5"])
    assert "--strength: expected a number from 0 to 1, got '1.5'" in capsys.readouterr().err


# ---- choosing the rule


def trial(kind: str, none: float, change: float, right: bool = True) -> Trial:
    """A degraded photo whose restoration is perfect, or a change of a photo that needed none."""
    before = change if right else 0.0
    return Trial(kind=kind, task="rainy", none=none, before=before, change=change, towards=before)


def test_the_chosen_rule_separates_clean_from_degraded_photos():
    clean = [trial("clean", none, 1e-3, right=False) for none in np.linspace(0.8, 0.99, 20)]
    degraded = [trial(kind, none, 1e-3) for none in np.linspace(0.01, 0.2, 20) for kind in ("task", "varied")]
    rule, found = choose([*clean, *degraded])
    assert rule.none > 0 and found.good and found.kept == 1 and found.tasks == found.varied == 0
    assert all(rule.strength(each.none, 30.0) >= 0.9 for each in degraded)  # 50 dB, and more is not told apart
    assert all(rule.strength(each.none, 30.0) <= 0.32 for each in clean)  # 30 dB and 10 dB more


def test_where_both_goals_cannot_be_met_degraded_photos_come_first():
    same = [trial(kind, 0.5, 1e-3, right=kind != "clean") for kind in ("clean", "task", "varied") for _ in range(9)]
    rule, found = choose(same)
    assert not found.good and found.tasks >= -0.1 and found.kept == 0
    assert rule.strength(0.5, 30.0) >= 0.9


def test_outcomes_are_those_of_real_restorations(coded):
    restorer = coded(2.0, Recommended(Solver("mrsampler", 2), CarefulRule(bias=0.55, none=1.0)))
    photos = [("a", torch.rand(3, 40, 40, generator=torch.Generator().manual_seed(0)))]
    trials = measure(restorer, photos)
    assert [each.kind for each in trials] == ["clean", *["task"] * 10, *["varied"] * 10]
    rng = np.random.default_rng(image_seed(0, "task/hazy", "a"))
    degraded = from_uint8(to_uint8(tensor_degradation("hazy")(photos[0][1], rng)))
    hazy = next(each for each in trials if (each.kind, each.task) == ("task", "hazy"))
    assert hazy.before == pytest.approx(float((degraded - photos[0][1]).square().mean()), rel=1e-5)
    full, careful = (restorer.sample(degraded, 1, strength=strength) for strength in (1, None))
    assert hazy.none == full.recognised["none"] and 0.1 < careful.strength < 1
    errors = [float((each.sample - photos[0][1]).double().square().mean()) for each in (careful, full)]
    alone = outcome(restorer.careful, [hazy, trials[0], trials[-1]])
    assert alone.tasks == pytest.approx(10 * math.log10(errors[1] / errors[0]), abs=1e-3)


def test_calibrate_writes_the_rule_into_the_checkpoint(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(calibration, "TASKS", ("rainy",))
    monkeypatch.setattr(calibration, "_DEGRADED", (("task", "rainy"), ("varied", "rainy")))
    write_coded(tmp_path / "in.safetensors", advice=Recommended(Solver("mrsampler", 1, order=1)))
    pixels = np.random.default_rng(0).integers(0, 255, (48, 40, 3)).astype(np.uint8)
    save_image(pixels, tmp_path / "photos" / "a.png")
    arguments = [str(tmp_path / "in.safetensors"), str(tmp_path / "photos"), "--size", "32", "--device", "cpu"]
    code = calibrate([*arguments, "-o", str(tmp_path / "out.safetensors")])
    printed = capsys.readouterr()
    assert code in (0, 1), printed.err
    assert ("the goals are not met" in printed.err) == (code == 1)
    restorer = load_restorer(tmp_path / "out.safetensors")
    assert restorer.solver() == Solver("mrsampler", 1, order=1) and str(restorer.careful) in printed.out
    assert calibrate([str(tmp_path / "out.safetensors"), *arguments[1:], "--check"]) == code
    assert capsys.readouterr().out == printed.out.splitlines(keepends=True)[0]
    assert calibrate([*arguments, "--check"]) == 2 and "has no rule to check" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert calibrate([arguments[0], str(tmp_path / "empty"), "--check"]) == 2
    for wrong, reason in (
        ([], "give either -o OUT.safetensors or --check"),
        (["-o", str(tmp_path / "out.safetensors")], "exists already; --overwrite replaces it"),
        (["-o", "x.pth"], "expected a name ending in .safetensors"),
    ):
        with pytest.raises(SystemExit):
            calibrate([*arguments, *wrong])
        assert reason in capsys.readouterr().err


def test_convert_records_the_solver_of_an_option_file(tmp_path, capsys):
    write_coded(tmp_path / "in.safetensors")
    options = tmp_path / "tuned.yml"
    options.write_text("path: {pretrain_model_G: x.pth}\nsde: {algorithm: heun}\nsampler: {num_sample_steps: 4}\n")
    files = [str(tmp_path / "in.safetensors"), str(tmp_path / "out.safetensors")]
    assert convert([*files, "--recommend", str(options)]) == 0
    restorer = load_restorer(files[1])
    assert restorer.solver() == Solver("heun", 4) and restorer.careful == ADVICE.careful  # the rest is kept
    options.write_text("path: {pretrain_model_G: x.pth}\nsampler: {num_sample_steps: [4, 5]}\n")
    assert convert([*files, "--recommend", str(options), "--overwrite"]) == 2
    assert "tuned.yml: expected one solver to recommend, found 2" in capsys.readouterr().err
    assert convert([*files, "--recommend", str(tmp_path / "no.yml"), "--overwrite"]) == 2
