"""Few evaluations and imperfect networks: facts 19 to 22 of docs/numerics.md, and the goal for mrsampler-pc."""

import pytest
import torch

from codes.exact import sliced_wasserstein
from codes.solvers import Solver

from .problems import (
    SDE,
    geometric_mean,
    psnr,
    restore,
    rms,
    study_problems,
)

PROBLEMS = {problem.name: problem for problem in study_problems()}
# The problems of docs/numerics.md leave the image range a little; their own range takes the place of [0, 1].
CLAMP = (-1.0, 2.0)


def published(nfe: int, solver_type: str) -> Solver:
    """The paper's recommended setting, as published."""
    return Solver("mrsampler", nfe, solver_type=solver_type, time_schedule="linear-lambda", compat="official")


def pc(nfe: int, **options) -> Solver:
    return Solver("mrsampler-pc", nfe, clamp=CLAMP, **options)


def gmm64_psnr(solver: Solver, delta: float) -> float:
    problem = PROBLEMS["gmm64"]
    return psnr(restore(problem, solver, 400, delta=delta).clamp(-0.5, 0.5), problem.draw(400, 99))


def test_noise_prediction_collapses_with_the_exact_score():
    """Fact 19 of docs/numerics.md."""
    collapse = {nfe: gmm64_psnr(Solver("mrsampler", nfe, parameterization="noise"), 0.0) for nfe in (5, 10, 20)}
    assert collapse[5] < 8 and collapse[10] < 8
    assert collapse[20] > 17


def test_two_evaluations_with_an_imperfect_network():
    """Fact 20 of docs/numerics.md."""
    assert gmm64_psnr(published(2, "sde"), 0.02) < 9
    for nfe in range(2, 21):
        assert gmm64_psnr(pc(nfe), 0.02) > 17, nfe


@pytest.mark.parametrize("name", list(PROBLEMS))
@pytest.mark.parametrize("delta", [0.0, 0.02])
def test_never_a_decibel_below_an_exact_sample(name, delta):
    """Fact 21 of docs/numerics.md."""
    problem = PROBLEMS[name]
    truth = problem.draw(800, 99)
    exact = psnr(problem.draw(800, 98), truth)
    for nfe in range(2, 21):
        assert psnr(restore(problem, pc(nfe), 800, delta=delta), truth) > exact - 1, nfe


@pytest.mark.parametrize("delta", [0.0, 0.02])
def test_flow_error_against_the_published_scheme(delta):
    """Fact 22 of docs/numerics.md."""
    starts, flows = {}, {}
    for name, problem in PROBLEMS.items():
        generator = torch.Generator().manual_seed(3)
        starts[name] = SDE.sigma_inf * torch.randn(160, problem.dim, dtype=torch.float64, generator=generator)
        flows[name] = problem.exact_flow(starts[name])

    def ratio(nfe: int) -> float:
        errors = [
            [
                rms(restore(problem, solver, 160, delta=delta, start=starts[name]) - flows[name])
                for solver in (pc(nfe, tau=0.0), published(nfe, "ode"))
            ]
            for name, problem in PROBLEMS.items()
        ]
        return geometric_mean([ours / theirs for ours, theirs in errors])

    if delta:
        assert ratio(2) <= 0.2
    for nfe in (4, 5):
        assert ratio(nfe) <= 0.6
    for nfe in (6, 7, 8, 9, 10, 12, 15, 20):
        assert ratio(nfe) <= 0.9


def test_pc_has_half_the_distribution_error_of_the_published_sde_solver():
    """Sliced Wasserstein distance to the truth with model error 0.02, against the published MR-SDE-2."""
    ratios = []
    for problem in PROBLEMS.values():
        truth = problem.draw(2000, 98)
        for nfe in (4, 5, 6, 8, 10):
            ours = sliced_wasserstein(restore(problem, pc(nfe), 2000, delta=0.02), truth)
            theirs = sliced_wasserstein(restore(problem, published(nfe, "sde"), 2000, delta=0.02), truth)
            ratios.append(ours / theirs)
    assert geometric_mean(ratios) <= 0.6


@pytest.mark.parametrize("name", ["gauss16", "gmm64"])
def test_pc_does_not_collapse_from_2_to_100_evaluations(name):
    problem = PROBLEMS[name]
    truth = problem.draw(200, 99)
    exact = psnr(problem.draw(200, 98), truth)
    for nfe in [*range(2, 31), 40, 50, 64, 75, 90, 100]:
        assert psnr(restore(problem, pc(nfe), 200, delta=0.05), truth) > exact - 3, nfe


def test_mmse_mode_has_the_best_psnr():
    """Few first-order steps stay near the posterior mean, 3 dB above a posterior sample."""
    problem = PROBLEMS["gmm64"]
    truth = problem.draw(800, 99)
    for nfe in (3, 5, 8):
        assert psnr(restore(problem, pc(nfe, mode="mmse"), 800), truth) > psnr(restore(problem, pc(nfe), 800), truth)


def test_correct_strides_cure_posterior_sampling_and_euler():
    """The published code collapses below 100 evaluations because of its stride, not the method."""
    problem = PROBLEMS["stiff16"]
    truth = problem.draw(400, 99)
    for algorithm in ("posterior", "sde"):
        quality = {
            (nfe, compat): psnr(restore(problem, Solver(algorithm, nfe, compat=compat), 400), truth)
            for nfe in (10, 100)
            for compat in (None, "official")
        }
        assert quality[100, None] == pytest.approx(quality[100, "official"], abs=0.15)
        assert quality[10, "official"] < quality[100, "official"] - 5
        assert quality[10, None] > quality[100, None] - 2


def test_published_heun_is_wrong_even_with_all_evaluations():
    problem = PROBLEMS["gauss16"]
    generator = torch.Generator().manual_seed(3)
    start = SDE.sigma_inf * torch.randn(100, 16, dtype=torch.float64, generator=generator)
    flow = problem.exact_flow(start)
    right = rms(restore(problem, Solver("heun", 100), 100, start=start) - flow)
    wrong = rms(restore(problem, Solver("heun", 100, compat="official"), 100, start=start) - flow)
    assert wrong > 5 * right
