"""The published option files, row by row: with data and weights in place each runs what was published.

The files are written here from their keys, with small networks: MR Sampler's (M), DA-CLIP's (D) and those of IR-SDE and
Refusion (I), tests and trainings.
"""

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from codes import Solver, load_restorer, read_image
from codes.commands.test import main as run_test
from codes.commands.train import main as run_train
from codes.config import load_options
from codes.data.images import save_image, to_uint8
from codes.networks import architecture, build
from codes.networks.checkpoints import Metadata, save_checkpoint

from .network_examples import DACLIP_SETTING, EXAMPLES, LATENT_SETTING, NAFNET_SETTING, TINY_DACLIP, example
from .option_files import message
from .training.helpers import write_photos

CLIP_UNET = DACLIP_SETTING | {"context_dim": 32}
WILD_UNET = {**EXAMPLES["wild-ir"][2], "context_dim": 32}
LATENT_NAFNET = {"img_channel": 4, **NAFNET_SETTING}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder to run published files in: images, masks, weights."""
    folder = tmp_path_factory.mktemp("published")
    write_photos(folder / "GT", 2)
    for i, path in enumerate(sorted((folder / "GT").iterdir())):
        image = to_uint8(read_image(path))[:64, :64]
        save_image(image, path)
        save_image(image // 2 + 60, folder / "LQ" / path.name)
        save_image(image[::4, ::4], folder / "small" / path.name)
        mask = image * 0 + 255
        mask[:, 32 * i : 32 * i + 32] = 0
        save_image(mask, folder / "masks" / f"{i:06}.png")
        for kind in ("LQ", "GT"):
            save_image(image, folder / "tasks" / "rainy" / kind / path.name)
    for name in ("irsde", "refusion", "denoising-unet", "denoising-nafnet", "latent", "latent-unet"):
        torch.save(example(name, torch.float32).state_dict(), folder / f"{name}.pth")
    torch.manual_seed(0)
    for name, which, variant, setting in (
        ("latent-nafnet", "ConditionalNAFNet", "latent", LATENT_NAFNET),
        ("universal-ir", "ConditionalUNet", "daclip", CLIP_UNET),
        ("wild-ir", "ConditionalUNet", "wild-ir", WILD_UNET),
    ):
        torch.save(build(architecture(which, setting, variant)).state_dict(), folder / f"{name}.pth")
    clip = architecture("DaCLIP", TINY_DACLIP)
    save_checkpoint(folder / "daclip.safetensors", build(clip).state_dict(), Metadata(clip))
    return folder


# ---- the files

SDE = {"max_sigma": 50, "T": 100, "schedule": "cosine", "eps": 0.005}
LQGT = {"name": "Test", "mode": "LQGT", "dataroot_GT": "GT", "dataroot_LQ": "LQ"}
CLEAN = {"name": "Test", "mode": "GT", "dataroot_GT": "GT"}
M_SAMPLER = {
    "num_sample_steps": 100, "solver_type": "sde", "parameterization": "data", "order": 2, "fit_target": "noise",
    "lambda_min": -5.0, "time_schedule": "linspace", "thresholding": False, "threshold_ratio": 0.995,
    "threshold_max": 1.5, "denoise_last": False,
}  # fmt: skip
LATENT = {
    "network_L": {"which_model": "UNet", "setting": LATENT_SETTING},
    "path": {"pretrain_model_L": "latent.pth"},
}


def network(weights: str, which: str = "", setting: dict[str, Any] | None = None, **path: str) -> dict[str, Any]:
    """The two sections of a file that name a network."""
    known = EXAMPLES.get(weights, (which, "", setting))
    chosen = {"which_model_G": which or known[0], "setting": setting or known[2]}
    return {"network_G": chosen, "path": {"pretrain_model_G": f"{weights}.pth", **path}}


IRSDE, REFUSION = network("irsde"), network("refusion")
CLIP = network("universal-ir", "ConditionalUNet", CLIP_UNET, daclip="daclip.safetensors")
WILD = network("wild-ir", "ConditionalUNet", WILD_UNET, daclip="daclip.safetensors")
EULER = "sde-nfe100"


def file_of(**sections: Any) -> dict[str, Any]:
    """An option file as the published ones begin."""
    common = {"name": "ir-sde", "suffix": None, "model": "denoising", "gpu_ids": [0], "sde": SDE}
    return common | {"datasets": {"test1": LQGT}} | sections


def with_sde(file: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return file | {"sde": file["sde"] | changes}


def latent(**sections: Any) -> dict[str, Any]:
    chosen = network("latent-nafnet", "ConditionalNAFNet", LATENT_NAFNET) | sections
    file = file_of(model="latent_denoising", distortion="dehazing", **LATENT | {"network_G": chosen["network_G"]})
    return file | {"path": LATENT["path"] | chosen["path"]}


# Row of the published folders -> option file, label of the solver that runs, network evaluations.
TESTS: dict[str, tuple[dict[str, Any], str, int]] = {
    "I deblurring IR-SDE": (file_of(distortion="deblur", **IRSDE), EULER, 100),
    "I deblurring Refusion": (file_of(distortion="deblur", **REFUSION), EULER, 100),
    "I deshadow": (file_of(distortion="deshadow", degradation={"sigma": 25, "scale": 4}, **REFUSION), EULER, 100),
    "I inpainting": (
        file_of(
            distortion="inpainting", degradation={"mask_root": "masks"}, datasets={"test1": CLEAN},
            **IRSDE,
        ),
        EULER,
        100,
    ),
    "I sisr": (
        file_of(
            distortion="sr", degradation={"scale": 4}, datasets={"test1": LQGT | {"dataroot_LQ": "small"}},
            **IRSDE,
        ),
        EULER,
        100,
    ),
    "I sisr GT": (file_of(distortion="sr", datasets={"test1": CLEAN}, **REFUSION), EULER, 100),
    "I deraining": (file_of(distortion="derain", **IRSDE), EULER, 100),
    "I deraining sde": (with_sde(file_of(distortion="derain", **IRSDE), sampling_mode="sde"), EULER, 100),
    "I deraining posterior": (
        with_sde(file_of(distortion="derain", **IRSDE), sampling_mode="posterior"),
        "posterior-nfe100",
        100,
    ),
    "I deraining sample_T": (with_sde(file_of(distortion="derain", **IRSDE), T=1000, sample_T=100), EULER, 100),
    "I latent-dehazing": (latent(), EULER, 100),
    "I latent-dehazing UNet": (latent(**network("latent-unet")), EULER, 100),
    "I latent-dehazing LQ": (latent() | {"datasets": {"test1": {"mode": "LQ", "dataroot_LQ": "LQ"}}}, EULER, 100),
    **{
        f"I denoising-sde {sigma} {kind}": (
            with_sde(
                file_of(
                    distortion="denoising",
                    degradation={"sigma": sigma, "noise_type": "G"},
                    datasets={"test1": CLEAN | {"name": "Kodak24"}},
                    **network(f"denoising-{kind}"),
                ),
                max_sigma=75,
            ),
            f"ode-official-nfe{steps}",
            steps,
        )
        for kind, sigma, steps in (("nafnet", 15, 14), ("nafnet", 25, 21), ("unet", 50, 38))
    },
    "I unet-latent": (file_of(model="latent", distortion="dehazing", **network("latent")), "encode-decode", 0),
    **{
        f"M {algorithm}": (
            with_sde(
                file_of(name="universal-ir", distortion=["rainy"], sampler=M_SAMPLER, **CLIP), algorithm=algorithm
            ),
            f"{algorithm}-nfe100",
            100,
        )
        for algorithm in ("mrsampler", "sde", "heun", "posterior")
    },
    "D universal-ir": (
        with_sde(
            file_of(
                name="universal-ir", distortion=["rainy"],
                datasets={"test1": {"mode": "MD", "dataroot": "tasks"}}, **CLIP,
            ),
            sampling_mode="posterior",
        ),
        "posterior-nfe100",
        100,
    ),
    "D wild-ir": (
        with_sde(
            file_of(distortion="wild", datasets={"test1": {"mode": "LQ", "dataroot_LQ": "LQ"}}, **WILD),
            sampling_mode="posterior",
        ),
        "posterior-nfe100",
        100,
    ),
}  # fmt: skip


def written(folder: Path, name: str, options: dict[str, Any]) -> Path:
    file = folder / f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}.yml"
    file.write_text(json.dumps(options))  # JSON is YAML
    return file


def records(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for file in sorted(folder.rglob("records*.jsonl"))
        for line in file.read_text().splitlines()
        if '"nfe"' in line
    ]


QUICK = ["device=cpu", "metrics.names=[psnr]", "contact_sheet=0"]


@pytest.mark.parametrize("row", TESTS)
def test_published_tests_run_what_was_published(row, world, monkeypatch, capsys):
    """All of them are planned as published; with many evaluations they are run with three instead."""
    monkeypatch.chdir(world)
    options, label, nfe = TESTS[row]
    file = written(world, row, options)
    assert run_test(["-opt", str(file), "--dry-run"]) == 0
    assert f"solver {label}: " in capsys.readouterr().out
    whole = nfe <= 38
    few = [] if whole else ["sampler.num_sample_steps=3"]
    assert run_test(["-opt", str(file), "--set", f"name={file.stem}", *QUICK, *few]) == 0, capsys.readouterr().err
    found = records(world / "results" / file.stem)
    images = 2
    assert [record["nfe"] for record in found] == [nfe if whole else 3] * images
    assert all(record["solver"].startswith(label.rpartition("nfe")[0]) for record in found)


def test_a_file_without_a_sampler_says_what_runs(world, monkeypatch, caplog):
    monkeypatch.chdir(world)
    file = written(world, "silent", TESTS["I deblurring IR-SDE"][0])
    note = "sde.algorithm: not given, taking what the published code runs: sde, 100 evaluations"
    assert load_options(file).notes == [note]
    assert load_options(file, ["sde.algorithm=mrsampler-pc"]).notes == []
    assert [label for label, _ in load_options(file, ["sde.algorithm=mrsampler-pc"]).solvers()] == ["mrsampler-pc-nfe8"]
    denoising = written(world, "silent-denoising", TESTS["I denoising-sde 25 nafnet"][0])
    assert load_options(denoising).notes == [note.replace("sde, 100", "ode, 21")]
    assert load_options(denoising, ["sampler.num_sample_steps=5"]).solvers() == [
        ("ode-nfe5", {"algorithm": "ode", "num_sample_steps": 5})
    ]
    with caplog.at_level(logging.INFO):
        load_restorer(denoising, device="cpu")
    assert note.replace("sde, 100", "ode, 21") in caplog.text


def test_denoising_through_the_api(world, monkeypatch):
    """As published, with other solvers and numbers of evaluations, and from weights alone."""
    monkeypatch.chdir(world)
    file = written(world, "api", TESTS["I denoising-sde 25 nafnet"][0])
    restorer = load_restorer(file, device="cpu")
    assert (restorer.sde.noise_level, restorer.sde.reverts, restorer.solver().compat) == (25, False, "official")
    image = read_image(sorted((world / "GT").iterdir())[0])[:, :24, :32]
    published = restorer.sample(image, n=1, return_trajectory=True)
    assert published.nfe == 21 and torch.equal(published.trajectory[0][0], image)
    assert restorer.sample(image, n=1, nfe=5).nfe == 5
    weights = load_restorer(
        "denoising-nafnet.pth", device="cpu", overrides=["degradation.sigma=25", "sde.max_sigma=75"]
    )
    assert weights.sde == restorer.sde
    for algorithm in ("mrsampler", "mrsampler-pc", "posterior", "sde", "ode", "heun"):
        one, other = (restorer(image, algorithm=Solver(algorithm, n), seed=3) for n in (4, 6))
        assert torch.equal(one, weights(image, algorithm=Solver(algorithm, 4), seed=3)), algorithm
        assert not torch.equal(one, other), algorithm
    text = message(load_restorer, file, device="cpu", overrides=["degradation.sigma=80"])
    assert text.endswith("degradation.sigma: noise must be above 0 and at most max_sigma, 75, to be removed, got 80.0")


def test_mask_i_belongs_to_image_i(world, monkeypatch, capsys):
    """The first mask hides the left half, the second the right one: white in the degraded images."""
    from codes.data.sets import find_data, load_item

    monkeypatch.chdir(world)
    file = written(world, "masks", TESTS["I inpainting"][0])
    [task] = find_data(load_options(file))
    for i, item in enumerate(task.items):
        loaded = load_item(task, item, seed=i)
        hidden, kept = loaded.lq.rgb[:, :, 32 * i : 32 * i + 32], loaded.lq.rgb[:, :, 32 - 32 * i : 64 - 32 * i]
        assert (hidden == 1).all()
        assert torch.equal(kept, read_image(item.gt)[:, :, 32 - 32 * i : 64 - 32 * i])
    (world / "few").mkdir(exist_ok=True)
    (world / "few" / "0.png").write_bytes((world / "masks" / "000000.png").read_bytes())
    assert run_test(["-opt", str(file), "--set", "degradation.mask_root=few"]) == 2
    assert "datasets.test1: few has 1 masks for 2 images; each image needs one" in capsys.readouterr().err


def test_encoding_and_decoding_is_what_the_network_does(world, monkeypatch):
    monkeypatch.chdir(world)
    restorer = load_restorer(written(world, "unet", TESTS["I unet-latent"][0]), device="cpu")
    image = read_image(sorted((world / "LQ").iterdir())[0])
    with torch.no_grad():
        expected = example("latent", torch.float32)(image[None]).clamp(0, 1)[0]
    assert torch.equal(restorer(image), expected)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"model": "denoising"},
            "network_G.which_model_G: UNet restores nothing by itself: it belongs to model latent",
        ),
        (
            {"network_G": REFUSION["network_G"]},
            "network_G.which_model_G: model latent encodes and decodes images, which only UNet does, not",
        ),
        (
            {"network_G": {}, "path": REFUSION["path"]},
            "model: latent contradicts the weights, which are ConditionalNAFNet (variant refusion",
        ),
    ],
)
def test_latent_and_its_network_go_together(changes, text, world, monkeypatch):
    monkeypatch.chdir(world)
    file = written(world, "together", TESTS["I unet-latent"][0] | changes)
    assert text in message(load_restorer, file, device="cpu")


def test_weights_of_another_process_are_refused_in_a_denoising_file(world, monkeypatch):
    monkeypatch.chdir(world)
    options = TESTS["I denoising-sde 25 nafnet"][0] | {"path": REFUSION["path"]}
    text = message(load_restorer, written(world, "mixed", options), device="cpu")
    assert "distortion: denoising means a network of denoising-sde" in text and "variant refusion" in text


# ---- trainings

TRAIN = {
    "optimizer": "Lion", "lr_G": 3e-5, "lr_scheme": "TrueCosineAnnealingLR", "beta1": 0.9, "beta2": 0.99, "niter": 1,
    "warmup_iter": -1, "lr_steps": [200000, 400000], "lr_gamma": 0.5, "eta_min": 1e-7, "is_weighted": False,
    "loss_type": "l1", "weight": 1.0, "manual_seed": 0, "val_freq": 5e3,
}  # fmt: skip


def training(row: str, **changes: Any) -> dict[str, Any]:
    """The training file beside a test file: the same, with a training set and no weights."""
    options = json.loads(json.dumps(TESTS[row][0]))
    dataset = options["datasets"].pop("test1")
    more = {"use_shuffle": True, "n_workers": 0, "batch_size": 2, "GT_size": 32, "LR_size": 32, "use_rot": True}
    options["datasets"] = {"train": {**dataset, "name": "Train_Dataset", **more}, "val": {**dataset, "max_images": 1}}
    options["path"] |= {"pretrain_model_G": None, "strict_load": True, "resume_state": None}
    logger = {"print_freq": 100, "save_checkpoint_freq": 1e4}
    return options | {"use_tb_logger": False, "train": TRAIN, "logger": logger} | changes


TRAININGS = {
    row: training(row)
    for row in TESTS
    if row.startswith(("I de", "I in", "I si", "I latent", "D univ")) and not row.endswith(("LQ", "sde", "_T"))
}
TRAININGS["D wild-ir"] = training("D wild-ir", datasets=TRAININGS["I deraining"]["datasets"])


@pytest.mark.parametrize("row", TRAININGS)
def test_published_trainings_run(row, world, monkeypatch, capsys):
    monkeypatch.chdir(world)
    file = written(world, f"train {row}", TRAININGS[row])
    few = ["device=cpu", f"name={file.stem}", "sampler.num_sample_steps=2"]
    assert run_train(["-opt", str(file), "--set", *few]) == 0, capsys.readouterr().err
    folder = world / "results" / file.stem / "models"
    assert (folder / "1_G.pth").is_file()
    restorer = load_restorer(folder / "1_EMA.safetensors", device="cpu", overrides=_encoders(TRAININGS[row]))
    assert restorer.sde.reverts == ("denoising" not in row)


def _encoders(options: dict[str, Any]) -> list[str]:
    named = {key: value for key, value in options["path"].items() if key in ("daclip", "pretrain_model_L")}
    model = [f"model={options['model']}", "network_L.which_model=UNet"] if "pretrain_model_L" in named else []
    return [*model, *(f"path.{key}={value}" for key, value in named.items())]


def test_the_first_stage_of_latent_diffusion_is_refused_with_the_reason(world, monkeypatch, capsys):
    monkeypatch.chdir(world)
    file = written(world, "stage", training("I unet-latent"))
    assert run_train(["-opt", str(file)]) == 2
    assert capsys.readouterr().err == (
        f"{file}: model: latent (training the network between images and latents) is not supported; its weights can be "
        "given as path.pretrain_model_L\n"
    )


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"target": "velocity"}, "train.target: velocity is undefined for the denoising process"),
        ({"prior_share": 0.1}, "train.prior_share: the denoising process has no prior"),
        ({"distill": {"teacher": "x"}}, "train.distill: the denoising process has no prior"),
    ],
)
def test_trainings_of_denoising_have_no_prior(changes, text, world):
    file = written(world, "prior", training("I denoising-sde 25 nafnet", train=TRAIN | changes))
    assert text in message(load_options, file, kind="train")
