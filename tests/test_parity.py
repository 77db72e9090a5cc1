"""The parity tool: it passes on the reference data, notices errors, and reads everything from keys and manifests."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from parity import main

ROOT = Path(__file__).parent.parent
GOLDEN = ROOT / "tests" / "golden"


@dataclass
class Result:
    code: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        return self.out.splitlines()[-1]


@pytest.fixture
def parity(capsys):
    def run(reference: Path, *groups: str) -> Result:
        code = main(["--reference", str(reference), "--only", *groups])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.mark.parametrize(
    ("group", "cases"),
    [("schedules", 302), ("timesteps", 1512), ("trajectories", 1423), ("denoising", 40), ("training", 41)],
)
def test_reference_data_is_reproduced(parity, group, cases):
    result = parity(GOLDEN, group)
    assert result.code == 0, result.out + result.err
    assert result.last_line == f"parity: {cases} cases, 0 failed"


def test_malfunctioning_runs_are_skipped_by_name(parity):
    result = parity(GOLDEN, "trajectories")
    line = next(line for line in result.out.splitlines() if "skipped" in line)
    assert "skipped 6" in line and "extra/small/sde-data-2/nfe1" in line and "extra/small/ode-data-3/nfe2" in line


def copy_group(target: Path, group: str, change) -> None:
    with np.load(GOLDEN / f"{group}.npz") as archive:
        arrays = {key: archive[key] for key in archive.files}
    change(arrays)
    np.savez(target / f"{group}.npz", **arrays)
    shutil.copy(GOLDEN / f"{group}.manifest.json", target)


def test_an_error_of_one_part_in_a_million_fails(parity, tmp_path):
    key = "mr/toy/sde-data-2/noise/linear-lambda/nfe10/states"

    def change(arrays):
        arrays[key] = arrays[key].copy()
        arrays[key][-1, 0, 0, 0, 0] += 1e-6

    copy_group(tmp_path, "trajectories", change)
    result = parity(tmp_path, "trajectories")
    assert result.code == 1
    assert f"FAILED {key}" in result.out
    assert result.last_line == "parity: 1423 cases, 1 failed"


def test_missing_folder_is_one_clear_line(parity, tmp_path):
    result = parity(tmp_path / "nowhere", "schedules")
    assert result.code == 2
    assert "schedules.npz: no such file" in result.err and "Traceback" not in result.err


def test_another_folder_with_other_settings(parity, tmp_path):
    """Data written here from the published formulas: other seed, shape, schedule, T, max_sigma and NFE."""
    T, max_sigma, eps, nfe = 40, 30.0, 0.01, 7
    sinf = max_sigma / 255
    scale = 1000 / (T + 1)
    total = np.cumsum(np.linspace(scale * 1e-4, scale * 0.02, T + 1))
    dt = -np.log(eps) / total[-1]
    alpha = np.exp(-total * dt)
    sigma = sinf * np.sqrt(1 - np.exp(-2 * total * dt))
    lambda_ = np.log(alpha) - np.log(sigma)
    schedule = f"daclip/f64/linear/sigma30/T{T}/eps{eps}"
    np.savez(
        tmp_path / "schedules.npz",
        **{f"{schedule}/alpha": alpha, f"{schedule}/sigma_bars": sigma, f"{schedule}/dt": dt},
    )
    (tmp_path / "schedules.manifest.json").write_text("{}")

    rng = np.random.default_rng(5)
    mu, x = rng.random((1, 1, 4, 3)), rng.random((1, 1, 4, 3))
    noise = rng.standard_normal((nfe, *mu.shape))
    times = np.linspace(0, T, nfe + 1)[::-1]
    a, s, lam = (np.interp(times, np.arange(T + 1), table) for table in (alpha, sigma, lambda_))
    states = [x]
    for i in range(1, nfe + 1):
        t = times[i - 1]
        prediction = 0.3 * np.tanh(x - mu) + 0.1 * np.sin(t / 10) * x
        x0 = (x - s[i - 1] * prediction - (1 - a[i - 1]) * mu) / a[i - 1]
        h = lam[i] - lam[i - 1]
        p1 = 1 - np.exp(-2 * h)
        x = s[i] / s[i - 1] * np.exp(-h) * x + a[i] * p1 * x0 + s[i] * np.sqrt(p1) * noise[i - 1]
        x = x + mu * (1 - a[i] / a[i - 1] * np.exp(-2 * h) - a[i] * p1)
        states.append(x)
    np.savez(
        tmp_path / "trajectories.npz",
        **{
            "in/mu": mu,
            "in/x_init": states[0],
            "in/noise": noise,
            f"mr/toy/sde-data-1/noise/linspace/nfe{nfe}/states": np.stack(states),
        },
    )
    manifest = {"sde": f"IRSDE(max_sigma={max_sigma},T={T},schedule=linear,eps={eps})", "lambda_min": "-6"}
    (tmp_path / "trajectories.manifest.json").write_text(json.dumps(manifest))
    result = parity(tmp_path, "schedules", "trajectories")
    assert result.code == 0, result.out + result.err
    assert result.last_line == "parity: 4 cases, 0 failed"
