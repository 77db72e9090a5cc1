"""The diffusers scheduler computes what `sample` does, and keeps diffusers' rules for schedulers."""

import inspect
import json
import warnings
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

pytest.importorskip("diffusers", reason="the extra 'diffusers' is not installed")

from codes import SOLVERS, MeanRevertingSDE, Solver, load_restorer, sample
from codes.data.images import to_uint8
from codes.names import scalar_time
from codes.scheduler import MeanRevertingPipeline, MRSamplerScheduler, RestorationNetwork
from codes.solvers import GRIDS

from .network_examples import example

# Every algorithm, in its variants.
CHOICES = {
    **{name: {"algorithm": name} for name in SOLVERS},
    "mrsampler-ode-2": {"algorithm": "mrsampler", "solver_type": "ode", "order": 2},
    "mrsampler-noise-3": {"algorithm": "mrsampler", "solver_type": "sde", "order": 3, "parameterization": "noise"},
    "mrsampler-corrector": {"algorithm": "mrsampler", "order": 2, "corrector": 2, "tau": 0.5},
    "mrsampler-threshold": {"algorithm": "mrsampler", "order": 2, "thresholding": True},
    "pc-sde": {"algorithm": "mrsampler-pc", "tau": 1.0, "corrector": 2},
    "pc-clamp": {"algorithm": "mrsampler-pc", "clamp": [-0.5, 1.5]},
    "heun-sde": {"algorithm": "heun", "solver_type": "sde"},
    "irsde": {"algorithm": "mrsampler-pc", "convention": "irsde", "max_sigma": 30, "num_train_timesteps": 80},
    "linear": {"algorithm": "posterior", "schedule": "linear"},
    "times": {"algorithm": "mrsampler", "order": 2, "time_schedule": [100, 80, 62.5, 40, 20, 8, 3, 1, 0]},
    **{
        f"{name}-official": {"algorithm": name, "compat": "official"}
        for name in ("mrsampler", "posterior", "sde", "ode", "heun")
    },
}
NFE = 8


@scalar_time
def network(x, mu, t):
    """Something that depends on everything, and on the last bit of the time."""
    return torch.tanh(2 * x - mu + 0.01 * t) * 0.7


def images(dtype=torch.float32):
    return torch.rand(2, 3, 12, 10, generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(dtype)


def generators():
    return [torch.Generator().manual_seed(seed) for seed in (1, 2)]


def by_sample(options, mu, generator, nfe=NFE, fit_target="noise"):
    """What the project's own loop gives."""
    options = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
    sde = {key: options.pop(key) for key in ("max_sigma", "schedule", "convention") if key in options}
    sde = MeanRevertingSDE(T=options.pop("num_train_timesteps", 100), **sde)
    return sample(
        network, sde, mu, Solver(num_sample_steps=nfe, **options), fit_target=fit_target, generator=generator
    ).sample


def by_scheduler(scheduler, mu, generator, nfe=NFE):
    """A plain diffusers loop."""
    scheduler.set_timesteps(nfe)
    x = scheduler.start(mu, generator)
    for t in scheduler.timesteps:
        y = network(scheduler.scale_model_input(x.to(mu.dtype), t), mu, float(t))
        x = scheduler.step(y, t, x, mu, generator=generator).prev_sample
    return x.to(mu.dtype)


@pytest.mark.parametrize("name", CHOICES)
def test_every_solver_gives_the_bits_of_sample(name):
    options, mu = CHOICES[name], images()
    out = by_scheduler(MRSamplerScheduler(**options), mu, generators())
    assert torch.equal(out, by_sample(options, mu, generators()))
    one = torch.Generator()
    assert torch.equal(
        by_scheduler(MRSamplerScheduler(**options), mu, one.manual_seed(5)), by_sample(options, mu, one.manual_seed(5))
    )


@pytest.mark.parametrize("nfe", [2, 3, 5])
@pytest.mark.parametrize("name", SOLVERS)
def test_few_evaluations_too(name, nfe):
    """An odd number ends Heun's method with an Euler step."""
    mu = images()
    out = by_scheduler(MRSamplerScheduler(algorithm=name), mu, generators(), nfe)
    assert torch.equal(out, by_sample({"algorithm": name}, mu, generators(), nfe))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("fit_target", ["noise", "data", "velocity", "score"])
def test_every_prediction_and_precision(fit_target, dtype):
    options = {"algorithm": "mrsampler-pc", "fit_target": fit_target}
    mu = images(dtype)
    out = by_scheduler(MRSamplerScheduler(**options), mu, generators())
    assert out.dtype == dtype and torch.equal(out, by_sample(options, mu, generators(), fit_target=fit_target))


def test_pred_original_sample_is_the_data_prediction():
    scheduler = MRSamplerScheduler(algorithm="ode", fit_target="velocity")
    mu = images().double()
    x0, noise = images().double().flip(0), torch.randn(mu.shape, dtype=torch.float64)
    scheduler.set_timesteps(4)
    t = scheduler.timesteps[1]
    x = scheduler.add_noise(x0, noise, t[None], mu)
    cos, sin = float(scheduler.sde.alpha(float(t))), float(scheduler.sde.sigma(float(t))) / scheduler.sde.sigma_inf
    velocity = (mu - x0) * sin + scheduler.sde.sigma_inf * cos * noise
    assert torch.allclose(scheduler.step(velocity, t, x, mu).pred_original_sample, x0, atol=1e-12)


def test_heun_repeats_times_and_can_start_at_a_repeated_one():
    scheduler = MRSamplerScheduler(algorithm="heun")
    scheduler.set_timesteps(6)
    times = scheduler.timesteps.tolist()
    assert times[1] == times[2] and times[3] == times[4]
    mu = x = images()
    scheduler.step(network(x, mu, times[1]), times[1], x, mu)
    assert scheduler.step_index == 3  # a new step, not the second half of the one before


def test_start_in_the_middle_where_the_solver_allows_it():
    mu = x = images()
    first = MRSamplerScheduler(algorithm="posterior")
    first.set_timesteps(5)
    for t in first.timesteps[2:]:
        x = first.step(network(x, mu, float(t)), t, x, mu, generator=generators()).prev_sample
    assert first.step_index == 5
    second = MRSamplerScheduler(algorithm="mrsampler", order=2)
    second.set_timesteps(5)
    with pytest.raises(ValueError, match="remembers earlier steps, a run cannot start at timestep"):
        second.step(x, second.timesteps[2], x, mu)
    with pytest.raises(ValueError, match="timestep 1234 is none of"):
        second.step(x, 1234, x, mu)


def test_begin_index_and_end_of_the_run():
    mu = x = images()
    scheduler = MRSamplerScheduler(algorithm="ode")
    scheduler.set_timesteps(3)
    scheduler.set_begin_index(1)
    assert scheduler.begin_index == 1 and scheduler.step_index is None
    for t in scheduler.timesteps[1:]:
        x = scheduler.step(x, t, x, mu).prev_sample
    with pytest.raises(ValueError, match="all 3 steps are made"):
        scheduler.step(x, t, x, mu)


def test_every_grid_can_be_configured():
    for name in GRIDS:
        scheduler = MRSamplerScheduler(algorithm="mrsampler-pc", time_schedule=name)
        scheduler.set_timesteps(4)
        assert torch.equal(
            by_scheduler(scheduler, images(), generators(), 4),
            by_sample({"algorithm": "mrsampler-pc", "time_schedule": name}, images(), generators(), 4),
        )


def test_wrong_options_are_told_when_it_is_made():
    with pytest.raises(ValueError, match="did you mean 'posterior'"):
        MRSamplerScheduler(algorithm="postrior")
    with pytest.raises(
        ValueError, match="num_train_timesteps: expected a whole number from 1 to 100,000, got 1000000000"
    ):
        MRSamplerScheduler(num_train_timesteps=10**9)
    with pytest.raises(ValueError, match="order must be from 1 to 3, got 7"):
        MRSamplerScheduler(algorithm="mrsampler", order=7)
    with pytest.raises(ValueError, match="unknown option 'ordr', did you mean 'order'"):
        MRSamplerScheduler(algorithm="mrsampler", ordr=2)


def test_signature_has_every_option_of_a_solver():
    parameters = inspect.signature(MRSamplerScheduler).parameters
    for field in fields(Solver):
        if field.name not in ("algorithm", "num_sample_steps", "fit_target"):
            assert parameters[field.name].default == field.default
    assert parameters["algorithm"].default is None and parameters["fit_target"].default == "noise"
    assert "num_sample_steps" not in parameters


# ---- what diffusers' tests ask of every scheduler (its SchedulerCommonTest)


@pytest.fixture(params=CHOICES)
def options(request):
    return CHOICES[request.param]


def one_step(scheduler, return_dict=True, index=0):
    mu = images()
    torch.manual_seed(0)
    scheduler.set_timesteps(NFE)
    return scheduler.step(0.1 * mu, scheduler.timesteps[index], mu + 0.2, mu, return_dict=return_dict)


def test_from_save_pretrained(options, tmp_path):
    """The configuration survives, and so does what it computes."""
    scheduler = MRSamplerScheduler(**options)
    scheduler.save_pretrained(tmp_path)
    loaded = MRSamplerScheduler.from_pretrained(tmp_path)
    kept = json.loads((tmp_path / "scheduler_config.json").read_text())
    for key, value in scheduler.config.items():
        assert key.startswith("_") or (kept[key] == value and loaded.config[key] == value), key
    mu = images()
    assert torch.equal(by_scheduler(loaded, mu, generators()), by_scheduler(scheduler, mu, generators()))


def test_from_config_changes_single_options():
    scheduler = MRSamplerScheduler(algorithm="mrsampler", order=2, max_sigma=30)
    changed = MRSamplerScheduler.from_config(scheduler.config, order=1, solver_type="ode")
    assert changed.solver_for(4) == Solver("mrsampler", 4, order=1, solver_type="ode", fit_target="noise")
    assert changed.sde == scheduler.sde


def test_step_shape_and_no_nan(options):
    out = one_step(MRSamplerScheduler(**options))
    for tensor in (out.prev_sample, out.pred_original_sample):
        assert tensor.shape == images().shape and torch.isfinite(tensor).all()


def test_scheduler_outputs_equivalence(options):
    as_dict, as_tuple = (one_step(MRSamplerScheduler(**options), flag) for flag in (True, False))
    assert isinstance(as_tuple, tuple) and torch.equal(as_dict.prev_sample, as_tuple[0])
    assert torch.equal(as_dict[0], as_tuple[0])


def test_scheduler_public_api(options):
    scheduler = MRSamplerScheduler(**options)
    assert isinstance(scheduler.init_noise_sigma, float) and callable(scheduler.scale_model_input)
    parameters = inspect.signature(MRSamplerScheduler.scale_model_input).parameters
    assert list(parameters)[1:3] == ["sample", "timestep"]
    x = images()
    assert torch.equal(scheduler.scale_model_input(x, 0.0), x)
    assert {"model_output", "timestep", "sample", "mu", "generator", "return_dict"} <= set(
        inspect.signature(MRSamplerScheduler.step).parameters
    )


@pytest.mark.parametrize("device", ["cpu", "meta", *(["cuda"] if torch.cuda.is_available() else [])])
def test_timesteps_are_on_the_device_and_descend(device):
    scheduler = MRSamplerScheduler()
    scheduler.set_timesteps(NFE, device=device)
    assert scheduler.timesteps.device.type == device and scheduler.timesteps.dtype == torch.float64
    assert len(scheduler.timesteps) == scheduler.num_inference_steps == NFE
    assert list(scheduler.plan.times) == sorted(scheduler.plan.times, reverse=True)


def test_add_noise_is_the_marginal_for_each_image():
    scheduler = MRSamplerScheduler()
    x0, mu = images(), images().flip(0)
    noise = torch.randn(x0.shape)
    times = torch.tensor([10.0, 90.0], dtype=torch.float64)
    noised = scheduler.add_noise(x0, noise, times, mu)
    for i, t in enumerate(times):
        alone = scheduler.add_noise(x0[i : i + 1], noise[i : i + 1], t[None], mu[i : i + 1])
        assert torch.equal(noised[i], alone[0])
    end = scheduler.add_noise(x0, noise, torch.tensor([100.0]), mu)  # one time for the batch
    assert torch.allclose(end, mu + scheduler.sde.sigma_inf * noise, atol=0.01)


def test_deprecated_kwargs_and_attributes():
    takes_any = "kwargs" in inspect.signature(MRSamplerScheduler.__init__).parameters
    assert takes_any == (len(MRSamplerScheduler._deprecated_kwargs) > 0)
    scheduler = MRSamplerScheduler()
    with pytest.warns(FutureWarning, match="config"):
        assert scheduler.num_train_timesteps == 100
    with pytest.raises(AttributeError, match="does_not_exist"):
        _ = scheduler.does_not_exist
    assert len(scheduler) == 100 and scheduler.compatibles == []


def test_works_with_two_runs_and_leaves_no_state_behind():
    scheduler, mu = MRSamplerScheduler(algorithm="mrsampler", order=2), images()
    once = by_scheduler(scheduler, mu, generators())
    assert torch.equal(by_scheduler(scheduler, mu, generators()), once)


# ---- the pipeline


def test_denoising_networks_are_refused(tmp_path):
    """They have another process, and would be run with the wrong one."""
    torch.save(example("denoising-nafnet", torch.float32).state_dict(), tmp_path / "denoising.pth")
    with pytest.raises(ValueError, match="networks of denoising-sde take no degraded image"):
        MeanRevertingPipeline.from_checkpoint(tmp_path / "denoising.pth")


@pytest.fixture(scope="module")
def pipeline(weights):
    made = MeanRevertingPipeline.from_checkpoint(weights)
    made.set_progress_bar_config(disable=True)
    return made


def test_pipeline_gives_the_image_of_the_restorer(pipeline, weights):
    image = images()[0]
    restored = load_restorer(weights, device="cpu")(image, nfe=4, seed=9)
    out = pipeline(image, num_inference_steps=4, generator=[torch.Generator().manual_seed(9)], output_type="pt")
    assert torch.equal(out.images[0], restored)
    picture = pipeline(image, 4, torch.Generator().manual_seed(9)).images[0]
    assert np.array_equal(np.asarray(picture), to_uint8(restored))
    (array,) = pipeline(picture, 1, torch.Generator().manual_seed(9), output_type="np", return_dict=False)
    assert array.shape == (1, 12, 10, 3)


def test_pipeline_saves_and_loads_network_and_scheduler(pipeline, tmp_path, monkeypatch):
    other = MeanRevertingPipeline(
        pipeline.network, MRSamplerScheduler.from_config(pipeline.scheduler.config, algorithm="heun", max_sigma=30)
    )
    other.save_pretrained(tmp_path / "model")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = MeanRevertingPipeline.from_pretrained(tmp_path / "model")
    assert isinstance(loaded.network, RestorationNetwork) and isinstance(loaded.scheduler, MRSamplerScheduler)
    assert loaded.scheduler.config.algorithm == "heun" and loaded.scheduler.sde.max_sigma == 30
    for one in (other, loaded):
        one.set_progress_bar_config(disable=True)
    batch = images()
    results = [one(batch, 3, generators(), output_type="pt").images for one in (other, loaded)]
    assert torch.equal(*results)


def test_batch_is_the_images_one_by_one_and_callbacks_see_each_step(pipeline, tmp_path):
    batch, seen = images(), []
    together = pipeline(
        list(batch),
        3,
        generators(),
        output_type="pt",
        callback_on_step_end=lambda pipe, i, t, state: seen.append((i, float(t), state["x"].shape)),
    ).images
    assert [i for i, _, _ in seen] == [0, 1, 2] and tuple(t for _, t, _ in seen) == pipeline.scheduler.plan.times
    for i, generator in enumerate(generators()):
        alone = pipeline(batch[i], 3, generator, output_type="pt").images[0]
        assert torch.allclose(alone, together[i], atol=1e-5)  # a batch may choose other kernels


def test_network_is_a_diffusers_model(pipeline):
    x, mu = images(), images().flip(0)
    with torch.no_grad():
        assert torch.equal(pipeline.network(x, mu, torch.tensor(50.0)), pipeline.network.network(x, mu, 50.0))
    assert pipeline.network.config.which_model_G == "ConditionalNAFNet"


def test_without_an_algorithm_it_is_the_default_solver():
    default = Solver("mrsampler", 8, order=1, clamp=True, fit_target="noise")
    assert MRSamplerScheduler().solver_for(8) == default
    assert MRSamplerScheduler(tau=0.5).solver_for(8) == replace(default, tau=0.5)
    assert MRSamplerScheduler(algorithm="mrsampler").solver_for(8) == Solver("mrsampler", 8, fit_target="noise")
