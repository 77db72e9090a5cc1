"""What `precision: auto` stands for, where it is recorded, and what is remembered about the machine."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from codes.commands.calibrate import main as calibrate
from codes.commands.convert import main as convert
from codes.data.images import save_image
from codes.networks import auto_precision
from codes.networks.auto_precision import SWITCH, Bf16Change, automatic, relative_error
from codes.networks.checkpoints import CheckpointError, load_network, metadata_of, read_checkpoint, save_checkpoint
from codes.networks.predictor import half_precision_problem
from codes.restoration.calibration import bf16_changes, mean_change
from codes.restoration.loading import load_restorer
from codes.restoration.photos import RestoreSettings, settings_of
from codes.runtime import processor
from codes.runtime.environment import write_environment
from codes.runtime.files import read_json

from .network_examples import example

CPU = torch.device("cpu")
KEPT, CHANGED = Bf16Change(0.019, -0.0009), Bf16Change(-0.021, 0.0)


@pytest.fixture
def native(monkeypatch, tmp_path):
    """A processor with bf16, whatever this one has."""
    monkeypatch.delenv(SWITCH)
    monkeypatch.setattr(processor, "FILE", tmp_path / "cache" / "answers.json")
    monkeypatch.setattr(auto_precision, "has_bf16", lambda: True)
    monkeypatch.setattr(auto_precision, "half_precision_problem", lambda precision: "")


@pytest.mark.parametrize(
    ("measured", "error", "chosen"),
    [(KEPT, 1.0, "bf16"), (CHANGED, 0.0, "fp32"), (None, 0.009, "bf16"), (None, 0.011, "fp32")],
)
def test_the_measured_change_decides_else_a_trial(native, monkeypatch, measured, error, chosen):
    monkeypatch.setattr(auto_precision, "relative_error", lambda network, T: error)
    assert automatic(nn.Identity(), CPU, 100, measured) == chosen


def test_a_processor_without_bf16_or_that_dies_of_it_takes_fp32(native, monkeypatch):
    killed = half_precision_problem("bf16", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    monkeypatch.setattr(auto_precision, "half_precision_problem", lambda precision: killed)
    assert "signal 4" in killed and automatic(nn.Identity(), CPU, 100, KEPT) == "fp32"
    monkeypatch.setattr(auto_precision, "has_bf16", lambda: False)
    monkeypatch.setattr(auto_precision, "half_precision_problem", None)  # not even asked: it takes seconds
    assert automatic(nn.Identity(), CPU, 100, KEPT) == "fp32"


def test_the_environment_forbids_bf16(native, monkeypatch):
    monkeypatch.setenv(SWITCH, "fp32")
    assert automatic(nn.Identity(), CPU, 100, KEPT) == "fp32"


@pytest.mark.parametrize(
    ("flags", "limit", "found"),
    [
        ("avx2 avx512f avx512_bf16", "", True),
        ("avx2 amx_bf16", "", True),
        ("avx2 avx512f", "", False),
        ("avx2 avx512_bf16", "AVX2", False),
        ("avx2 avx512_bf16", "avx512_core", False),
        ("avx2 avx512_bf16", "AVX512_CORE_BF16", True),
    ],
)
def test_bf16_is_read_from_the_flags_and_from_the_users_limits(monkeypatch, flags, limit, found):
    monkeypatch.setattr(processor, "_cpuinfo", lambda: {"model name": "X", "flags": flags})
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    assert processor.has_bf16() is found


def test_a_trial_measures_the_prediction_and_is_infinite_where_it_cannot_run(native):
    problem = half_precision_problem("bf16")
    if problem:
        pytest.skip(problem)
    for name in ("refusion", "irsde", "coded", "daclip"):
        assert 1e-4 < relative_error(example(name, torch.float32), 100) < 0.1, name

    class Exact(nn.Module):
        def forward(self, x, mu, t):
            return x + mu  # what autocast leaves in float32

    class Broken(nn.Module):
        def forward(self, x, mu, t):
            raise RuntimeError("no")

    assert relative_error(Exact(), 100) == 0.0
    assert relative_error(Broken(), 100) == float("inf")


def test_answers_are_remembered_until_the_machine_changes(native, monkeypatch, tmp_path):
    asked = []

    def answer():
        asked.append(1)
        return 0.25

    assert [processor.remembered("q", answer) for _ in range(3)] == [0.25] * 3 and len(asked) == 1
    assert processor.remembered("other", answer) == 0.25 and len(asked) == 2
    processor.FILE.write_text("{damaged")
    assert processor.remembered("q", answer) == 0.25 and len(asked) == 3
    assert processor.remembered("q", answer) == 0.25 and len(asked) == 3
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert processor.remembered("q", answer) == 0.25 and len(asked) == 4
    monkeypatch.setattr(processor, "FILE", tmp_path / "file" / "answers.json")
    (tmp_path / "file").write_text("not a folder")
    assert processor.remembered("q", answer) == 0.25  # nothing can be written: asked each time


def test_only_so_many_answers_are_kept(native, monkeypatch):
    monkeypatch.setattr(processor, "_MOST_ANSWERS", 3)
    for number in range(5):
        processor.remembered(str(number), lambda: "a")
    assert len(read_json(processor.FILE)) == 3
    assert processor.remembered("4", lambda: "b") == "a" and processor.remembered("0", lambda: "b") == "b"


def recorded(weights: Path, file: Path, change: Bf16Change | None) -> Path:
    checkpoint = read_checkpoint(weights)
    save_checkpoint(file, checkpoint.state, replace(metadata_of(checkpoint), bf16=change))
    return file


def test_a_checkpoint_records_the_change_and_the_restorer_goes_by_it(native, weights, tmp_path):
    for change, chosen in ((KEPT, "bf16"), (CHANGED, "fp32")):
        file = recorded(weights, tmp_path / f"{chosen}.safetensors", change)
        assert load_network(file)[1].bf16 == change
        restorer = load_restorer(file, "cpu")
        assert restorer.precision == chosen
        assert settings_of(restorer, RestoreSettings(), file)["precision"] == chosen
        assert load_restorer(file, "cpu", ["precision=fp32"]).precision == "fp32"  # one word away


@pytest.mark.parametrize("text", ["[]", "{}", '{"psnr": 0}', '{"psnr": 0, "lpips": "x"}', '{"psnr": NaN, "lpips": 0}'])
def test_a_damaged_record_is_named(weights, text):
    checkpoint = read_checkpoint(weights)
    with pytest.raises(CheckpointError, match=r"its metadata cannot be used: bf16"):
        metadata_of(replace(checkpoint, header={**checkpoint.header, "bf16": text}))


def test_the_measured_change_is_that_of_the_scores(weights):
    """Against a bf16 that is a float32, nothing changes; otherwise the difference of the scores, averaged."""
    if half_precision_problem("bf16"):
        pytest.skip(half_precision_problem("bf16"))
    restorer = load_restorer(weights, "cpu")
    photo = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(0))
    distances = iter(np.linspace(0, 1, 20) ** 2)  # as if LPIPS: exact, half, exact, half, ...
    changes = bf16_changes(restorer, [("a", photo)], lambda a, b: next(distances))
    assert len(changes) == 10
    found = [change.lpips for change in changes.values()]
    assert found == pytest.approx([(4 * k + 1) / 361 for k in range(10)], abs=1e-5)
    assert all(abs(change.psnr) < 0.5 for change in changes.values())
    assert mean_change([Bf16Change(1, 2), Bf16Change(3, 4)]) == Bf16Change(2, 3)


def test_calibrate_records_the_change_and_what_alters_results_forgets_it(weights, tmp_path, monkeypatch, capsys):
    if half_precision_problem("bf16"):
        pytest.skip(half_precision_problem("bf16"))
    monkeypatch.setattr("codes.metrics.LPIPS", lambda: lambda a, b: 0.25)
    photos, out = tmp_path / "photos", tmp_path / "out.safetensors"
    save_image(np.random.default_rng(0).integers(0, 255, (40, 40, 3)).astype(np.uint8), photos / "a.png")
    arguments = [str(photos), "--bf16", "--size", "32"]
    code = calibrate([str(weights), *arguments, "-o", str(out)])
    change = load_network(out)[1].bf16
    assert change is not None and change.lpips == 0 and code == (0 if change.small else 1)
    assert f"mean             {change} on 1 photos" in capsys.readouterr().out
    before = out.read_bytes()
    assert calibrate([str(out), *arguments, "--check"]) == code and out.read_bytes() == before
    assert convert([str(out), str(tmp_path / "half.safetensors"), "--half"]) == 0
    assert load_network(tmp_path / "half.safetensors")[1].bf16 is None


def test_environment_json_says_the_precision_and_the_processor(tmp_path):
    write_environment(tmp_path, CPU, 1, "bf16")
    (start,) = read_json(tmp_path / "environment.json")
    assert start["precision"] == "bf16" and start["device"] == processor.described()
