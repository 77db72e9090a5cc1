"""Option files of trainings: published ones, and mistakes in them."""

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from codes.commands.train import main as train
from codes.data.images import save_image

from .helpers import photo, write_options

PROJECT = Path(__file__).parents[2]
PUBLISHED = PROJECT / "tests" / "data" / "published"


@pytest.mark.parametrize("file", sorted(PUBLISHED.glob("train-*.yml")), ids=lambda file: file.stem)
def test_published_files_say_what_is_missing(file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert train(["-opt", str(file), "--dry-run"]) == 2
    message = capsys.readouterr().err
    raw = yaml.safe_load(file.read_text())
    if raw["model"] == "latent":
        assert message.startswith(f"{file}: model: latent (training the network between images and latents) is not")
    else:
        lines, looked = [], f"; looked beside the option file, in {tmp_path} and in {PROJECT}"
        for name, dataset in raw["datasets"].items():
            keys = ("dataroot",) if "dataroot" in dataset else ("dataroot_LQ", "dataroot_GT")
            roots = [dataset[key] for key in keys if key in dataset]
            lines += [f"{file}: datasets.{name}: {root}: no such folder{looked}" for root in roots]
        for key in ("pretrain_model_G", "pretrain_model_L", "daclip", "resume_state"):
            if raw["path"].get(key):
                lines.append(f"{file}: path.{key}: {raw['path'][key]}: no such file{looked}")
        assert message.splitlines() == lines  # all in one go


def test_published_files_resolve_with_their_data(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for split in ("trainH", "testH"):
        save_image(photo(rng), tmp_path / "datasets" / "rain" / split / "GT" / "1.png")
        save_image(photo(rng), tmp_path / "datasets" / "rain" / split / "LQ" / "1.png")
    small = ["network_G.setting.nf=8", "network_G.setting.depth=2"]
    assert train(["-opt", str(PUBLISHED / "train-deraining.yml"), "--dry-run", "--set", *small]) == 0
    printed = capsys.readouterr().out
    assert "train on Train_Dataset: 1 images" in printed and "ignored: train.lr_gamma: ignored" in printed
    more = ["train.niter=2", "datasets.train.GT_size=32", "datasets.train.n_workers=0", "sde.sample_T=2", "device=cpu"]
    assert train(["-opt", str(PUBLISHED / "train-deraining.yml"), "--set", *small, *more]) == 0
    assert (tmp_path / "results" / "ir-sde" / "models" / "2_G.pth").is_file()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"datasets__train__patch_sizes": [[4, 48, 1]]}, "datasets.train.patch_sizes[0]: expected [step, side]"),
        ({"datasets__train__batch_size": 3, "train__accumulate": 2}, "datasets.train.batch_size: 3 cannot be divided"),
        ({"train__task_weights": {"snowy": 2}}, "train.task_weights.snowy: the training set has no such task, only no"),
        ({"train__task_weights": {"snowi": 2}}, "train.task_weights.snowi: "),
        ({"sampler__fit_target": "data"}, "sampler.fit_target: data contradicts train.target velocity"),
        ({"path": {"pretrain_model_G": "no.pth"}}, "path.pretrain_model_G: no.pth: no such file"),
        ({"path": {"resume_state": "no.state"}}, "path.resume_state: no.state: no such file"),
        ({"network_G__setting__widht": 8}, "network_G.setting.widht"),
        (
            {"train__perceptual_weight": 0.1, "train__target": "noise"},
            "train.perceptual_weight: needs train.target data or velocity, got noise",
        ),
        (
            {"train__perceptual_weight": 0.1, "datasets__train__patch_size": 24},
            "train.perceptual_weight: needs patches of at least 31 pixels, got 24",
        ),
        ({"datasets__train__mode": "LQ", "datasets__train__dataroot_LQ": "d"}, "mode LQ has no clean images"),
    ],
)
def test_bad_options_are_reported_in_one_line(copy, capsys, changes, expected):
    assert train(["-opt", str(write_options(copy, **changes))]) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert expected in message and message.startswith(str(copy / "run.yml"))


def test_states_of_other_programs_are_refused(copy, capsys):
    torch.save({"epoch": 1, "iter": 5, "schedulers": [], "optimizers": []}, copy / "5.state")
    assert train(["-opt", str(write_options(copy, path={"resume_state": str(copy / "5.state")}))]) == 2
    assert "5.state: not a training state of this program" in capsys.readouterr().err
