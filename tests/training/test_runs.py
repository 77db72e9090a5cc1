"""A training from its options to checkpoints that run by themselves."""

import json
import math

import cv2
import torch
import yaml

from codes.commands.test import main as evaluate
from codes.commands.train import main as train
from codes.config import load_options
from codes.networks import architecture, build
from codes.networks.checkpoints import Metadata, load_network, save_checkpoint
from codes.restoration.loading import restorer_of
from codes.training import checkpoints, loop
from codes.training.optimisers import learning_rate

from .helpers import ALONE, SETTING, assert_equal, first_batch, make_run, same_as_reference, weights, write_options


def test_folder_has_everything(world):
    folder = world / "results" / "reference"
    assert {path.name for path in (folder / "models").iterdir()} == {
        *(f"{step}_G.pth" for step in (4, 8, 12)),
        *(f"{step}_EMA.safetensors" for step in (4, 8, 12)),
        "lastest_EMA.pth",
    }
    assert [path.name for path in checkpoints.states(folder)] == ["12.state", "8.state"]
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    assert [line["step"] for line in steps] == [2, 4, 6, 8, 10, 12]
    options = load_options(world / "reference.yml", kind="train").train
    assert [line["lr"] for line in steps] == [learning_rate(options, line["step"] - 1) for line in steps]
    assert all(line["images/s"] > 0 for line in steps)
    checks = [line for line in lines if "validation" in line]
    assert [line["step"] for line in checks] == [6, 12]
    assert {"val/input", "val/t=T", "val/mrsampler-nfe2", "all/t=T"} <= set(checks[0]["validation"])
    assert checks[0]["validation"]["val/input"] == checks[1]["validation"]["val/input"]
    assert cv2.imread(str(folder / "validation" / "12.png")).shape[1] > 4 * 200
    assert len(json.loads((folder / "environment.json").read_text())) == 1
    assert yaml.safe_load((folder / "options.yml").read_text())["train"]["target"] == "velocity"
    assert not list(folder.rglob("*.part*"))


def test_checkpoints_run_by_themselves(world, copy):
    folder = world / "results" / "reference"
    network, metadata = load_network(folder / "models" / "12_EMA.safetensors")
    assert (metadata.fit_target, metadata.weights, metadata.sde.convention) == ("velocity", "ema", "daclip")
    average = torch.load(folder / "models" / "lastest_EMA.pth", weights_only=True)
    assert_equal(dict(network.state_dict()), average)
    assert load_network(folder / "models")[1].source == str(folder / "models" / "12_EMA.safetensors")
    data = {"val": {"mode": "GT", "dataroot_GT": str(copy / "photos"), "degradation": ["noisy", "hazy"]}}
    file = copy / "test.yml"
    for name in ("12_EMA.safetensors", "12_G.pth"):
        path = {"pretrain_model_G": str(folder / "models" / name)}
        file.write_text(json.dumps({"datasets": data, "path": path, "device": "cpu"}))
        restorer = restorer_of(load_options(file), torch.device("cpu"))
        assert restorer.fit_target == ("velocity" if "EMA" in name else "noise")  # a .pth cannot tell
    changes = ["sampler.num_sample_steps=2", f"results={copy}/r", "metrics.names=[psnr]"]
    changes.append(f"path.pretrain_model_G={folder}/models/12_EMA.safetensors")
    assert evaluate(["-opt", str(file), "--set", *changes]) == 0
    assert len(list((copy / "r").glob("test/*/mrsampler-nfe2/*.png"))) == 12


def test_published_target_is_recorded_as_noise(copy):
    assert train(["-opt", str(write_options(copy, train__target="published", train__niter=1))]) == 0
    _, metadata = load_network(copy / "results" / "run" / "models" / "1_EMA.safetensors")
    assert metadata.fit_target == "noise"


def test_loss_falls_and_the_average_follows(copy):
    path = write_options(
        copy, train__niter=120, train__lr_G=2e-3, logger__print_freq=20, logger__save_checkpoint_freq=120,
        datasets__train__degradation="noisy", datasets__train__patch_size=24, train__val_freq=1000,
        train__prior_share=1.0,
        train__own_share=0.0,
    )  # fmt: skip
    assert train(["-opt", str(path)]) == 0
    lines = [json.loads(line) for line in (copy / "results" / "run" / "log.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[-1] < 0.6 * losses[0]
    scores = lines[-1]["validation"]
    assert scores["val/t=T"]["psnr"] > scores["val/input"]["psnr"] + 3
    ema, online = (
        checkpoints.read(copy / "results/run/training_state/120.state")["ema"],
        weights(copy / "results/run", 120),
    )
    assert any(not torch.equal(ema[key], online[key]) for key in ema)


def test_batches_in_parts_give_the_same_gradients(world, copy):
    assert train(["-opt", str(write_options(copy, train__accumulate=2))]) == 0
    ours, theirs = weights(copy / "results" / "run"), weights(world / "results" / "reference")
    assert all(torch.allclose(ours[key], theirs[key], rtol=0, atol=1e-5) for key in ours)


def test_beginning_with_weights_and_continuing_another_run(world, copy):
    models = world / "results" / "reference" / "models"
    path = {"pretrain_model_G": str(models / "12_G.pth")}
    run = make_run(copy, path=path)
    assert_equal(dict(run.models.network.state_dict()), weights(world / "results" / "reference"))
    state = world / "results" / "reference" / "training_state" / "8.state"
    assert train(["-opt", str(write_options(copy, path={"resume_state": str(state)}))]) == 0
    same_as_reference(copy / "results" / "run", world)


def test_contexts_of_daclip(copy):
    from codes.networks.daclip import DaCLIP

    from ..network_examples import DACLIP_SETTING
    from ..network_examples import TINY_DACLIP as TINY

    torch.manual_seed(0)
    clip = DaCLIP(TINY)
    save_checkpoint(copy / "clip.safetensors", clip.state_dict(), Metadata(architecture("DaCLIP", TINY)))
    width = {**DACLIP_SETTING, "context_dim": TINY["embed_dim"]}
    run = make_run(
        copy, network_G={"which_model_G": "ConditionalUNet", "setting": width}, sde={}, train__target="published",
        path={"daclip": str(copy / "clip.safetensors")},
    )  # fmt: skip
    assert run.models.sde.convention == "daclip"
    learner, batch = loop.make_learner(run, ALONE), first_batch(run)
    features = clip.eval().controlled(clip.preprocess(batch.lq))
    text, image = loop.contexts(run.models, batch)
    assert torch.allclose(text, features.degradation, atol=1e-5) and torch.allclose(image, features.image, atol=1e-5)
    before = {key: value.clone() for key, value in run.models.daclip.state_dict().items()}
    assert math.isfinite(loop.step(run, learner, batch, ALONE))
    assert_equal(before, dict(run.models.daclip.state_dict()))
    prompt = dict(run.models.network.named_parameters())["text_mlp.0.weight"]
    assert prompt.grad.abs().sum() > 0


def test_latents(copy):
    from ..network_examples import LATENT_SETTING

    choice = architecture("UNet", LATENT_SETTING)
    save_checkpoint(copy / "latent.safetensors", build(choice).state_dict(), Metadata(choice))
    run = make_run(
        copy, model="latent_denoising", network_L={"which_model": "UNet", "setting": LATENT_SETTING}, sde={},
        network_G={"which_model_G": "ConditionalNAFNet", "setting": {**SETTING, "img_channel": 4}},
        path={"pretrain_model_L": str(copy / "latent.safetensors")}, train__target="published",
    )  # fmt: skip
    batch = first_batch(run)
    assert batch.noise.shape == run.models.latent.encode(batch.lq)[0].shape
    assert math.isfinite(loop.step(run, loop.make_learner(run, ALONE), batch, ALONE))
