"""Distillation: the distance to a teacher's restorations in one and two evaluations."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from codes.commands.train import main as train
from codes.sde import MeanRevertingSDE
from codes.solvers import Solver, make_plan, sample
from codes.training import checkpoints, loop
from codes.training.distillation import Distillation, restored
from codes.training.objective import Objective

from .helpers import ALONE, assert_equal, first_batch, make_run, torchrun, weights, write_options

DISTILL = {"teacher_steps": [3, 4], "share": 0.6}


def plans(sde: MeanRevertingSDE, *counts: int, tau: float = 0.0):
    return tuple(make_plan(sde, Solver("mrsampler", n, order=1, tau=tau)) for n in counts)


def distillation(sde: MeanRevertingSDE, target: str, **changes: Any) -> Distillation:
    made = Distillation(
        teacher=torch.nn.Identity(),
        teacher_target=target,
        student_target=target,
        teacher_plans=plans(sde, 8, 16),
        student_plans=plans(sde, 1, 2),
        share=1.0,
        weight=1.0,
        loss="l1",
    )
    return replace(made, **changes)


@pytest.fixture
def problem():
    """Degraded and clean images, noise, random numbers; and exact networks, which know the clean image."""
    sde, generator = MeanRevertingSDE(), torch.Generator().manual_seed(0)
    x0, mu, noise = torch.rand(3, 6, 3, 8, 8, generator=generator, dtype=torch.float64)
    lots = torch.rand(6, 2, generator=generator)

    def exact(target: str, clean: torch.Tensor = x0):
        objective, never = Objective(sde=sde, target=target), torch.zeros(6, dtype=torch.bool)
        return lambda x, mu, t, rows: objective.targets(x, clean[rows], mu, t, never[rows])

    return sde, x0, mu, noise, lots, exact


@pytest.mark.parametrize("target", ["data", "velocity"])
def test_a_student_as_good_as_an_exact_teacher_has_no_loss(problem, target):
    """With the exact prediction the first-order solver has no error, however many evaluations it makes."""
    sde, x0, mu, noise, lots, exact = problem
    made = distillation(sde, target)
    assert float(made(exact(target), exact(target), mu, noise, lots)) < 1e-12
    wrong = made(exact(target), exact(target, x0 + 0.1), mu, noise, lots)
    # The result is the data prediction but for the weight 1 - alpha of the process at t = 0.
    assert float(wrong) == pytest.approx(0.1, rel=1e-3)


def test_teacher_and_student_may_predict_different_things(problem):
    sde, _, mu, noise, lots, exact = problem
    made = distillation(sde, "velocity", teacher_target="data")
    assert float(made(exact("data"), exact("velocity"), mu, noise, lots)) < 1e-12


def test_share_and_weight(problem):
    """Averaged over all samples, so that the parts of a batch add up to the whole."""
    sde, x0, mu, noise, lots, exact = problem
    made = distillation(sde, "data", share=0.5, weight=3.0)
    chosen = int((lots[:, 0] < 0.5).sum())
    assert 0 < chosen < 6
    teacher, student = exact("data"), exact("data", x0 + 0.1)
    whole = float(made(teacher, student, mu, noise, lots))
    assert whole == pytest.approx(3 * 0.1 * chosen / 6, rel=1e-3)
    parts = [
        float(made(exact("data", x0[rows]), exact("data", x0[rows] + 0.1), mu[rows], noise[rows], lots[rows]))
        for rows in (slice(0, 3), slice(3, 6))
    ]
    assert sum(parts) / 2 == pytest.approx(whole, rel=1e-9)
    assert float(distillation(sde, "data", share=0.0)(teacher, student, mu, noise, lots)) == 0


def test_every_sample_draws_its_number_of_evaluations(problem):
    sde, _, mu, noise, lots, exact = problem
    calls = []

    def teacher(x, mu, t, rows):
        calls.extend((int(row), float(t[0])) for row in rows)
        return exact("data")(x, mu, t, rows)

    distillation(sde, "data")(teacher, exact("data"), mu, noise, lots)
    counts = [sum(row == i for row, _ in calls) for i in range(6)]
    assert counts == [16 if lot >= 0.5 else 8 for lot in lots[:, 1].tolist()]


@pytest.mark.parametrize("tau", [0.0, 0.5])
def test_restorations_are_those_of_the_sampler(problem, tau):
    sde, _, mu, noise, _, _ = problem
    (plan,) = plans(sde, 4, tau=tau)

    def network(x, mu, t, rows):
        return 0.5 * x + 0.3 * mu

    drawn = [noise, *(noise.roll((k, k), (-2, -1)) for k in range(1, 5))]
    expected = sample(
        lambda x, mu, t: network(x, mu, t, slice(None)), sde, mu, plan, fit_target="data", noise=drawn
    ).sample
    found = restored(network, plan, "data", mu, noise, rows=torch.arange(6))
    assert torch.allclose(found, expected, rtol=0, atol=1e-12)


def test_gradients_flow_through_the_last_evaluation_only(problem):
    sde, _, mu, noise, _, _ = problem
    (plan,) = plans(sde, 2)
    scales = [torch.ones((), dtype=torch.float64, requires_grad=True) for _ in range(2)]
    calls = iter(scales)
    found = restored(lambda x, mu, t, rows: next(calls) * x, plan, "data", mu, noise, rows=torch.arange(6), learn=True)
    found.sum().backward()
    assert scales[0].grad is None and scales[1].grad != 0


def begun(world: Path) -> dict[str, Any]:
    return {"path": {"pretrain_model_G": str(world / "results" / "reference" / "models" / "12_EMA.safetensors")}}


def test_options_act(world, copy):
    run = make_run(copy, **begun(world), train__distill=DISTILL)
    made, batch = run.distillation, first_batch(run)
    assert [plan.nfe for plan in made.teacher_plans] == [3, 4] and [plan.nfe for plan in made.student_plans] == [1, 2]
    assert_equal(dict(made.teacher.state_dict()), dict(run.models.network.state_dict()))
    plain, _ = loop.batch_loss(replace(run, distillation=None), run.models.network, batch)
    loss, _ = loop.batch_loss(run, run.models.network, batch)
    chosen = int((batch.lots[:, 0] < 0.6).sum())
    assert chosen and float(loss.detach()) > float(plain.detach())

    def added(**changes: Any) -> float:
        other = make_run(copy, **begun(world), train__distill={**DISTILL, **changes})
        return float((loop.batch_loss(other, other.models.network, batch)[0] - plain).detach())

    usual = added()
    assert added(weight=2.0) == pytest.approx(2 * usual, rel=1e-4)
    assert added(share=0.0) == 0
    for changes in ({"tau": 1.0}, {"teacher_steps": [8]}, {"student_steps": [1]}):
        assert added(**changes) != pytest.approx(usual, rel=1e-3), changes
    other = {"teacher": str(world / "results" / "reference" / "models" / "4_EMA.safetensors")}
    assert added(**other) != pytest.approx(usual, rel=1e-3)


def test_the_teacher_stays_and_the_student_learns(world, copy):
    run = make_run(copy, **begun(world), train__distill=DISTILL)
    before = {key: value.clone() for key, value in run.distillation.teacher.state_dict().items()}
    loop.step(run, loop.make_learner(run, ALONE), first_batch(run), ALONE)
    assert_equal(dict(run.distillation.teacher.state_dict()), before)
    assert any(not torch.equal(value, before[key]) for key, value in run.models.network.state_dict().items())


def test_distillation_resumes_exactly(world, copy):
    changes = {"train__distill": DISTILL, "datasets__val__max_images": 1}
    assert train(["-opt", str(write_options(copy, "whole", **begun(world), **changes))]) == 0
    state = copy / "results" / "whole" / "training_state" / "8.state"
    path = {**begun(world)["path"], "resume_state": str(state)}
    assert train(["-opt", str(write_options(copy, "rest", path=path, **changes))]) == 0
    ours, theirs = (checkpoints.read(copy / f"results/{name}/training_state/12.state") for name in ("rest", "whole"))
    assert_equal(ours, theirs)


@pytest.mark.slow
def test_two_processes_distil_as_one(world, copy):
    changes = {"train__distill": DISTILL, "train__niter": 4}
    assert train(["-opt", str(write_options(copy, "one", **begun(world), **changes))]) == 0
    torchrun(2, write_options(copy, "two", **begun(world), **changes))
    one, two = (weights(copy / "results" / name, 4) for name in ("one", "two"))
    assert all(torch.allclose(one[key], two[key], rtol=0, atol=2e-5) for key in one)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"train__distill": {}}, "train.distill.teacher: missing, and path.pretrain_model_G names no weights"),
        ({"train__distill": {"teacher": "no.pth"}}, "train.distill.teacher: no.pth: no such file"),
        (
            {"train__distill": {"teacher": "no.pth"}, "train__target": "noise"},
            "train.distill: needs train.target data or velocity, got noise",
        ),
        ({"train__distill": {"teacher_steps": []}}, "train.distill.teacher_steps: expected a list"),
        ({"train__distill": {"taeu": 1}}, "train.distill.taeu: unknown option, did you mean"),
    ],
)
def test_bad_options_are_reported_in_one_line(copy, capsys, changes, expected):
    assert train(["-opt", str(write_options(copy, **changes))]) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert expected in message and message.startswith(str(copy / "run.yml"))


def test_a_teacher_of_another_schedule_is_refused(world, copy, capsys):
    teacher = begun(world)["path"]["pretrain_model_G"]
    changes = {"train__distill": {"teacher": teacher}, "sde": {"convention": "daclip", "T": 50}}
    assert train(["-opt", str(write_options(copy, **changes))]) == 2
    assert "train.distill.teacher: trained with another schedule" in capsys.readouterr().err
