"""The Python API: it does what docs/api.md says and computes the same images as `test.py`."""

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import codes
from codes import ImageError, OptionsError, Restorer, Solver, load_restorer, read_image, sample, save_image
from codes.commands.test import main as run_test
from codes.data.images import as_image, from_uint8, to_uint8
from codes.evaluation.records import read_records
from codes.networks import architecture, build
from codes.networks.checkpoints import Metadata, save_checkpoint
from codes.restoration.restorer import Restoration
from codes.solvers import PlannedSolver, make_plan

from .evaluation import write_images, write_options, write_weights
from .network_examples import EXAMPLES

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with weights, images and an option file; `image` is data/rainy/LQ/000.png."""
    path = tmp_path_factory.mktemp("api")
    write_weights(path / "tiny.safetensors")
    write_images(path / "data", ("rainy",), images=2)
    write_options(path)
    return path


@pytest.fixture(scope="module")
def restorer(folder):
    return load_restorer(folder / "tiny.safetensors", device="cpu")


@pytest.fixture(scope="module")
def image(folder):
    return read_image(folder / "data" / "rainy" / "LQ" / "000.png")


def test_test_py_and_the_api_make_the_same_image(folder, image):
    """For every solver of the option file, with the seed from test.py's records."""
    assert run_test(["-opt", str(folder / "run.yml"), "--set", "datasets.val.max_images=1"]) == 0
    restorer = load_restorer(folder / "run.yml")
    results = folder / "results" / "run"
    records = read_records(results)
    assert len(records) == 4
    for (task, label, name), record in records.items():
        algorithm, nfe = label.rsplit("-nfe", 1)
        restored = restorer(image, nfe=int(nfe), algorithm=algorithm, seed=record.seed)
        saved = read_image(results / task / label / f"{name}.png")
        assert torch.equal(from_uint8(to_uint8(restored)), saved)


def test_samples_equal_single_calls_with_the_same_seeds(restorer, image):
    several = restorer.sample(image, 3, nfe=3, seed=7)
    assert several.seeds == (7, 8, 9) and several.nfe == 3
    singles = torch.stack([restorer(image, nfe=3, seed=seed) for seed in (7, 8, 9)])
    assert torch.equal(several.samples, singles) and torch.equal(several.sample, singles[0])
    assert torch.equal(several.mean, singles.mean(0)) and torch.equal(several.std, singles.std(0))
    assert several.std.max() > 0
    one = restorer.sample(image, 1, nfe=3, seed=7)
    assert torch.equal(one.mean, singles[0]) and not one.std.any()


def test_results_are_ordinary_tensors(restorer, image):
    """Not inference-mode tensors, which cannot be modified or trained on."""
    restored = restorer(image, nfe=2)
    assert not restored.is_inference() and not restorer.sample(image, 2, nfe=2).samples.is_inference()
    assert restored.dtype == torch.float32 and restored.min() >= 0 and restored.max() <= 1


def test_trajectory_leads_from_the_start_to_the_sample(restorer, image):
    out = restorer.sample(image, 2, nfe=4, seed=5, return_trajectory=True)
    assert len(out.trajectory) == 5
    noise = torch.randn(image.shape, generator=torch.Generator().manual_seed(6))
    assert torch.equal(out.trajectory[0][1], image + restorer.sde.sigma_inf * noise)
    assert torch.equal(out.trajectory[-1].clamp(0, 1), out.samples)
    assert torch.equal(out.sample, restorer(image, nfe=4, seed=5))


def test_callback_counts_the_steps_of_all_samples_and_can_stop(restorer, image):
    seen = []
    restorer.sample(image, 2, nfe=3, callback=lambda info: seen.append((info.step, info.steps)))
    assert seen == [(i, 6) for i in range(1, 7)]

    class Stopped(Exception):
        pass

    def stop(info):
        seen.append(info.step)
        raise Stopped

    seen.clear()
    with pytest.raises(Stopped):
        restorer(image, nfe=3, callback=stop)
    assert seen == [1]


def test_arrays_and_pil_images_give_the_same_result(restorer, image):
    from PIL import Image

    pixels = to_uint8(image)
    expected = restorer(image, nfe=2)
    for same in (pixels, Image.fromarray(pixels), pixels.astype(np.float32) / 255, image.double()):
        assert torch.equal(restorer(same, nfe=2), expected)
    assert torch.equal(as_image(pixels[..., 0]), as_image(np.repeat(pixels[..., :1], 3, axis=2)))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (torch.zeros(1, 3, 8, 8), "got shape (1, 3, 8, 8)"),
        (torch.zeros(8, 8, 3), "got shape (8, 8, 3)"),
        (torch.zeros(3, 8, 8, dtype=torch.uint8), "got torch.uint8"),
        (torch.full((3, 8, 8), 200.0), "got values from 200 to 200"),
        (torch.full((3, 8, 8), torch.nan), "got values from nan to nan"),
        (np.zeros((8, 8, 4), np.uint8), "got shape (8, 8, 4)"),
        (np.zeros((8, 8, 3), np.int64), "got int64"),
        (np.zeros((0, 8, 3), np.uint8), "got an empty one"),
        ("rainy.png", "got shape ()"),
    ],
)
def test_bad_images_are_refused_with_a_reason(restorer, bad, reason):
    with pytest.raises(ImageError, match=re.escape(reason)):
        restorer(bad)


def test_solver_defaults_to_the_option_file(folder):
    restorer = load_restorer(folder / "run.yml")  # posterior and mrsampler-pc, with 2 and 5 evaluations
    assert restorer.solver() == Solver("posterior", 2)
    assert replace(restorer, solvers=()).solver() == Solver("mrsampler", 8, order=1, clamp=True)
    assert restorer.solver("posterior", 5) == Solver("posterior", 5)
    assert restorer.solver("heun") == Solver("heun", 8)
    own = Solver("mrsampler", 6, solver_type="ode", order=2)
    assert restorer.solver(own) == own and restorer.solver(own, 3) == replace(own, num_sample_steps=3)
    solvers = [Solver("mrsampler", nfe, order=2) for nfe in (4, 8)]
    planned = [PlannedSolver(str(solver.nfe), solver, make_plan(restorer.sde, solver)) for solver in solvers]
    listed = replace(restorer, solvers=tuple(planned))
    assert listed.solver() == Solver("mrsampler", 8, order=2) and listed.plan() is planned[1].plan
    assert listed.solver("mrsampler", 3) == Solver("mrsampler", 3, order=2)
    with pytest.raises(ValueError, match="did you mean 'posterior'"):
        restorer.solver("postrior")


def test_tile_argument_overrides_the_option_file(restorer):
    large = torch.rand(3, 64, 100, generator=torch.Generator().manual_seed(0))
    tiled = restorer.sample(large, 1, nfe=2, tile=64)
    assert tiled.tile == 64 and not torch.equal(tiled.sample, restorer(large, nfe=2))
    assert torch.equal(tiled.sample, replace(restorer, tile=64)(large, nfe=2))


def test_samples_are_batched_only_if_tiles_stay_the_same(restorer, image, monkeypatch):
    assert restorer.samples_at_once(image, 4) == 1
    monkeypatch.setattr(Restorer, "tile_for", lambda self, batch: None if len(batch) <= 5 else 128)
    on_gpu = replace(restorer, device=torch.device("cuda"))
    assert on_gpu.samples_at_once(image, 12) == 3 and on_gpu.samples_at_once(image, 4) == 4
    batches = []
    monkeypatch.setattr(
        Restorer, "_restore", lambda self, lq, *_: batches.append(len(lq)) or Restoration(samples=lq, nfe=2)
    )
    images = torch.rand(12, 3, 16, 16)
    assert torch.equal(on_gpu.batch(images, on_gpu.plan(nfe=2), [torch.Generator() for _ in images]).samples, images)
    assert batches == [3, 3, 3, 3]


def test_option_file_needs_no_datasets_and_overrides_apply(folder):
    path = write_options(folder, "bare", datasets=None, metrics=None)
    path.write_text(re.sub(r'"(datasets|metrics)": null, ', "", path.read_text()))
    restorer = load_restorer(path, overrides=["tile=128", "sampler.num_sample_steps=3"])
    assert restorer.tile == 128 and {solver.nfe for _, solver, _ in restorer.solvers} == {3}
    weights = load_restorer(folder / "tiny.safetensors", overrides=["tile=64", "sde.algorithm=posterior"])
    assert weights.tile == 64 and weights.solver().algorithm == "posterior"


def test_mistakes_name_file_and_key(folder, tmp_path):
    with pytest.raises(OptionsError, match=r"nowhere\.safetensors: no such file"):
        load_restorer(tmp_path / "nowhere.safetensors")
    with pytest.raises(OptionsError, match=r"nowhere\.yml: no such file"):
        load_restorer(tmp_path / "nowhere.yml")
    with pytest.raises(OptionsError, match="device: expected one of auto, cpu, cuda, cuda:N, got 'gpu'"):
        load_restorer(folder / "tiny.safetensors", device="gpu")
    with pytest.raises(OptionsError, match=r"sampler\.ordr: unknown option, did you mean 'order'"):
        load_restorer(folder / "run.yml", overrides=["sampler.ordr=2"])


def test_network_with_contexts_requires_its_encoder(tmp_path):
    name, variant, setting = EXAMPLES["daclip"]
    choice = architecture(name, setting, variant)
    save_checkpoint(tmp_path / "context.safetensors", build(choice).state_dict(), Metadata(choice, "noise"))
    with pytest.raises(OptionsError, match=r"path\.daclip: missing"):
        load_restorer(tmp_path / "context.safetensors")


def test_nothing_is_recognised_without_an_encoder(restorer, image):
    assert restorer.recognise(image) is None and not restorer.recognises
    assert restorer.sample(image, 1, nfe=2).recognised is None


def test_importing_the_package_imports_no_torch():
    code = (
        "import sys, codes; codes.OptionsError; print('torch' in sys.modules, 'numpy' in sys.modules);"
        "codes.load_restorer; print('torch' in sys.modules, 'lpips' in sys.modules, 'matplotlib' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert result.stdout.splitlines() == ["False False", "True False False"]
    assert set(codes.__all__) <= set(dir(codes))
    for name in codes.__all__:
        assert getattr(codes, name).__doc__


# ---- the examples of docs/api.md

MEAN, VARIANCE = 0.1, 0.03  # well within [-1, 1], so that clipping changes nothing


class ExactGaussian:
    """Exact networks for N(MEAN, VARIANCE) in the form of two other projects, and a table of VP times."""

    alphas_cumprod = np.cumprod(1 - np.linspace(1e-4, 0.02, 1000))

    def vp_network(self, x, position):
        assert position.shape == (len(x),)
        alpha = torch.from_numpy(np.exp(np.interp(position, np.arange(1000), 0.5 * np.log(self.alphas_cumprod))))
        alpha = alpha.to(x).view(-1, 1, 1, 1)
        sigma = (1 - alpha**2) ** 0.5
        return sigma * (x - alpha * MEAN) / (alpha**2 * VARIANCE + sigma**2)

    def flow_network(self, z, s):
        x0 = MEAN + VARIANCE * (1 - s) / ((1 - s) ** 2 * VARIANCE + s**2) * (z - (1 - s) * MEAN)
        return (z - x0) / s


def blocks(path: Path) -> list[str]:
    text = path.read_text().replace("mr_sampler", "codes")  # the same, installed and in the clone
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_documented_examples_run_and_find_the_exact_answer(folder, tmp_path, monkeypatch, image):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "options").mkdir()
    write_options(folder, "test").rename(tmp_path / "options" / "test.yml")
    save_image(image, "rainy.png")
    shutil.copy(folder / "tiny.safetensors", "model.safetensors")
    exact = ExactGaussian()
    names = {key: getattr(exact, key) for key in ("alphas_cumprod", "vp_network", "flow_network")}
    for block in blocks(ROOT / "docs" / "api.md"):
        exec(block, names)
    assert torch.equal(read_image("clean.png"), from_uint8(to_uint8(names["restored"])))
    assert (tmp_path / "unsure.png").is_file() and len(names["several"].samples) == 4
    assert torch.equal(
        names["x"].clamp(0, 1)[0],
        names["pipeline"](image, 8, names["generator"].manual_seed(0), output_type="pt").images[0],
    )
    assert torch.equal(read_image("clean-too.png"), from_uint8(to_uint8(names["x"][0])))
    # The flow of a Gaussian is affine: it keeps the position within the distribution, in standard deviations.
    sde, zero = names["sde"], names["zero"]
    start = torch.randn(zero.shape, generator=torch.Generator().manual_seed(0)) * sde.sigma_inf
    assert sde.sigma_inf == 1
    alpha, sigma = (np.array([float(f(t)) for t in (0.0, sde.T)]) for f in (sde.alpha, sde.sigma))
    spread = np.sqrt(alpha**2 * VARIANCE + sigma**2)
    expected = alpha[0] * MEAN + (start - alpha[1] * MEAN) * spread[0] / spread[1]
    for out in (names["vp"], names["flow"]):
        assert out.nfe == 20
        assert (out.sample - expected).abs().max() < 0.02
    assert (names["vp"].sample - names["flow"].sample).abs().max() < 1e-4
    # More evaluations come closer.
    fine = sample(
        names["from_flow"], sde, zero, replace(names["solver"], num_sample_steps=160), fit_target="data", x_init=start
    )
    assert (fine.sample - expected).abs().max() < 1e-3


def test_a_name_means_our_solver_also_where_the_file_has_the_published_one(folder):
    """The published stride is had with an explicit `Solver(..., compat="official")` alone."""
    published = {"sde.algorithm": "posterior", "sampler.compat": "official", "sampler.num_sample_steps": "10"}
    file = load_restorer(folder / "run.yml", overrides=[f"{key}={value}" for key, value in published.items()])
    weights = load_restorer(folder / "tiny.safetensors")
    image = torch.rand(3, 24, 32, generator=torch.Generator().manual_seed(0))
    assert file.solver() == Solver("posterior", 10, compat="official")
    assert file.solver("posterior", 4) == weights.solver("posterior", 4) == Solver("posterior", 4)
    ours = weights(image, nfe=4, algorithm="posterior")
    assert torch.equal(file(image, nfe=4, algorithm="posterior"), ours)
    assert not torch.equal(file(image, nfe=4), ours)
    from_test_file = load_restorer("options/test.yml")
    from_weights = load_restorer("pretrained/mr-universal.safetensors")
    assert from_test_file.solver("posterior", 4) == from_weights.solver("posterior", 4)
    # The option file's own solver, and what the checkpoint recommends.
    assert from_test_file.solver() == Solver("mrsampler", 8, order=1, clamp=True)
    assert from_weights.solver() == Solver("mrsampler", 1, order=1, clamp=True, time_schedule="late")
