"""Samples are a function of seed, step and index, and pairs stay pairs."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch

from codes.commands.train import main as train
from codes.config import load_options
from codes.data.degradations import tensor_degradation
from codes.data.images import save_image
from codes.data.pairs import Item
from codes.sde import MeanRevertingSDE
from codes.training import sets
from codes.training.data import DataPlan, Times, TrainingSet, TrainTask
from codes.training.loader import batches
from codes.training.objective import time_weights

from .helpers import assert_same, make_run, photo, write_options, write_photos


def plan_of(folder: Path, tasks: tuple[str, ...] = ("a", "b"), **changes: Any) -> DataPlan:
    """Pairs whose degraded image is 255 minus the clean one, the upper left corner brighter by the task's number."""
    rng = np.random.default_rng(1)
    made = []
    for number, task in enumerate(tasks):
        items = []
        for i in range(3 + number):
            clean = photo(rng, 50, 60)
            save_image(clean, folder / task / f"{i}-gt.png")
            save_image(255 - clean, folder / task / f"{i}-lq.png")
            items.append(Item(str(i), folder / task / f"{i}-lq.png", folder / task / f"{i}-gt.png"))
        made.append(TrainTask(name=task, items=tuple(items)))
    return DataPlan(tasks=tuple(made), times=Times((1.0,) * 100), patch=24, batch=4, **changes)


@pytest.mark.slow
def test_samples_do_not_depend_on_processes(copy):
    plan = make_run(copy).data
    whole = list(batches(plan, 0, 4))
    for a, b in zip(whole, batches(plan, 0, 4, workers=2), strict=True):
        assert_same(a, b)
    for a, first, second in zip(
        whole, batches(plan, 0, 4, rank=0, world=2), batches(plan, 0, 4, rank=1, world=2), strict=True
    ):
        assert_same(a.part(slice(0, 2)), first)
        assert_same(a.part(slice(2, 4)), second)
    assert_same(whole[3], next(batches(plan, 3, 4)))
    assert len({name for batch in whole for name in batch.names}) > 4
    assert not torch.equal(whole[0].noise, whole[1].noise)


def test_pairs_stay_pairs_and_are_turned(tmp_path):
    plan = plan_of(tmp_path)
    turned = Counter()
    for batch in batches(plan, 0, 12):
        assert torch.allclose(batch.lq, 1 - batch.gt, atol=1e-6)
        assert batch.gt.shape == (4, 3, 24, 24)
        turned.update(round(float(image.sum()), 3) for image in batch.gt)
    assert len(turned) > 40
    still = plan_of(tmp_path, ("a",), flip=False, rotate=False, shuffle=False)
    first = next(batches(still, 0, 1))
    assert first.names == ("a/0", "a/1", "a/2", "a/0")


def test_half_of_the_pairs_are_exchanged(tmp_path):
    """Degraded images are the negatives of dark clean ones, so that both are easily told apart."""
    save_image(np.full((32, 32, 3), 10, np.uint8), tmp_path / "gt.png")
    save_image(np.full((32, 32, 3), 245, np.uint8), tmp_path / "lq.png")
    task = TrainTask(name="t", items=(Item("x", tmp_path / "lq.png", tmp_path / "gt.png"),))
    plan = DataPlan(tasks=(task,), times=Times((1.0,)), patch=8, batch=100, swap=True)
    (batch,) = batches(plan, 0, 1)
    exchanged = batch.gt.mean((1, 2, 3)) > 0.5
    assert torch.equal(exchanged, batch.lq.mean((1, 2, 3)) < 0.5) and 30 <= int(exchanged.sum()) <= 70
    (kept,) = batches(replace(plan, swap=False), 0, 1)
    assert torch.equal(kept.noise, batch.noise) and bool((kept.gt.mean((1, 2, 3)) < 0.5).all())


def test_images_are_shrunk_before_they_are_degraded(tmp_path):
    """A ramp that grows by one level per pixel: shrunk by a factor s, it grows by 1/s."""
    ramp = np.broadcast_to(np.arange(256, dtype=np.uint8)[None, :, None], (256, 256, 3))
    save_image(ramp, tmp_path / "ramp.png")
    items = (Item("ramp", None, tmp_path / "ramp.png"),)
    tasks = (TrainTask(name="noisy", items=items, degradation=lambda: lambda image, rng: 1 - image),)

    def scales(min_scale: float) -> np.ndarray:
        plan = DataPlan(tasks=tasks, times=Times((1.0,)), patch=32, batch=8, min_scale=min_scale, shared_images=True)
        pairs = list(batches(plan, 0, 25))
        assert all(torch.allclose(batch.lq, 1 - batch.gt) for batch in pairs)
        return np.array([31 / 255 / float(image.max() - image.min()) for batch in pairs for image in batch.gt])

    assert scales(1.0) == pytest.approx(np.ones(200))
    drawn = np.log(scales(0.25)) / np.log(0.25)
    # Even in the logarithm, from one end to the other.
    assert drawn.min() == pytest.approx(0, abs=0.05) and drawn.max() == pytest.approx(1, abs=0.05)
    assert np.mean(drawn) == pytest.approx(0.5, abs=0.08) and np.std(drawn) == pytest.approx(12**-0.5, abs=0.04)


def test_patches_grow_at_their_steps(tmp_path):
    plan = plan_of(tmp_path, patches=((2, 32), (5, 40)))
    assert [batch.gt.shape[-1] for batch in batches(plan, 0, 7)] == [24, 24, 32, 32, 32, 40, 40]
    assert_same(list(batches(plan, 0, 5))[4], next(batches(plan, 4, 5)))
    options = load_options(write_options(tmp_path, datasets__train__patch_sizes=[[9, 64], [4, 48]]), kind="train")
    write_photos(tmp_path / "photos")
    assert sets.training_plan(options).patches == ((4, 48), (9, 64))


def test_published_multi_degradation_order(tmp_path):
    """One epoch: index mod K is the task, whatever the sizes of the folders; any image of it."""
    plan = plan_of(tmp_path, ("a", "b", "c"))
    assert plan.length == 3 + 4 + 5
    names = [name for batch in batches(plan, 0, 300) for name in batch.names]
    for start in range(0, len(names), 12):
        assert Counter(name[0] for name in names[start : start + 12]) == {"a": 4, "b": 4, "c": 4}
    assert names[:12] != names[12:24]
    counts = Counter(names)
    assert len(counts) == 12 and all(abs(counts[f"c/{i}"] - 80) < 35 for i in range(5))


def test_tasks_are_drawn_by_weight(tmp_path):
    plan = plan_of(tmp_path, ("a", "b"), weights=(3.0, 1.0))
    counts = Counter(name[0] for batch in batches(plan, 0, 200) for name in batch.names)
    assert counts["a"] / 800 == pytest.approx(0.75, abs=0.05)


def test_every_photo_once_in_an_epoch(copy):
    plan = make_run(copy).data
    assert plan.shared_images and plan.length == 6
    images = [name.split("/")[1] for batch in batches(plan, 0, 3) for name in batch.names]
    assert sorted(images[:6]) == sorted(images[6:]) == [f"{i:02}" for i in range(6)]


def test_times_and_shares():
    times = Times((1.0,) * 100, prior_share=0.5, self_share=0.3)
    rng = np.random.default_rng(0)
    drawn = [times.draw(rng) for _ in range(4000)]
    assert {t for t, prior, _ in drawn if prior} == {100}
    assert np.mean([prior for _, prior, _ in drawn]) == pytest.approx(0.5, abs=0.03)
    own = [(t, asked) for t, prior, asked in drawn if asked and not prior]
    assert len(own) / 4000 == pytest.approx(0.3, abs=0.03) and not any(prior and asked for _, prior, asked in drawn)
    assert all(t <= asked <= 100 for t, asked in own)
    assert np.mean([asked == t for t, asked in own if t < 100]) == pytest.approx(0.1, abs=0.03)
    assert np.mean([asked == 100 for t, asked in own if t < 90]) == pytest.approx(0.5 + 0.4 * 0.02, abs=0.04)
    assert np.mean([asked - t for t, asked in own if t < asked < 100]) > 15  # times in between are used, too
    plain = [t for t, prior, _ in drawn if not prior]
    assert min(plain) == 1 and max(plain) == 100 and np.mean(plain) == pytest.approx(50.5, abs=2.5)
    sde = MeanRevertingSDE()
    late = Times(time_weights(sde, "late"))
    assert np.mean([late.draw(rng)[0] for _ in range(4000)]) == pytest.approx(67, abs=2)
    assert all(weight > 0 for weight in time_weights(sde, "lambda"))


def test_super_resolution_pairs_are_enlarged(tmp_path):
    clean = photo(np.random.default_rng(0), 64, 48)
    save_image(clean, tmp_path / "gt.png")
    save_image(cv2.resize(clean, (24, 32), interpolation=cv2.INTER_AREA), tmp_path / "lq.png")
    task = TrainTask(name="sr", items=(Item("x", tmp_path / "lq.png", tmp_path / "gt.png"),), enlarge=2)
    batch = next(batches(DataPlan(tasks=(task,), times=Times((1.0,)), patch=24, batch=4), 0, 1))
    assert batch.lq.shape == batch.gt.shape == (4, 3, 24, 24)
    assert float((batch.lq - batch.gt).abs().mean()) < 0.02


def test_bad_images_are_named(tmp_path):
    save_image(photo(np.random.default_rng(0), 20, 60), tmp_path / "gt.png")
    save_image(photo(np.random.default_rng(0), 20, 30), tmp_path / "lq.png")
    (tmp_path / "text.png").write_text("not an image")

    def problem(lq: str, gt: str) -> str:
        task = TrainTask(name="t", items=(Item("x", tmp_path / lq, tmp_path / gt),))
        return TrainingSet(DataPlan(tasks=(task,), times=Times((1.0,)), patch=24, batch=4))[0].problem

    assert problem("gt.png", "gt.png") == f"{tmp_path}/gt.png: 60x20 is smaller than the patches of 24x24"
    assert problem("lq.png", "gt.png") == f"{tmp_path}/lq.png: 30x20 does not fit {tmp_path}/gt.png, 60x20"
    assert "text.png: not an image in a known format" in problem("text.png", "gt.png")


def test_images_too_small_to_be_degraded_are_named_and_others_not_shrunk_below_that(tmp_path):
    """Patches of 16 pixels: an image has to have 32 all the same, and one of 40 keeps as many."""

    def samples(file: Path, height: int, width: int) -> list[Any]:
        save_image(photo(np.random.default_rng(0), height, width), file)
        task = TrainTask(name="rainy", items=(Item("x", None, file),), degradation=lambda: tensor_degradation("rainy"))
        plan = DataPlan(tasks=(task,), times=Times((1.0,)), patch=16, batch=4, min_scale=0.25, rotate=False)
        return [TrainingSet(plan)[number] for number in range(8)]

    said = f"{tmp_path}/small.png: 20x16 is too small to be degraded (rainy), at least 32x32 pixels are needed"
    assert {sample.problem for sample in samples(tmp_path / "small.png", 16, 20)} == {said}
    assert {tuple(sample.gt.shape) for sample in samples(tmp_path / "large.png", 40, 44)} == {(3, 16, 16)}


def test_bad_images_stop_the_training(copy, capsys):
    (copy / "photos" / "03.png").write_text("not an image")
    assert train(["-opt", str(write_options(copy))]) == 1
    assert "03.png: not an image in a known format" in capsys.readouterr().err


def test_what_was_learned_before_a_bad_image_is_kept(world, copy, capsys):
    """Photos that are too small for the patches of a later step."""
    growing = write_options(copy, "growing", datasets__train__patch_sizes=[[5, 96]])
    assert train(["-opt", str(growing)]) == 1
    assert "72x80 is smaller than the patches of 96x96" in capsys.readouterr().err
    assert (copy / "results" / "growing" / "training_state" / "5.state").is_file()
