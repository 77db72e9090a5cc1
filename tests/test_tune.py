"""Choosing a solver: the front of known points, the truly best on an exact problem, and a file that runs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from codes import load_restorer
from codes.commands.test import main as evaluate
from codes.commands.tune import main as tune
from codes.config import OptionsError, load_options
from codes.data.images import from_uint8, read_image, save_image, to_uint8
from codes.data.pairs import Item
from codes.data.sets import Task
from codes.evaluation.records import read_records
from codes.exact import Mixture
from codes.names import scalar_time
from codes.restoration.restorer import Restoration
from codes.runtime.distributed import Process
from codes.sde import MeanRevertingSDE
from codes.solvers import Solver, make_plan, sample
from codes.study.bench import Bench, Stopped, crops, open_folder
from codes.study.candidates import (
    GRIDS,
    SCHEMES,
    TAUS,
    Candidate,
    budgeted,
    choose,
    combinations,
    deficit,
    front,
    mean,
    parse,
)

from .evaluation import write_images, write_options, write_weights

ROOT = Path(__file__).parent.parent


def c(nfe, scheme="pc", tau=1.0, clamp=False, grid="linear-lambda"):
    return Candidate(nfe=nfe, scheme=scheme, tau=tau, clamp=clamp, grid=grid)


# ---- candidates and fronts


def test_labels_can_be_read_back():
    everything = combinations((2, 100))
    assert [parse(candidate.label) for candidate in everything] == everything
    assert len({candidate.description for candidate in everything}) == len(everything) // 2
    assert parse("posterior-nfe5") is None
    for candidate in everything:
        plan = make_plan(MeanRevertingSDE(), Solver(**candidate.options()))
        assert plan.nfe == candidate.nfe and (plan.clamp is not None) == candidate.clamp


def test_the_papers_setting_is_the_papers():
    ours = make_plan(MeanRevertingSDE(), Solver(**c(10, "order2").options()))
    assert ours == make_plan(
        MeanRevertingSDE(), Solver("mrsampler", 10, solver_type="sde", order=2, time_schedule="linear-lambda")
    )


def test_front_of_known_points():
    scores = {c(2): 5.0, c(3): 6.0, c(4): 3.0, c(4, "order1"): 3.5, c(8): 3.0, c(10): 1.0, c(20): 2.0}
    assert front(scores) == [c(2), c(4), c(10)]
    assert front({}) == []


def test_choice_is_the_cheapest_that_is_not_measurably_worse():
    names = [f"t/{i}" for i in range(8)]
    best = {name: 1.0 + 0.1 * i for i, name in enumerate(names)}
    close = {name: best[name] + (0.02 if i % 2 else -0.01) for i, name in enumerate(names)}  # 0.005 +- 0.0057
    worse = {name: value + 0.05 + 0.001 * i for i, (name, value) in enumerate(best.items())}
    gap = deficit(close, best)
    assert (gap.mean, gap.error) == pytest.approx((0.005, 0.03 * (8 / 7) ** 0.5 / 2 / 8**0.5))
    assert choose({c(4): worse, c(8): close, c(20): best}) == c(8)
    assert choose({c(4): worse, c(20): best}) == c(20)


def test_budget_is_the_largest_number_of_evaluations():
    assert budgeted(7) == [1, 2, 3, 4, 5, 6, 7]
    assert budgeted(20)[-1] == 20
    with pytest.raises(ValueError, match="at least 2 evaluations, got 1"):
        budgeted(1)


def test_combinations_are_the_whole_product_of_what_is_given():
    everything = combinations([4, 15])
    assert len(everything) == len(set(everything)) == 2 * len(SCHEMES) * len(TAUS) * 2 * len(GRIDS)
    only_ode = combinations([4], taus=(0.0,), clamps=(False,), grids=GRIDS[:1])
    assert only_ode == [c(4, scheme, 0.0) for scheme in SCHEMES]


# ---- on an exact problem

SDE = MeanRevertingSDE()
MIXTURE = Mixture(
    name="pixels",
    weights=np.array([0.6, 0.4]),
    means=np.array([[0.15] * 3, [-0.2] * 3]),
    variances=np.full((2, 3), 0.05**2),
    sde=SDE,
)


class ExactRestorer:
    """Restores every pixel with the exact network of a mixture; images like any other network's."""

    device = torch.device("cpu")
    sde = SDE

    def batch(self, lq, plan, generators, *, callback=None):
        @scalar_time
        def network(x, mu, t):
            rows = [image.permute(0, 2, 3, 1).reshape(-1, 3) for image in (x, mu)]
            out = MIXTURE.noise_network()(*rows, t)
            return out.reshape(len(x), *x.shape[2:], 3).permute(0, 3, 1, 2)

        output = sample(network, SDE, lq, plan, fit_target="noise", generator=generators)
        return Restoration(samples=output.sample.clamp(0, 1), nfe=output.nfe)


def rms(restored, clean):
    return {"lpips": float(np.sqrt(np.mean((restored / 255.0 - clean / 255.0) ** 2)))}


@pytest.fixture
def bench(tmp_path):
    """Mid-grey images whose clean version is the exact flow of the ODE from the noise that every solver starts from."""
    from codes.data.pairs import image_seed

    items = []
    for i in range(2):
        lq = torch.full((3, 12, 12), 0.5)
        lq_path, gt_path = tmp_path / f"{i}-lq.png", tmp_path / f"{i}-gt.png"
        save_image(lq, lq_path)
        mu = read_image(lq_path)
        z = torch.randn(mu.shape, generator=torch.Generator().manual_seed(image_seed(0, "exact", str(i))))
        start = (SDE.sigma_inf * z).permute(1, 2, 0).reshape(-1, 3).double()
        flow = MIXTURE.exact_flow(start).reshape(12, 12, 3).permute(2, 0, 1)
        save_image((mu + flow.float()).clamp(0, 1), gt_path)
        items.append(Item(str(i), lq_path, gt_path))
    task = Task(name="exact", items=tuple(items))
    (tmp_path / "run").mkdir()
    return Bench(
        folder=tmp_path / "run",
        tasks=(task,),
        restorer=ExactRestorer(),
        score=rms,
        process=Process(),
    )


def test_tuned_choice_is_the_truly_best(bench):
    """Clamping is not varied, and that costs nothing; and the ODE's corrector is closest to the ODE's exact flow."""
    bench.measure(combinations([4, 8]))
    found = bench.losses("lpips")
    chosen = choose({candidate: found[candidate] for candidate in combinations([4, 8], clamps=(True,))})
    best = min(mean(values) for values in found.values())
    assert mean(found[chosen]) <= 1.02 * best + 1e-4  # images have 8 bits
    assert chosen.nfe == 8 and chosen.scheme == "pc" and chosen.tau == 0.0


def test_measurements_are_kept(bench):
    candidates = [c(2), c(3, "order1")]
    bench.measure(candidates)
    before = bench.losses("lpips")
    assert set(before) == set(candidates) and all(len(values) == 2 for values in before.values())

    class Refusing(ExactRestorer):
        def batch(self, *_, **__):
            pytest.fail("computed again")

    replace(bench, restorer=Refusing()).measure(candidates)
    assert bench.losses("lpips") == before


def test_a_folder_made_for_something_else_is_refused(tmp_path):
    from codes.config import OptionsError

    open_folder(tmp_path / "a", {"weights": "1", "size": 64}, Process())
    open_folder(tmp_path / "a", {"weights": "1", "size": 64}, Process())
    with pytest.raises(OptionsError, match=r"other settings(.|\n)*weights: '1' -> '2'"):
        open_folder(tmp_path / "a", {"weights": "2", "size": 64}, Process())


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"weights": "2", "check": "0"}'])
def test_damaged_settings_of_a_folder_are_one_line(content, tmp_path):
    open_folder(tmp_path, {"weights": "1"}, Process())
    (tmp_path / "made-for.json").write_bytes(content)
    with pytest.raises(OptionsError, match="made-for.json: damaged.*: choose another -o$"):
        open_folder(tmp_path, {"weights": "1"}, Process())


def test_what_is_measured_is_the_restored_images_alone(bench):
    """Nobody asks for the scores of the degraded images."""
    scored = []

    def score(pixels, clean):
        scored.append(pixels)
        return bench.score(pixels, clean)

    replace(bench, score=score).measure([c(2), c(3)])
    assert len(scored) == 2 * bench.images


def test_crops_are_the_middle_of_different_images(tmp_path):
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 255, (40, 60, 3)).astype(np.uint8) for _ in range(4)]
    items = []
    for i, image in enumerate(images):
        save_image(image, tmp_path / f"{i}.png")
        items.append(Item(str(i), None, tmp_path / f"{i}.png"))
    invert = Task(name="invert", items=tuple(items), degrade=lambda rgb, _: 1 - rgb)
    tasks = [invert, replace(invert, name="again")]
    first, second = crops(tasks, tmp_path / "cut", 2, 32, 0, Process())
    assert [item.name for item in first.items] == ["0", "1"] and [item.name for item in second.items] == ["2", "3"]
    item = second.items[1]
    assert np.array_equal(to_uint8(read_image(item.gt)), images[3][4:36, 14:46])
    assert np.array_equal(to_uint8(read_image(item.lq)), 255 - images[3][4:36, 14:46])
    assert torch.equal(from_uint8(images[3][4:36, 14:46]), read_image(item.gt))
    (tmp_path / "0.png").write_bytes(b"no image")
    with pytest.raises(Stopped, match=r"0\.png: not an image"):
        crops([invert], tmp_path / "other", 2, 32, 0, Process())


# ---- the command


@pytest.fixture
def world(tmp_path):
    write_weights(tmp_path / "tiny.safetensors")
    write_images(tmp_path / "data", ("rainy",), 2)
    return tmp_path


def run_tune(world, *more):
    options = write_options(world, sde={"algorithm": "mrsampler"}, sampler={"num_sample_steps": 8})
    arguments = ["-opt", str(options), "--budget", "3", "--metric", "psnr", "--size", "32"]
    return tune([*arguments, "--images", "1", "-o", str(world / "tuned.yml"), *more])


def test_tuned_file_loads_runs_and_says_where_it_is_from(world, capsys):
    assert run_tune(world) == 0
    printed = capsys.readouterr().out
    assert f"wrote {world / 'tuned.yml'}" in printed and "the front, PSNR to the clean image" in printed
    text = (world / "tuned.yml").read_text()
    assert text.startswith(f"# Made by scripts/tune.py from {world / 'run.yml'}: ")
    records = read_records(world / "results" / "tune-run").values()
    found = {}
    for record in records:
        found.setdefault(parse(record.solver), {})[record.name] = -record.metrics["psnr"]
    chosen = choose(found)
    ((_, arguments),) = load_options(world / "tuned.yml").solvers()
    assert Solver(**arguments) == Solver(**chosen.options())
    assert (world / "results" / "tune-run" / "front-psnr-3.svg").is_file()
    # It gives the images that tuning saw, here on whole images.
    assert evaluate(["-opt", str(world / "tuned.yml")]) == 0
    (record,) = [r for r in read_records(world / "results" / "tuned").values() if r.name == "000"]
    assert record.nfe == chosen.nfe


def test_the_choice_is_stored_with_the_weights(world, capsys):
    stored = world / "mine.safetensors"
    assert run_tune(world, "--store", str(stored)) == 0
    ((_, arguments),) = load_options(world / "tuned.yml").solvers()
    before, after = load_restorer(world / "tiny.safetensors"), load_restorer(stored)
    assert after.recommended == after.solver() == Solver(**arguments)
    assert (after.sde, after.fit_target, after.careful) == (before.sde, before.fit_target, before.careful)
    weights = before.network.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in after.network.state_dict().items())
    capsys.readouterr()
    content = stored.read_bytes()
    assert run_tune(world, "--store", str(stored)) == 2  # told before anything is measured
    assert capsys.readouterr() == ("", f"{stored}: exists already; choose another name\n")
    assert run_tune(world, "--store", str(world / "mine.pth")) == 2
    assert stored.read_bytes() == content and not (world / "mine.pth").exists()


def test_an_option_file_is_never_overwritten(world, capsys):
    (world / "tuned.yml").write_text("mine\n")
    assert run_tune(world) == 0
    assert (world / "tuned.yml").read_text() == "mine\n"
    written = (world / "tuned-2.yml").read_text()
    assert run_tune(world) == 0  # the same again is the same file
    assert (world / "tuned-2.yml").read_text() == written and not (world / "tuned-3.yml").exists()
    assert f"wrote {world / 'tuned-2.yml'}" in capsys.readouterr().out


def test_without_clean_images_the_reference_is_the_ode(world, capsys):
    data = {"old": {"mode": "LQ", "dataroot_LQ": str(world / "data" / "rainy" / "LQ")}}
    options = write_options(world, "lq", datasets=data, sampler={"num_sample_steps": 8})
    arguments = ["-opt", str(options), "--budget", "2", "--metric", "psnr", "--images", "1", "--size", "32"]
    assert tune([*arguments, "-o", str(world / "lq-tuned.yml")]) == 0
    assert "PSNR to 100 steps of the ODE" in capsys.readouterr().out
    records = read_records(world / "results" / "tune-lq").values()
    assert {record.nfe for record in records if record.solver.startswith("reference")} == {100}
    assert {parse(r.solver).tau for r in records if not r.solver.startswith("reference")} == {0.0}


def test_bad_input_is_reported_in_one_line(world, capsys):
    with pytest.raises(SystemExit) as stop:
        run_tune(world, "--budget", "1")
    assert stop.value.code == 2 and "--budget must be at least 2, got 1" in capsys.readouterr().err
    assert tune(["-opt", str(world / "no.yml")]) == 2
    assert capsys.readouterr().err == f"{world / 'no.yml'}: no such file\n"
