"""Every option acts: two values of it lead to two results, or giving it is reported.

The tables below name every option of the schema; a new one without an entry fails the first test.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from pydantic import BaseModel

from codes.commands.restore import main as restore
from codes.commands.train import main as train
from codes.config import load_options
from codes.config.kinds import ForTraining, Ignored, item_type, model_of
from codes.config.schema import Options
from codes.data.images import read_image, save_image, to_uint8
from codes.networks import architecture, build
from codes.networks.checkpoints import Metadata, save_checkpoint

from .evaluation import SETTING, write_images, write_weights
from .network_examples import LATENT_SETTING, TINY_DACLIP
from .option_files import message
from .option_probes import (
    ABSENT,
    TEST,
    TRAIN,
    VALIDATED,
    device,
    evaluated,
    job,
    loaded,
    parts,
    readers,
    schedule,
    train_run,
    trained,
    written,
)
from .training.helpers import CODED, write_photos


def leaves(section: type[BaseModel] = Options, at: str = "") -> Iterator[tuple[str, Any]]:
    """Every option with its field; the names that users choose are <name>."""
    for key, known in section.model_fields.items():
        one, several = model_of(known.annotation), model_of(item_type(known.annotation))
        inner = one or several
        if inner is None or key == "pairing":  # which is a word or a section
            yield f"{at}{key}", known
        if inner is not None:
            yield from leaves(inner, f"{at}{key}." if one else f"{at}{key}.<name>.")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Weights, images, photos and a training state."""
    folder = tmp_path_factory.mktemp("options")
    write_weights(folder / "tiny.safetensors")
    write_weights(folder / "other.safetensors", "data")
    torch.manual_seed(1)
    smaller = {**SETTING, "enc_blk_nums": [1], "middle_blk_num": 2, "dec_blk_nums": [1]}
    for name, which, setting in (
        ("latent", "UNet", LATENT_SETTING),
        ("clip", "DaCLIP", TINY_DACLIP),
        ("smaller", "ConditionalNAFNet", smaller),
    ):
        choice = architecture(which, setting)
        save_checkpoint(folder / f"{name}.safetensors", build(choice).state_dict(), Metadata(choice))
    write_images(folder / "data", images=2)
    write_images(folder / "one", ("rainy",), images=1)
    write_photos(folder / "photos", 3)
    write_photos(folder / "fewer", 2)
    names = ("a", "b")
    for i, photo in enumerate(sorted((folder / "photos").iterdir())[:2]):
        image = to_uint8(read_image(photo))
        save_image(image, folder / "pairs" / "gt" / f"clean-{names[i]}.png")
        save_image(image // 2, folder / "pairs" / "lq" / f"rain-{names[i]}.png")
        save_image(image // 3, folder / "pairs" / "dark" / f"rain-{names[i]}.png")
        save_image(image[::4, ::4], folder / "pairs" / "small" / f"clean-{names[i]}.png")
        save_image(image * 0 + 255 * (i % 2), folder / "masks" / f"{i}.png")
    return folder


# ---- the tables


@dataclass(frozen=True)
class Pair:
    """Two values of an option that lead to two results, with other options that they need."""

    probe: Callable[..., Any]
    one: Any
    other: Any
    given: dict[str, Any] = field(default_factory=dict)


PC = {"sde.algorithm": "mrsampler-pc"}
MR = {"sde.algorithm": "mrsampler", "sampler.num_sample_steps": 8}
THRESHOLD = {**MR, "sampler.thresholding": True}
SOLVER = {
    "num_sample_steps": Pair(schedule, 5, 6),
    "solver_type": Pair(schedule, "sde", "ode", MR),
    "parameterization": Pair(schedule, "data", "noise", MR),
    "order": Pair(schedule, 1, 2, MR),
    "fit_target": Pair(loaded, "velocity", "noise"),
    "lambda_min": Pair(schedule, ABSENT, -2.0, MR),
    "time_schedule": Pair(schedule, "linspace", "sinh", MR),
    "timestep_offset": Pair(schedule, 1, 3, {**MR, "sampler.time_schedule": "leading"}),
    "rho": Pair(schedule, 5, 7, {**MR, "sampler.time_schedule": "karras-n"}),
    "thresholding": Pair(schedule, False, True, MR),
    "threshold_ratio": Pair(schedule, 0.9, 0.995, THRESHOLD),
    "threshold_max": Pair(schedule, 1.2, 1.5, THRESHOLD),
    "denoise_last": Pair(schedule, False, True, MR),
    "predictor": Pair(schedule, 1, 2, MR),
    "corrector": Pair(schedule, 0, 2, MR),
    "gate": Pair(schedule, 0, 1.5, {**PC, "sampler.num_sample_steps": 8}),
    "tau": Pair(schedule, 0.2, 0.8, MR),
    "clamp": Pair(schedule, False, True, MR),
    "last_order": Pair(schedule, 0, 1, MR),
    "mode": Pair(schedule, "sample", "mmse", {**PC, "sampler.num_sample_steps": 8}),
    "compat": Pair(schedule, ABSENT, "official", MR),
}

PAIRS = "datasets.val"
LQGT = {PAIRS: {"mode": "LQGT", "dataroot_LQ": "@pairs/lq", "dataroot_GT": "@pairs/gt", "pairing": "order"}}
RULE = {PAIRS: {"dataroot_LQ": "@pairs/lq", "dataroot_GT": "@pairs/gt",
                "pairing": {"lq": "rain-{}", "gt": "clean-{}"}}}  # fmt: skip
GT = {PAIRS: {"mode": "GT", "dataroot_GT": "@photos", "degradation": "noisy"}}
DISTORTED = {PAIRS: {"mode": "GT", "dataroot_GT": "@fewer"}}
TRAIN_PAIRS = {"datasets.train.mode": "LQGT", "datasets.train.dataroot_GT": "@pairs/gt",
               "datasets.train.dataroot_LQ": "@pairs/lq", "datasets.train.pairing": "order",
               "datasets.train.degradation": ABSENT}  # fmt: skip
VARIED = {"datasets.train.varied": True}
BEGUN = {"path.pretrain_model_G": "@tiny.safetensors"}
LATENT = {"model": "latent_denoising", "network_L": {"which_model": "UNet", "setting": LATENT_SETTING},
          "path.pretrain_model_L": "@latent.safetensors", "network_G.setting.img_channel": 4}  # fmt: skip
WATCHED = {"train.niter": 4, "logger": {"print_freq": 4, "save_checkpoint_freq": 4}}
DISTILL = {**BEGUN, "train.distill": {"teacher_steps": [2, 3], "share": 1.0}}

ACTING: dict[str, Pair] = {
    "name": Pair(evaluated, "a", "b"),
    "results": Pair(evaluated, "#one", "#two"),
    "seed": Pair(evaluated, 0, 1),
    "device": Pair(device, "cpu", "cuda"),
    "precision": Pair(evaluated, "fp32", "bf16"),
    "compile": Pair(loaded, False, True),
    "tile": Pair(evaluated, "off", 64, {PAIRS: {"root": "@data", "tasks": ["rainy"]}, **GT}),
    "batch_size": Pair(job, 2, 3),
    "workers": Pair(job, 2, 3),
    "contact_sheet": Pair(evaluated, 0, 1),
    "model": Pair(trained, "denoising", "latent"),
    "distortion": Pair(evaluated, "hazy", "noisy", DISTORTED),
    "use_tb_logger": Pair(readers, False, True),
    "stages": Pair(train_run, ABSENT, {"a": {"train.niter": 1}, "b": {"train.niter": 2}}),
    "sde.algorithm": Pair(schedule, "sde", "ode"),
    "sde.max_sigma": Pair(schedule, 30, 50),
    "sde.T": Pair(schedule, 50, 100),
    "sde.sample_T": Pair(schedule, 5, 6, {"sampler.num_sample_steps": ABSENT}),
    "sde.schedule": Pair(schedule, "linear", "cosine"),
    "sde.eps": Pair(schedule, 0.01, 0.005),
    "sde.convention": Pair(schedule, "irsde", "daclip"),
    "sampler.variants.<name>.algorithm": Pair(schedule, "sde", "ode"),
    "datasets.<name>.name": Pair(evaluated, "a", "b", LQGT),
    "datasets.<name>.mode": Pair(evaluated, "LQGT", "LQ", LQGT),
    "datasets.<name>.root": Pair(evaluated, "@one", "@data"),
    "datasets.<name>.tasks": Pair(evaluated, ["rainy"], ["hazy"], {PAIRS: {"root": "@data"}}),
    "datasets.<name>.dataroot": Pair(evaluated, "@one", "@data", {PAIRS: {"mode": "MD"}}),
    "datasets.<name>.dataroot_LQ": Pair(evaluated, "@pairs/lq", "@pairs/dark", LQGT),
    "datasets.<name>.dataroot_GT": Pair(evaluated, "@photos", "@fewer", GT),
    "datasets.<name>.max_images": Pair(evaluated, 1, 2, GT),
    "datasets.<name>.pairing": Pair(evaluated, "name", "order", LQGT),
    "datasets.<name>.pairing.lq": Pair(evaluated, "rain-{}", "{}", RULE),
    "datasets.<name>.pairing.gt": Pair(evaluated, "clean-{}", "{}", RULE),
    "datasets.<name>.degradation": Pair(evaluated, "noisy", "hazy", GT),
    "datasets.<name>.batch_size": Pair(trained, 2, 4),
    "datasets.<name>.n_workers": Pair(readers, 0, 1),
    "datasets.<name>.cache": Pair(readers, 0, 1),
    "datasets.<name>.GT_size": Pair(trained, 24, 32),
    "datasets.<name>.patch_size": Pair(trained, 24, 32),
    "datasets.<name>.patch_sizes": Pair(trained, [], [[1, 24]]),
    "datasets.<name>.use_flip": Pair(trained, False, True),
    "datasets.<name>.use_rot": Pair(trained, False, True),
    "datasets.<name>.min_scale": Pair(trained, 1, 0.5),
    "datasets.<name>.varied": Pair(trained, False, True),
    "datasets.<name>.clean_share": Pair(trained, 0, 0.9, VARIED),
    "datasets.<name>.mixed_share": Pair(trained, 0, 1, VARIED),
    "datasets.<name>.use_shuffle": Pair(trained, False, True),
    "datasets.<name>.use_swap": Pair(trained, False, True, TRAIN_PAIRS),
    "degradation.sigma": Pair(evaluated, 10, 50, {**DISTORTED, "distortion": "denoising"}),
    "degradation.scale": Pair(evaluated, 2, 4, {**DISTORTED, "distortion": "sr"}),
    "degradation.mask_root": Pair(evaluated, ABSENT, "@masks", {**DISTORTED, "distortion": "inpainting"}),
    "network_G.which_model_G": Pair(trained, "ConditionalNAFNet", "CodedNAFNet"),
    "network_G.setting": Pair(trained, SETTING, {**SETTING, "width": 4}),
    "network_G.variant": Pair(trained, "refusion", "denoising", {"train.target": "noise"}),
    "network_L.which_model": Pair(trained, ABSENT, "UNet", LATENT),
    "network_L.setting": Pair(trained, LATENT_SETTING, {**LATENT_SETTING, "ch": 4}, LATENT),
    "path.pretrain_model_G": Pair(evaluated, "@tiny.safetensors", "@other.safetensors"),
    "path.pretrain_model_L": Pair(loaded, ABSENT, "@latent.safetensors", {"network_L.setting": LATENT_SETTING}),
    "path.daclip": Pair(loaded, ABSENT, "@clip.safetensors"),
    "path.grow_from": Pair(trained, ABSENT, "@smaller.safetensors"),
    "path.resume_state": Pair(trained, ABSENT, "@state/results/run/training_state/2.state"),
    "metrics.names": Pair(evaluated, ["psnr"], ["psnr", "ssim"]),
    "metrics.crop_border": Pair(evaluated, 0, 4),
    "train.niter": Pair(train_run, 1, 2),
    "train.optimizer": Pair(trained, "Adam", "Lion"),
    "train.lr_G": Pair(trained, 1e-2, 1e-3),
    "train.lr_scheme": Pair(trained, "TrueCosineAnnealingLR", "ConstantLinearLR"),
    "train.eta_min": Pair(trained, 1e-6, 1e-3),
    "train.decay_iter": Pair(trained, 1, 2, {"train.lr_scheme": "ConstantLinearLR"}),
    "train.lr_steps": Pair(trained, [1], [2], {"train.lr_scheme": "MultiStepLR"}),
    "train.beta1": Pair(trained, 0.9, 0.5),
    "train.beta2": Pair(trained, 0.99, 0.5),
    "train.weight_decay_G": Pair(trained, 0, 0.1),
    "train.warmup_iter": Pair(trained, -1, 2),
    "train.loss_type": Pair(trained, "l1", "l2"),
    "train.weight": Pair(trained, 1, 2, {"train.clip_grad": 100, "train.optimizer": "Muon"}),
    "train.target": Pair(trained, "velocity", "noise"),
    "train.time_weighting": Pair(trained, "none", "noise"),
    "train.mean_weight": Pair(trained, 1, 0.1),
    "train.perceptual_weight": Pair(trained, 0, 1),
    "train.recognition_weight": Pair(trained, 0, 1, {**VARIED, "network_G": CODED}),
    "train.time_distribution": Pair(trained, "uniform", "late"),
    "train.prior_share": Pair(trained, 0, 0.9),
    "train.own_share": Pair(trained, 0, 0.9),
    "train.task_weights": Pair(trained, {}, {"hazy": 100}),
    "train.clip_grad": Pair(trained, ABSENT, 1e-9),
    "train.accumulate": Pair(parts, 1, 2),
    "train.val_freq": Pair(train_run, 1, 2, {**VALIDATED, "train.niter": 2}),
    "train.distill.teacher": Pair(trained, "@tiny.safetensors", "@other.safetensors", DISTILL),
    "train.distill.teacher_steps": Pair(trained, [2], [3], DISTILL),
    "train.distill.tau": Pair(trained, 0, 1, DISTILL),
    "train.distill.student_steps": Pair(trained, [1], [2], DISTILL),
    "train.distill.weight": Pair(trained, 1, 2, DISTILL),
    "train.distill.share": Pair(trained, 0, 1, DISTILL),
    "logger.print_freq": Pair(train_run, 2, 4, WATCHED),
    "logger.save_checkpoint_freq": Pair(train_run, 2, 4, WATCHED),
    **{f"sampler.{key}": pair for key, pair in SOLVER.items()},
    **{f"sampler.variants.<name>.{key}": pair for key, pair in SOLVER.items()},
}
# Here one of the two values is refused, because it contradicts the weights or the data, or needs more options.
REFUSED = (
    *("model", "network_L.which_model", "network_L.setting", "sampler.fit_target"),
    *("sampler.variants.<name>.fit_target", "datasets.<name>.pairing"),
    *("datasets.<name>.pairing.lq", "datasets.<name>.pairing.gt"),
)
# Options of one value, which others are refused for.
FIXED = {"datasets.<name>.color": "GREY", "degradation.noise_type": "P"}
REPORTED = {
    "suffix": "_x",
    "gpu_ids": [0],
    "datasets.<name>.LR_size": 8,
    "datasets.<name>.optimizer": "Lion",
    "datasets.<name>.dataroot_meta": "d",
    "datasets.<name>.dataroot_alpha": "d",
    "path.strict_load": False,
    "train.lr_gamma": 0.3,
    "train.is_weighted": True,
}


def place(leaf: str, probe: Callable[..., Any]) -> str:
    """The key to set: a dataset that the probe has, or a variant."""
    return leaf.replace("datasets.<name>", PAIRS if probe is evaluated else "datasets.train").replace("<name>", "x")


def test_the_tables_name_every_option():
    assert sorted([*ACTING, *FIXED, *REPORTED]) == sorted(leaf for leaf, _ in leaves())
    marked = {leaf for leaf, known in leaves() if any(isinstance(item, Ignored) for item in known.metadata)}
    assert marked == set(REPORTED)


@pytest.mark.parametrize("leaf", ACTING)
def test_two_values_lead_to_two_results(leaf, world, monkeypatch, request):
    pair = ACTING[leaf]
    if leaf == "train.perceptual_weight":
        request.getfixturevalue("lpips")  # skips where its weights are missing
    if leaf == "path.resume_state" and not (world / "state").exists():
        file = written(world, TRAIN, {"train.niter": 2, "results": "@state/results"})
        assert train(["-opt", str(file)]) == 0
    key = place(leaf, pair.probe)
    results = [pair.probe(world, {**pair.given, key: value}, monkeypatch) for value in (pair.one, pair.other)]
    assert results[0] != results[1]
    commands = pair.probe in (evaluated, train_run)
    assert sum(result[0] == 2 if commands else isinstance(result, str) for result in results) == (leaf in REFUSED)


@pytest.mark.parametrize(
    "probe", dict.fromkeys(pair.probe for pair in ACTING.values()), ids=lambda probe: probe.__name__
)
def test_the_same_options_lead_to_the_same_result(probe, world, monkeypatch):
    """So that two results of two values differ by the values."""
    first, second = (probe(world, {}, monkeypatch) for _ in range(2))
    assert first == second and first and not isinstance(first, str)


@pytest.mark.parametrize("leaf", REPORTED)
def test_options_without_effect_are_reported(leaf, world):
    key = place(leaf, trained)
    options = load_options(written(world, TRAIN, {key: REPORTED[leaf]}), kind="train")
    assert [line.split(": ignored, ")[0] for line in options.ignored] == [key]


@pytest.mark.parametrize("leaf", FIXED)
def test_options_of_one_value_refuse_others(leaf, world):
    file = written(world, TEST, {place(leaf, evaluated): FIXED[leaf]})
    assert f"{place(leaf, evaluated)}: expected " in message(load_options, file)


TRAINING = [leaf for leaf, known in leaves() if any(isinstance(item, ForTraining) for item in known.metadata)]


@pytest.mark.parametrize("leaf", TRAINING)
def test_options_of_a_training_are_reported_in_a_test(leaf, world):
    pair = ACTING[leaf]
    key = place(leaf, evaluated)
    value = pair.other if pair.other not in (ABSENT, None) else pair.one
    assert load_options(written(world, TEST, {key: value})).ignored == [f"{key}: ignored, only training uses it"]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"tile": 64}, "tile"),
        ({"compile": True}, "compile"),
        ({"batch_size": 2}, "batch_size"),
        ({"workers": 1}, "workers"),
        ({"contact_sheet": 1}, "contact_sheet"),
        ({"metrics.crop_border": 4}, "metrics"),
        ({"datasets.train.GT_size": 24}, "datasets.train.patch_size"),
        ({"datasets.train.pairing": "order"}, "datasets.train.pairing"),
        ({"degradation.sigma": 10}, "degradation.sigma"),
        ({"degradation.scale": 2}, "degradation.scale"),
        ({"degradation.mask_root": "d"}, "degradation.mask_root"),
        ({"network_L.setting.ch": 4}, "network_L"),
        ({"train.lr_steps": [2]}, "train.lr_steps"),
        ({"train.decay_iter": 2}, "train.decay_iter"),
        ({"train.target": "published", "train.mean_weight": 0.5}, "train.mean_weight"),
        ({"train.target": "published", "train.time_weighting": "data"}, "train.time_weighting"),
    ],
)
def test_options_without_effect_in_a_training_are_reported(changes, key, world):
    options = load_options(written(world, TRAIN, changes), kind="train")
    assert [line.split(": ignored, ")[0] for line in options.ignored] == [key]


def test_latents_need_their_weights_and_no_solver(world):
    file = written(world, TEST, {"model": "latent_denoising", "network_L.which_model": "UNet"})
    assert message(load_options, file).endswith(
        "path.pretrain_model_L: missing, model latent_denoising needs the weights of network_L"
    )
    options = load_options(written(world, TEST, {"model": "latent"}))
    assert options.ignored == [
        "sde: ignored, model latent samples nothing",
        "sampler: ignored, model latent samples nothing",
    ]


def test_photos_are_restored_as_the_file_says(world):
    """`restore.py` takes networks, solver, tile and precision from the option file."""
    results = []
    for changes in ({}, {"sampler.num_sample_steps": 3}, {"precision": "bf16"}, {"tile": 64}):
        file = written(world, TEST, changes)
        assert restore([str(world / "photos" / "00.png"), "-o", str(file.parent / "out"), "-opt", str(file)]) == 0
        results.append((file.parent / "out" / "00.png").read_bytes())
    assert len(set(results)) == 4
