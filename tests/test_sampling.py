"""The loop and its contract: facts 24 to 26 of docs/numerics.md, noise, precision, errors."""

import math
import pickle
import re

import numpy as np
import pytest
import torch

from codes.names import OptionValueError, scalar_time
from codes.sde import MeanRevertingSDE
from codes.solvers import GRIDS, SOLVERS, NonFiniteError, Solver, make_plan, sample
from codes.solvers.options import OPTIONS

from .evaluation import generators

SDE = MeanRevertingSDE()
IRSDE = MeanRevertingSDE(convention="irsde")
SCHEDULES = [
    SDE,
    IRSDE,
    MeanRevertingSDE(max_sigma=10, T=100, schedule="linear"),
    MeanRevertingSDE(max_sigma=70, T=1000, schedule="cosine"),
]


@scalar_time
def network(x, mu, t):
    """Something smooth in all its arguments."""
    return torch.tanh(2 * (x - mu)) + 0.2 * math.sin(t / 30) * mu


def images(n=2, dtype=torch.float32):
    return torch.rand(n, 3, 5, 7, dtype=dtype, generator=torch.Generator().manual_seed(1))


def fewest(algorithm: str) -> int:
    return 2 if algorithm == "mrsampler" else 1  # order 2 needs two


@pytest.mark.parametrize("algorithm", list(SOLVERS))
@pytest.mark.parametrize("sde", SCHEDULES[:2], ids=["daclip", "irsde"])
def test_network_calls_equal_nfe(algorithm, sde):
    """Fact 24 of docs/numerics.md."""
    for nfe in range(fewest(algorithm), 21):
        calls = []

        @scalar_time
        def counted(x, mu, t, calls=calls):
            calls.append(t)
            return network(x, mu, t)

        out = sample(counted, sde, images(), Solver(algorithm, nfe), fit_target="noise", generator=torch.Generator())
        assert len(calls) == out.nfe == nfe
        assert tuple(calls) == out.times
        assert all(type(t) is float for t in calls)
        assert torch.isfinite(out.sample).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_time_is_a_tensor_with_an_entry_for_each_image(dtype):
    times = []

    class Usual(torch.nn.Module):
        """Embeds the time as most networks do."""

        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Linear(1, 3, dtype=dtype)

        def forward(self, x, mu, t):
            times.append(t)
            return (x - mu) * self.embed(t[:, None] / 100)[..., None, None]

    mu = images(dtype=dtype)
    out = sample(Usual(), SDE, mu, Solver("mrsampler", 4), fit_target="noise", generator=torch.Generator())
    assert {(t.shape, t.dtype, t.device) for t in times} == {((2,), dtype, mu.device)}
    assert [t.tolist() for t in times] == [[float(torch.tensor(t, dtype=dtype))] * 2 for t in out.times]


@pytest.mark.parametrize("sde", SCHEDULES, ids=["daclip", "irsde", "linear", "T1000"])
@pytest.mark.parametrize("schedule", list(GRIDS))
def test_grids_rise_in_lambda_and_end_exactly(sde, schedule):
    """Fact 25 of docs/numerics.md."""
    for nfe in (2, 3, 4) if schedule == "optimised" else (1, 2, 3, 4, 5, 7, 10, 20, 50, 100):
        plan = make_plan(sde, Solver("mrsampler", nfe, order=1, time_schedule=schedule))
        points = [step.point for step in plan.steps] + [plan.end]
        lambdas = [point.lambda_ for point in points]
        assert len(points) == nfe + 1
        assert all(np.diff(lambdas[:-1]) > 0) and lambdas[-1] > lambdas[-2]
        assert plan.end == sde.point(0.0)
        if schedule != "leading":  # starts one stride below T by definition
            assert points[0] == sde.point(sde.T)
        for point in points[1:-1]:
            assert float(sde.lambda_(point.t)) == pytest.approx(point.lambda_, abs=1e-9)


@pytest.mark.parametrize("sde", SCHEDULES[:2], ids=["daclip", "irsde"])
def test_default_grid_keeps_to_the_training_range(sde):
    """Fact 25 of docs/numerics.md."""
    for nfe in range(2, 101):
        assert min(make_plan(sde, Solver("mrsampler-pc", nfe)).times) >= 1, nfe


@pytest.mark.parametrize("parameterization", ["data", "noise"])
def test_infinite_lambda_ends_with_a_data_prediction(parameterization):
    """Where sigma_0 = 0 no step in lambda reaches t = 0: the last one returns the data prediction."""
    mu = images(dtype=torch.float64)
    solver = Solver("mrsampler", 6, parameterization=parameterization, solver_type="ode")
    out = sample(network, IRSDE, mu, solver, fit_target="noise", generator=generators(2), return_trajectory=True)
    point, x = make_plan(IRSDE, solver).steps[-1].point, out.states[-2]
    assert math.isfinite(point.lambda_) and point.t > 0
    expected = (x - (1 - point.alpha) * mu - point.sigma * network(x, mu, point.t)) / point.alpha
    assert torch.allclose(out.sample, expected, rtol=1e-12)


def test_published_tables_without_the_published_solvers():
    """`interpolation: official` alone: the grid's points carry the separately interpolated values."""
    official = MeanRevertingSDE(interpolation="official")
    steps = make_plan(official, Solver("mrsampler", 20)).steps
    for step in steps:
        assert step.point == official.point(step.point.t)
    gaps = [abs(step.point.lambda_ - math.log(step.point.alpha / step.point.sigma)) for step in steps]
    assert max(gaps) == pytest.approx(0.038, abs=0.002)


def test_the_papers_grid_leaves_the_training_range():
    assert min(make_plan(SDE, Solver("mrsampler", 10)).times) > 1
    below = [sum(t < 1 for t in make_plan(SDE, Solver("mrsampler", nfe)).times) for nfe in (20, 50, 100)]
    assert below == [1, 3, 6]


def test_optimised_and_sinh_grids_have_the_documented_points():
    for nfe, interior in ((2, [0.51]), (3, [-0.29, 2.33]), (4, [-0.48, 1.33, 3.25])):
        points = [step.point.lambda_ for step in make_plan(SDE, Solver("mrsampler-pc", nfe)).steps]
        assert points[1:] == pytest.approx(interior, abs=1e-9)
    for nfe, tau, centre, width in ((5, 0.3, 2.0, 2.8), (8, 0.0, 3.5, 2.8), (10, 1.0, 3.5, 2.0)):
        ends = [math.asinh((end - centre) / width) for end in (float(SDE.lambda_(100)), SDE.lambda_end)]
        expected = centre + width * np.sinh(np.linspace(*ends, nfe + 1))
        plan = make_plan(SDE, Solver("mrsampler-pc", nfe, tau=tau))
        assert [step.point.lambda_ for step in plan.steps] == pytest.approx(list(expected[:-1]), abs=1e-9)


def test_float32_state_follows_float64():
    """Fact 26 of docs/numerics.md."""
    mu = images(dtype=torch.float64)
    for nfe in (5, 20, 100):
        solver = Solver("mrsampler", nfe, solver_type="ode")
        start = mu + SDE.sigma_inf * torch.randn(mu.shape, dtype=torch.float64, generator=torch.Generator())

        @scalar_time
        def bounded(x, mu, t):
            # A network whose data prediction is bounded, as a trained one's is: the noise that leads to 0.3..0.7.
            point = SDE.point(t)
            x0 = 0.5 + 0.2 * torch.tanh(x + mu)
            return (x - point.alpha * x0 - (1 - point.alpha) * mu) / point.sigma

        exact = sample(bounded, SDE, mu, solver, fit_target="noise", x_init=start).sample
        single = sample(bounded, SDE, mu.float(), solver, fit_target="noise", x_init=start.float()).sample
        assert float((single.double() - exact).abs().max()) < 1e-5


def test_same_images_alone_and_in_a_batch():
    mu = images(4)
    for algorithm in SOLVERS:
        solver = Solver(algorithm, 6, fit_target="noise")
        together = sample(network, SDE, mu, solver, generator=generators(4)).sample
        for i in range(4):
            alone = sample(network, SDE, mu[i : i + 1], solver, generator=generators(4)[i : i + 1]).sample
            assert torch.equal(alone[0], together[i]), algorithm


def test_same_seed_same_result_and_other_seed_another():
    mu = images()
    solver = Solver("mrsampler", 5, fit_target="noise")
    first, again, other = (
        sample(network, SDE, mu, solver, generator=torch.Generator().manual_seed(s)).sample for s in (3, 3, 4)
    )
    assert torch.equal(first, again)
    assert not torch.allclose(first, other, atol=1e-3)


def test_ode_needs_no_noise_once_it_has_a_start():
    mu = images()
    start = mu + 0.1
    out = sample(network, SDE, mu, Solver("mrsampler-pc", 6, tau=0.0, fit_target="noise"), x_init=start)
    assert out.nfe == 6
    with pytest.raises(ValueError, match="this run draws noise: give a generator"):
        sample(network, SDE, mu, Solver("mrsampler", 6, fit_target="noise"), x_init=start)


def test_recorded_noise_replays_a_generator():
    mu = images()
    solver = Solver("mrsampler-pc", 5, fit_target="noise")
    generator = torch.Generator().manual_seed(9)
    recorded = [torch.randn(mu.shape, generator=generator) for _ in range(6)]
    drawn = sample(network, SDE, mu, solver, generator=torch.Generator().manual_seed(9)).sample
    replayed = sample(network, SDE, mu, solver, noise=recorded).sample
    assert torch.equal(drawn, replayed)
    with pytest.raises(ValueError, match="recorded noise has 3 draws"):
        sample(network, SDE, mu, solver, noise=recorded[:3])


def test_corrector_repeats_the_step_with_the_same_noise():
    """With a constant data prediction corrected and uncorrected runs are one and the same."""
    mu = images(dtype=torch.float64)

    @scalar_time
    def constant(x, mu, t):
        return mu * 0.5

    noise = torch.randn(9, *mu.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    results = [
        sample(
            constant, SDE, mu, Solver("mrsampler-pc", 8, tau=1.0, corrector=c), fit_target="data", noise=noise
        ).sample
        for c in (0, 1, 2, 3)
    ]
    for other in results[1:]:
        assert torch.allclose(other, results[0], atol=1e-13)


@pytest.mark.parametrize("fit_target", ["noise", "data", "velocity", "score"])
def test_every_fit_target_gives_the_same_images(fit_target):
    """One network in four parameterizations."""
    from codes.prediction import convert

    @scalar_time
    def converted(x, mu, t):
        point = SDE.point(t)
        return convert(network(x, mu, t), x, mu, point, source="noise", target=fit_target, sigma_inf=SDE.sigma_inf)

    mu = images(dtype=torch.float64)
    for algorithm in SOLVERS:
        solver = Solver(algorithm, 8, clamp=False) if "pc" in algorithm else Solver(algorithm, 8)
        runs = [
            sample(net, SDE, mu, solver, fit_target=kind, generator=generators(2)).sample
            for net, kind in ((network, "noise"), (converted, fit_target))
        ]
        assert torch.allclose(runs[0], runs[1], rtol=1e-8, atol=1e-8), algorithm


def test_half_precision_network_keeps_a_float32_state():
    seen = []

    @scalar_time
    def half(x, mu, t):
        seen.append((x.dtype, mu.dtype))
        return network(x.float(), mu.float(), t).to(torch.float16)

    mu = images().half()
    solver = Solver("mrsampler-pc", 10, fit_target="noise")
    out = sample(half, SDE, mu, solver, generator=generators(2), return_trajectory=True)
    assert set(seen) == {(torch.float16, torch.float16)}
    assert out.sample.dtype == torch.float16
    assert {state.dtype for state in out.states} == {torch.float32}
    exact = sample(network, SDE, mu.float(), solver, generator=generators(2)).sample
    assert float((out.sample.float() - exact).abs().max()) < 5e-3


def test_trajectory_and_callback_agree():
    mu = images()
    calls = []
    solver = Solver("mrsampler-pc", 7, fit_target="noise")
    out = sample(network, SDE, mu, solver, generator=generators(2), callback=calls.append, return_trajectory=True)
    assert [info.step for info in calls] == list(range(1, 8)) and {info.steps for info in calls} == {7}
    assert [info.t for info in calls] == list(out.times)
    for info, state, prediction in zip(calls, out.states[1:], out.predictions, strict=True):
        assert torch.equal(info.x, state) and torch.equal(info.prediction, prediction)
    assert torch.equal(out.states[-1], out.sample)
    assert all(float(p.min()) >= 0 and float(p.max()) <= 1 for p in out.predictions)  # the clamp


def test_steps_change_none_of_their_inputs():
    mu, x, m0, m1, z = (images() + i for i in range(5))
    copies = [tensor.clone() for tensor in (mu, x, m0, m1, z)]
    step = make_plan(SDE, Solver("mrsampler", 5)).steps[2]
    step.advance(x, mu, (m0, m1), z, None)
    for tensor, copy in zip((mu, x, m0, m1, z), copies):
        assert torch.equal(tensor, copy)


def test_nan_stops_and_names_step_time_and_image():
    calls = []

    @scalar_time
    def breaks(x, mu, t):
        calls.append(t)
        y = network(x, mu, t)
        if len(calls) == 3:
            y[1, 0, 0, 0] = float("nan")
        return y

    with pytest.raises(NonFiniteError, match=r"step 3 of 8 .*t = [\d.]+\), image 1 of the batch") as caught:
        sample(breaks, SDE, images(), Solver("mrsampler", 8, fit_target="noise"), generator=generators(2))
    assert caught.value.step == 3 and caught.value.images == (1,) and caught.value.t == calls[2]
    assert len(calls) == 3


def test_infinity_stops_too():
    with pytest.raises(NonFiniteError):
        sample(
            lambda x, mu, t: x / 0, SDE, images(), Solver("posterior", 4), fit_target="noise", generator=generators(2)
        )


def test_later_start_has_the_marginal_spread():
    plan = make_plan(SDE, Solver("mrsampler", 6, lambda_min=-1.0))
    assert plan.steps[0].point.lambda_ == -1.0
    assert plan.start_sigma == pytest.approx(float(SDE.sigma_from_lambda(-1.0)))
    assert make_plan(SDE, Solver("mrsampler", 6, lambda_min=-5.0)).steps[0].point == SDE.point(100)
    assert make_plan(SDE, Solver("mrsampler", 6)).start_sigma == SDE.sigma_inf


@pytest.mark.parametrize("parameterization", ["data", "noise"])
def test_denoise_last_returns_the_data_prediction(parameterization):
    mu = images(dtype=torch.float64)
    solver = Solver("mrsampler", 5, parameterization=parameterization, denoise_last=True, solver_type="ode")
    out = sample(network, SDE, mu, solver, fit_target="noise", generator=generators(2), return_trajectory=True)
    point, x = make_plan(SDE, solver).steps[-1].point, out.states[-2]
    expected = (x - (1 - point.alpha) * mu - point.sigma * network(x, mu, point.t)) / point.alpha
    assert torch.allclose(out.sample, expected, rtol=1e-12)


def test_thresholding_works_on_the_image_range():
    """A data prediction far outside [0, 1] is pulled in; one inside is left alone."""
    mu = images()
    solver = Solver("mrsampler", 4, thresholding=True, threshold_ratio=0.9)

    def run(low, high):
        def net(x, mu, t):
            return low + (high - low) * images()

        out = sample(net, SDE, mu, solver, fit_target="data", generator=generators(2), return_trajectory=True)
        return out.predictions[0]

    assert torch.allclose(run(0.1, 0.9), 0.1 + 0.8 * images(), atol=1e-6)
    wild = run(-2.0, 3.0)
    assert float(wild.min()) >= 0 and float(wild.max()) <= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "mrsampler", "num_sample_steps": 0}, "num_sample_steps must be from 1 to 10000, got 0"),
        ({"algorithm": "mrsampler", "num_sample_steps": 1}, "order 2 needs num_sample_steps of at least 2, got 1"),
        ({"algorithm": "mrsampler", "num_sample_steps": 2, "order": 3}, "order 3 needs"),
        ({"algorithm": "mrsampler", "num_sample_steps": 1, "compat": "official"}, "order 2 needs"),
        ({"algorithm": "mr_sampler"}, "unknown algorithm 'mr_sampler', did you mean 'mrsampler'"),
        ({"algorithm": "mrsampler", "solver_type": "pde"}, "unknown solver_type 'pde'"),
        ({"algorithm": "mrsampler", "parameterization": "velocity"}, "unknown parameterization 'velocity'"),
        ({"algorithm": "mrsampler", "fit_target": "noize"}, "unknown fit_target 'noize', did you mean 'noise'"),
        ({"algorithm": "mrsampler", "time_schedule": "linear-lamda"}, "did you mean 'linear-lambda'"),
        ({"algorithm": "mrsampler", "order": 4}, "order must be from 1 to 3, got 4"),
        ({"algorithm": "mrsampler", "order": 1, "predictor": 2}, "order and predictor mean the same"),
        ({"algorithm": "mrsampler-pc", "corrector": -1}, "corrector must be from 0 to 3, got -1"),
        ({"algorithm": "mrsampler-pc", "tau": 1.5}, "tau must lie in [0, 1], got 1.5"),
        ({"algorithm": "mrsampler-pc", "tau": 0.5, "solver_type": "ode"}, "solver_type 'ode' means tau 0"),
        ({"algorithm": "mrsampler-pc", "gate": -1.0}, "gate must lie in [0, 1000], got -1"),
        ({"algorithm": "mrsampler-pc", "mode": "mse"}, "unknown mode 'mse', did you mean 'mmse'"),
        ({"algorithm": "mrsampler-pc", "clamp": (1.0, 0.0)}, "clamp must be true, false or"),
        ({"algorithm": "mrsampler-pc", "compat": "official"}, "unknown algorithm with compat 'official'"),
        ({"algorithm": "mrsampler", "compat": "oficial"}, "unknown compat 'oficial', did you mean 'official'"),
        ({"algorithm": "mrsampler", "compat": "official", "tau": 1.0}, "tau is not part of the published code"),
        ({"algorithm": "posterior", "corrector": 1}, "corrector has no meaning for algorithm 'posterior'"),
        ({"algorithm": "sde", "clamp": True}, "clamp has no meaning for algorithm 'sde'"),
        ({"algorithm": "mrsampler", "parameterization": "noise", "clamp": True}, "clamp acts on the data prediction"),
        ({"algorithm": "mrsampler", "time_schedule": "optimised"}, "grids for 2, 3 and 4 steps, got 8"),
        ({"algorithm": "mrsampler", "num_sample_steps": 2, "time_schedule": (100.0, 0.0)}, "2 steps need 3 times"),
        (
            {"algorithm": "mrsampler", "num_sample_steps": 2, "time_schedule": (100.0, 100.0, 0.0)},
            "not monotone: t = 100 is followed by t = 100",
        ),
        ({"algorithm": "mrsampler", "num_sample_steps": 2, "time_schedule": (120.0, 50.0, 0.0)}, "outside"),
        ({"algorithm": "mrsampler", "num_sample_steps": 150, "time_schedule": "leading"}, "not monotone"),
        (
            {"algorithm": "mrsampler", "num_sample_steps": 100, "time_schedule": "leading", "compat": "official"},
            "not monotone",
        ),
        ({"algorithm": "mrsampler", "rho": 0.0}, "rho must lie in (0, 1000], got 0"),
        ({"algorithm": "mrsampler", "threshold_ratio": 0.0}, "threshold_ratio must lie in"),
        ({"algorithm": "mrsampler", "threshold_max": 0.5}, "threshold_max must lie in [1, 1000], got 0.5"),
        ({"algorithm": "ode", "num_sample_steps": 200, "compat": "official"}, "at most T = 100"),
    ],
)
def test_misuse_of_options_names_value_and_choices(options, message):
    with pytest.raises(OptionValueError, match=re.escape(message)) as caught:
        make_plan(SDE, Solver(**options))
    assert caught.value.option in options or caught.value.option == "order"  # whose default is 2
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.option, str(copy)) == (caught.value.option, str(caught.value))


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("order", "two", "be an integer, got 'two'"),
        ("order", 2.5, "be an integer, got 2.5"),
        ("order", True, "be an integer, got True"),
        ("rho", None, "be a number, got None"),
        ("rho", float("nan"), "lie in (0, 1000], got nan"),
        ("timestep_offset", -1.0, "lie in [0, 100000], got -1.0"),
        ("thresholding", 1, "be true or false, got 1"),
        ("clamp", "yes", "be true or false or [low, high], got 'yes'"),
        ("clamp", ("a", "b"), "have numbers from -1000 to 1000, got 'a'"),
        ("clamp", (0.0, float("inf")), "have numbers from -1000 to 1000, got inf"),
        ("time_schedule", ("a", "b", "c"), "have numbers from 0 to 100000, got 'a'"),
        ("num_sample_steps", 10**400, f"be from 1 to 10000, got {10**400}"),
    ],
)
def test_values_of_another_type_are_refused(option, value, expected):
    with pytest.raises(OptionValueError) as caught:
        Solver("mrsampler", **{option: value})
    assert str(caught.value) == f"{option} must {expected}"


def test_lists_are_taken_as_tuples():
    solver = Solver("mrsampler", 2, time_schedule=[100, 50, 0], clamp=[-1, 1])
    assert solver == Solver("mrsampler", 2, time_schedule=(100, 50, 0), clamp=(-1, 1))
    assert solver.clamp_range == (-1, 1) and hash(solver)


def test_every_option_has_a_description_for_help():
    for name, option in OPTIONS.items():
        assert f"{name} " in Solver.__doc__ and option.text in Solver.__doc__


def test_misuse_of_sample():
    mu, solver = images(), Solver("mrsampler", 4)
    run = {"generator": torch.Generator(), "fit_target": "noise"}
    with pytest.raises(ValueError, match="fit_target is missing: say what the network predicts"):
        sample(network, SDE, mu, solver, generator=torch.Generator())
    with pytest.raises(ValueError, match="unknown fit_target 'nose', did you mean 'noise'"):
        sample(network, SDE, mu, solver, generator=torch.Generator(), fit_target="nose")
    with pytest.raises(ValueError, match=r"x_init has shape \(2, 3, 5, 6\), mu has"):
        sample(network, SDE, mu, solver, x_init=mu[..., :-1], **run)
    with pytest.raises(ValueError, match="the network's prediction has shape"):
        sample(lambda x, mu, t: x[:, :1], SDE, mu, solver, **run)
    with pytest.raises(ValueError, match="x_init is on meta, mu is on cpu"):
        sample(network, SDE, mu, solver, x_init=mu.to("meta"), **run)
    with pytest.raises(ValueError, match="one generator per image: expected 2, got 3"):
        sample(network, SDE, mu, solver, generator=generators(3), fit_target="noise")
    with pytest.raises(ValueError, match="generator or noise, not both"):
        sample(network, SDE, mu, solver, noise=[mu], **run)
    with pytest.raises(ValueError, match="floating-point image"):
        sample(network, SDE, (mu * 255).byte(), solver, **run)
    for wrong, values in ((mu * 255, r"2\.\d+ to 254"), (mu * 2 - 1.6, r"-1\.\d+ to 0"), (mu / 0 * 0, "nan to nan")):
        with pytest.raises(ValueError, match=rf"^mu must be images in \[0, 1\], got values from {values}"):
            sample(network, SDE, wrong, solver, **run)
    with pytest.raises(ValueError, match="^mu must be free of NaN"):
        sample(network, SDE, mu / 0 * 0, solver, mu_range=None, **run)
    with pytest.raises(ValueError, match="mu must be a batch of images, got an empty tensor"):
        sample(network, SDE, mu[:0], solver, **run)
    assert sample(network, SDE, mu * 20, solver, mu_range=None, **run).nfe == 4
    with pytest.raises(ValueError, match="the plan was made for another schedule"):
        sample(network, IRSDE, mu, make_plan(SDE, solver), **run)


def test_published_sampler_cannot_run_on_the_other_convention():
    with pytest.raises(ValueError, match="does not run on convention 'irsde'"):
        make_plan(IRSDE, Solver("mrsampler", 5, compat="official"))


def test_published_option_blocks_are_taken_as_they_are():
    block = {
        "num_sample_steps": 20,
        "solver_type": "sde",
        "parameterization": "data",
        "order": 2,
        "fit_target": "noise",
        "lambda_min": -5.0,
        "time_schedule": "linear-lambda",
        "timestep_offset": 0,
        "rho": 7.0,
        "thresholding": False,
        "threshold_ratio": 0.995,
        "threshold_max": 1.5,
        "denoise_last": False,
    }
    for algorithm in SOLVERS:
        plan = make_plan(SDE, Solver(algorithm, **block))
        assert plan.nfe == 20
    assert [step.order for step in make_plan(SDE, Solver("mrsampler", **block)).steps] == [1, *[2] * 19]


def test_one_evaluation_is_allowed_and_warned_about(caplog):
    make_plan(SDE, Solver("mrsampler-pc", 1))
    assert "amplified 39 times" in caplog.text
