"""Varied degradations, clean samples and mixtures; and networks that learn to recognise them."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from codes.commands.train import main as train
from codes.config import load_options
from codes.data.varied import KINDS, NONE, generator_of, varied_pair
from codes.names import TASKS
from codes.training import checkpoints, loop, sets
from codes.training.data import TrainingSet
from codes.training.loader import batches

from .helpers import ALONE, CODED, first_batch, make_run, photo, torchrun, write_options

VARIED_DATA = {"datasets__train__degradation": "all", "datasets__train__varied": True}


def textured(seed: int, height: int = 72, width: int = 64) -> np.ndarray:
    """A smooth image with fine grain, float32 in [0, 1]."""
    rng = np.random.default_rng(seed)
    image = photo(rng, height, width) / 255 + rng.normal(0, 0.02, (height, width, 3))
    return np.clip(image, 0, 1).astype(np.float32)


@pytest.mark.parametrize("name", KINDS)
def test_generators_give_images_and_depend_on_their_generator_alone(name):
    image = textured(0)
    before = image.copy()
    for seed in range(24):
        first = generator_of(name)(image, np.random.default_rng(seed))
        second = generator_of(name)(image.copy(), np.random.default_rng(seed))
        assert first.dtype == np.float32 and first.shape == image.shape
        assert np.isfinite(first).all() and first.min() >= 0 and first.max() <= 1
        assert np.array_equal(first, second)
        assert np.array_equal(image, before)  # the clean image is not written to


@pytest.mark.parametrize("name", TASKS)
def test_degraded_images_differ_and_labels_sum_to_one(name):
    image, changed, labelled = textured(1), 0, Counter()
    for seed in range(40):
        clean, degraded, shares = varied_pair(name, image, np.random.default_rng(seed), mixed=0.5)
        assert shares.shape == (len(KINDS),) and shares.min() >= 0 and shares.sum() == pytest.approx(1)
        changed += not np.array_equal(clean, degraded)
        labelled.update(KINDS[i] for i in np.flatnonzero(shares))
    assert changed >= 36
    assert labelled[name] >= 24 and set(labelled) <= {name, NONE, "noisy", "jpeg-compressed"}


def test_clean_samples_are_equal_bit_for_bit_and_labelled_none(copy):
    run = make_run(copy, **VARIED_DATA, datasets__train__clean_share=0.5)
    clean = 0
    for batch in batches(run.data, 0, 10):
        assert torch.allclose(batch.kinds.sum(1), torch.ones(len(batch)))
        for i, name in enumerate(batch.names):
            if name.startswith(f"{NONE}/"):
                clean += 1
                assert torch.equal(batch.lq[i], batch.gt[i])
                assert batch.kinds[i].tolist() == [0.0] * 10 + [1.0]
    assert clean > 10


def test_shares_of_tasks_and_clean_samples(copy):
    """4000 draws; four standard deviations are 0.019 for a share of 0.1."""
    weighted = {"train__task_weights": {"noisy": 2}}
    options = write_options(copy, **VARIED_DATA, **weighted, datasets__train__clean_share=0.1)
    data = sets.training_plan(load_options(options, kind="train"))
    assert [task.name for task in data.tasks] == list(KINDS)
    samples = TrainingSet(data)
    rngs = (np.random.default_rng((0, n, 0)) for n in range(4000))
    counts = Counter(samples._choose(n, rng)[0].name for n, rng in enumerate(rngs))
    assert counts[NONE] / 4000 == pytest.approx(0.1, abs=0.019)
    assert counts["noisy"] / 4000 == pytest.approx(0.9 * 2 / 11, abs=0.024)
    for task in set(TASKS) - {"noisy"}:
        assert counts[task] / 4000 == pytest.approx(0.9 / 11, abs=0.018), task


def test_share_of_mixtures():
    """Half of the second degradations are noise, half compression; never after those two, nor on clean images."""
    image, seconds = textured(2, 16, 16), Counter()
    for seed in range(2000):
        shares = varied_pair("shadowed", image, np.random.default_rng(seed), mixed=0.3)[2]
        seconds.update(KINDS[i] for i in np.flatnonzero(shares) if KINDS[i] not in ("shadowed", NONE))
    total = sum(seconds.values())
    assert total / 2000 == pytest.approx(0.3, abs=0.045)
    assert seconds["noisy"] / total == pytest.approx(0.5, abs=0.09) and set(seconds) == {"noisy", "jpeg-compressed"}
    for name in (NONE, "noisy", "jpeg-compressed"):
        for seed in range(20):
            shares = varied_pair(name, image, np.random.default_rng(seed), mixed=1.0)[2]
            assert np.count_nonzero(shares) == 1 and KINDS[int(shares.argmax())] in (name, NONE)


def test_recognition_is_a_part_of_the_loss_and_trains_the_encoder(copy):
    changes = {**VARIED_DATA, "network_G": CODED, "train__optimizer": "AdamW"}
    with_it, without = (make_run(copy, **changes, train__recognition_weight=weight) for weight in (0.5, 0.0))
    batch, network = first_batch(with_it), with_it.models.network
    loss, prediction = loop.batch_loss(with_it, network, batch)
    plain, same = loop.batch_loss(without, without.models.network, batch)
    logits = network.recognise(batch.lq)[1]
    assert torch.equal(prediction, same)
    expected = 0.5 * float(cross_entropy(logits.detach(), batch.kinds))
    assert float((loss - plain).detach()) == pytest.approx(expected, rel=1e-4)
    weight = network.encoder.name.weight
    before = weight.detach().clone()
    loop.step(with_it, loop.make_learner(with_it, ALONE), batch, ALONE)
    assert not torch.equal(weight, before)


def test_recognition_alone_changes_the_encoder_alone(copy):
    """With two processes as with one, and by the same batches."""
    changes = {**VARIED_DATA, "network_G": CODED, "train__weight": 0, "train__recognition_weight": 1}
    file = write_options(copy, "named", **changes, train__niter=3, train__val_freq=100)
    assert train(["-opt", str(file)]) == 0
    before = make_run(copy, **changes).models.network.state_dict()
    after = checkpoints.read(copy / "results" / "named" / "training_state" / "3.state")["network"]
    changed = {key for key in before if not torch.equal(before[key], after[key])}
    assert changed and all(key.startswith("encoder.") for key in changed)
    two = write_options(copy, "two", **changes, train__niter=3, train__val_freq=100)
    torchrun(2, two)
    divided = checkpoints.read(copy / "results" / "two" / "training_state" / "3.state")["network"]
    for key in after:
        torch.testing.assert_close(divided[key], after[key], rtol=1e-3, atol=1e-5)


def test_a_training_of_nothing_is_refused(copy, capsys):
    file = write_options(copy, **VARIED_DATA, network_G=CODED, train__weight=0)
    assert train(["-opt", str(file)]) == 2
    assert "train.weight: 0 trains only the recognition of degradations, and" in capsys.readouterr().err


def test_recognition_needs_a_network_that_recognises(copy, capsys):
    assert train(["-opt", str(write_options(copy, **VARIED_DATA, train__recognition_weight=0.1))]) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.endswith(
        "train.recognition_weight: needs a network that recognises degradations, such as CodedNAFNet, "
        "got ConditionalNAFNet"
    )


def test_options_without_effect_are_reported(copy):
    changes = {"datasets__train__clean_share": 0.1, "datasets__train__use_swap": True, "train__recognition_weight": 0.1}
    assert load_options(write_options(copy, **changes), kind="train").ignored == [
        "datasets.train.clean_share: ignored, only varied degradations have it",
        "datasets.train.use_swap: ignored, only mode LQGT has pairs to exchange",
        "train.recognition_weight: ignored, only datasets.train.varied knows the degradations of a sample",
    ]


def test_samples_of_varied_data_do_not_depend_on_batches(copy):
    """A sample is found by its number alone, whatever was drawn before it."""
    data = make_run(copy, **VARIED_DATA, datasets__train__mixed_share=0.5).data
    samples = [TrainingSet(data)[n] for n in range(8)]
    for n in (7, 3):
        again = TrainingSet(replace(data, cache=1))[n]
        assert samples[n].name == again.name
        assert torch.equal(samples[n].lq, again.lq) and torch.equal(samples[n].kinds, again.kinds)
