"""Figures: what they are computed from is right, and the same numbers give the same files."""

import math
from dataclasses import replace

import numpy as np
import pytest

from codes.evaluation.statistics import Estimate
from codes.figures import FIGURES, stability, stored, style
from codes.figures.comparison import ComparisonRow, detailed_part
from codes.figures.convergence import ConvergenceRun, convergence_ratio
from codes.figures.curves import CurvePoint
from codes.figures.stability import Scheme, critical_step, exact_gain, theory
from codes.figures.trajectories import Pair, Trajectory, explained, principal_plane, project
from codes.rows import load
from codes.study import figures as study
from codes.study.candidates import Candidate

ALL = FIGURES | study.FIGURES


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def picture(side: int = 16, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 255, (side, side, 3)).astype(np.uint8)


# ---- what is computed


def test_plane_of_known_states(rng):
    """States in a plane of 50 dimensions come back as they were, up to a turn, and lose nothing."""
    basis = np.linalg.qr(rng.standard_normal((50, 2)))[0].T
    flat = rng.standard_normal((20, 2)) * [3, 1]
    states = flat @ basis + rng.standard_normal(50)
    plane = principal_plane(states)
    assert np.allclose(plane[1] @ plane[1].T, np.eye(2), atol=1e-12)
    assert explained(states, plane) == pytest.approx(1, abs=1e-12)
    seen = project(states, plane)
    distances = [np.linalg.norm(points[:, None] - points[None], axis=-1) for points in (flat, seen)]
    assert np.allclose(*distances, atol=1e-12)
    assert seen[:, 0].var() > seen[:, 1].var()
    # A direction across the plane is not seen.
    across = np.linalg.svd(plane[1])[2][-1]
    assert np.allclose(project(states + 5 * across, plane), seen, atol=1e-9)


def test_convergence_ratio_of_a_known_trajectory():
    # m = lambda has c_0 = lambda, c_1 = 1: it counts where |lambda| > h.
    lambdas = np.array([-2.0, -1.0, 0.5, 2.0, 3.0])
    ratios = convergence_ratio(lambdas[:-1, None], lambdas)
    assert ratios.tolist() == [0.0, 0.0, 1.0]  # |-1| > 1.5 no, |0.5| > 1.5 no, |2| > 1 yes
    # Half of the components constant (always convergent), half as above.
    both = np.stack([lambdas[:-1], np.ones(4)], axis=1)
    assert convergence_ratio(both, lambdas).tolist() == [0.5, 0.5, 1.0]


def test_convergence_ratio_depends_on_the_origin(rng):
    """Why it is no test of stability: shifting data and mu together changes no sample, but the ratio."""
    lambdas = np.linspace(-3, 6, 7)
    m = 0.5 + 0.1 * rng.standard_normal((6, 1000))
    assert (convergence_ratio(m, lambdas) > convergence_ratio(m - 0.5, lambdas)).all()


def test_convergence_ratio_needs_the_end():
    with pytest.raises(ValueError, match="6 predictions need 7 lambdas, got 6"):
        convergence_ratio(np.ones((6, 2)), np.arange(6))


@pytest.mark.parametrize("scheme", stability.SCHEMES, ids=str)
def test_measured_gain_is_that_of_theory(scheme):
    from codes.figures.collect import measured_gain

    gain = measured_gain(scheme, 30)  # h = 2.4
    assert gain.gain == pytest.approx(theory(scheme, gain.h), rel=1e-3)


def test_critical_steps_are_those_of_the_recursions():
    assert critical_step(Scheme("noise", 1, 1.0)) == pytest.approx(math.log(3), abs=1e-6)
    h = critical_step(Scheme("noise", 2, 1.0))  # z = -1 is a root there
    assert 3 - math.exp(h) - 4 * (math.expm1(h) - h) / h == pytest.approx(0, abs=1e-6)
    assert 0.52 < h < 0.55
    assert 1.24 < critical_step(Scheme("noise", 2, 0.0)) < 1.27
    for order, tau in ((1, 1.0), (2, 1.0), (1, 0.0), (2, 0.0)):
        assert math.isinf(critical_step(Scheme("data", order, tau, "broad")))
    assert theory(Scheme("data", 2, 1.0), 0.7) == exact_gain(Scheme("data", 2, 1.0), 0.7) == math.exp(-0.7)
    with pytest.raises(ValueError, match="order must be 1 or 2, got 3"):
        theory(Scheme("data", 3, 1.0), 1)


def test_most_detailed_part(rng):
    image = np.full((64, 64, 3), 100, np.uint8)
    image[40:56, 8:24] = rng.integers(0, 255, (16, 16, 3))
    top, left = detailed_part(image, 16)
    assert abs(top - 40) <= 1 and abs(left - 8) <= 1


# ---- files


def example(name):
    """Arguments of a figure, without the path."""
    rng = np.random.default_rng(0)
    points = [
        CurvePoint(
            task=task, method=method, nfe=nfe, values={"fid": 20 + 100 / nfe, "lpips": None}, published=published
        )
        for task in ("rainy", "hazy")
        for method in ("Posterior", "mrsampler-pc", "another")
        for nfe in (5, 10)
        for published in (True, False)
    ]
    runs = [
        Trajectory("Euler", 3, rng.random((4, 8, 8, 3)).astype(np.float16)),
        Trajectory("MR Sampler-1", 2, rng.random((3, 8, 8, 3)).astype(np.float16)),
    ]
    convergence = [
        ConvergenceRun(
            nfe=nfe,
            parameterization=kind,
            solver_type="sde",
            ratios=np.linspace(0, 1, nfe - 1),
            image=picture(),
            psnr=20.0,
        )
        for nfe in (3, 5)
        for kind in ("data", "noise")
    ]
    row = ComparisonRow(
        "rainy", ("degraded", "posterior (5)", "clean"), ("9.0 dB", "20.0 dB", ""), np.stack([picture(32)] * 3)
    )
    scores = {
        Candidate(nfe=nfe, scheme=scheme, tau=1.0): 0.3 / nfe for nfe in (2, 5) for scheme in ("order1", "order2")
    }
    curves = {candidate: Estimate(score, 0.01, 4) for candidate, score in scores.items()}
    gains = [stability.Gain(parameterization="noise", order=2, tau=1.0, data="narrow", h=1.0, gain=2.5)]
    return {
        "curves": (points,),
        "trajectories": (runs, [Pair(picture(8), picture(8, seed=1))]),
        "convergence": (convergence,),
        "comparison": ([row],),
        "stability": (gains,),
        "study": ({"net": curves, "other": curves}, {"other": 0.1}),
        "front": (scores, Candidate(nfe=5, scheme="order2", tau=1.0), "LPIPS"),
    }[name]


@pytest.mark.parametrize("name", ALL)
def test_same_numbers_give_the_same_files(name, tmp_path):
    arguments = example(name)
    first = ALL[name].draw(*arguments, tmp_path / "a" / name)
    second = ALL[name].draw(*arguments, tmp_path / "b" / name)
    assert [path.name for path in first] == [f"{name}.png", f"{name}.svg"]
    for a, b in zip(first, second, strict=True):
        assert a.read_bytes() == b.read_bytes()
    svg = first[1].read_text()
    assert "date" not in svg.lower()
    if name == "curves":  # one panel row only: LPIPS is not known
        assert "FID" in svg and "LPIPS" not in svg and "another" in svg


def test_rows_are_complete():
    for name, row in ALL.items():
        assert row.name == name and row.title and row.caption.endswith(".")
        assert not row.collect or callable(load(row.collect))
        assert not row.stored or row.stored[0][0] == name
    assert {name for name in FIGURES if not FIGURES[name].stored} == {"curves"}


def test_nothing_to_draw_is_an_error(tmp_path):
    points = [CurvePoint(task="rainy", method="Euler", nfe=5, values={"fid": None})]
    with pytest.raises(ValueError, match="nothing to draw: no values of fid, lpips"):
        FIGURES["curves"].draw(points, tmp_path / "none")
    assert not list(tmp_path.iterdir())


def test_methods_can_be_told_apart_in_colour_and_in_grey():
    lines = [*style.METHODS.values()]
    assert len({line.color for line in lines}) == len({line.marker for line in lines}) == len(lines)


def test_what_is_stored_comes_back(tmp_path, rng):
    first = {"nfe": 5, "parameterization": "data", "solver_type": "sde", "image": picture(), "psnr": 21.5}
    second = {"nfe": 3, "parameterization": "noise", "solver_type": "ode", "image": picture(8), "psnr": math.nan}
    runs = [
        ConvergenceRun(**first, ratios=rng.random(4), centred=rng.random(4)),
        ConvergenceRun(**second, ratios=rng.random(2)),
    ]
    stored.write_items(tmp_path / "runs.npz", runs)
    for before, after in zip(runs, stored.read_items(tmp_path / "runs.npz", ConvergenceRun), strict=True):
        assert (after.nfe, after.name) == (before.nfe, before.name)
        assert np.array_equal(after.ratios, before.ratios) and np.array_equal(after.image, before.image)
        assert (after.centred is None) == (before.centred is None)
    row = example("comparison")[0][0]
    stored.write_items(tmp_path / "row.npz", [row])
    (back,) = stored.read_items(tmp_path / "row.npz", ComparisonRow)
    assert back.captions == row.captions and replace(back, images=None) == replace(row, images=None)
