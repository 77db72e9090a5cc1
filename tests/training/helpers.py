"""Photos, option files and comparisons that the tests of the training share."""

import dataclasses
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

from codes.commands.train import main as train
from codes.config import load_options
from codes.data.images import save_image
from codes.runtime.distributed import Process
from codes.training import checkpoints
from codes.training.data import Batch
from codes.training.loader import batches
from codes.training.setup import Run, find_inputs
from codes.training.setup import make_run as run_of

ROOT = Path(__file__).parents[2]
SETTING = {"img_channel": 3, "width": 8, "enc_blk_nums": [1, 1], "middle_blk_num": 1, "dec_blk_nums": [1, 1]}
CODED = {"which_model_G": "CodedNAFNet", "setting": {**SETTING, "encoder_width": 8}}
ALONE = Process()


def photo(rng: np.random.Generator, height: int = 80, width: int = 72) -> np.ndarray:
    """Something smooth with edges."""
    small = rng.integers(0, 255, (5, 5, 3)).astype(np.uint8)
    return cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR)


def write_photos(folder: Path, count: int = 6) -> None:
    rng = np.random.default_rng(0)
    for i in range(count):
        save_image(photo(rng), folder / f"{i:02}.png")


def write_options(folder: Path, name: str = "run", **changes: Any) -> Path:
    """An option file for photos in `folder`; JSON is YAML. `a.b` in changes is written a__b."""
    options: dict[str, Any] = {
        "name": name,
        "results": str(folder / "results"),
        "device": "cpu",
        "datasets": {
            "train": {
                "mode": "GT", "dataroot_GT": str(folder / "photos"), "degradation": ["noisy", "hazy", "rainy"],
                "batch_size": 4, "patch_size": 32, "n_workers": 0,
            },
            "val": {"mode": "GT", "dataroot_GT": str(folder / "photos"), "degradation": ["noisy"], "max_images": 1},
        },
        "network_G": {"which_model_G": "ConditionalNAFNet", "setting": dict(SETTING)},
        "sde": {"convention": "daclip"},
        "sampler": {"num_sample_steps": 2},
        "train": {
            "niter": 12, "target": "velocity", "prior_share": 0.4, "own_share": 0.3, "lr_G": 1e-3, "clip_grad": 1.0,
            "val_freq": 6,
        },
        "logger": {"print_freq": 2, "save_checkpoint_freq": 4},
    }  # fmt: skip
    for key, value in changes.items():
        *sections, last = key.split("__")
        target = options
        for section in sections:
            target = target.setdefault(section, {})
        target[last] = value
    path = folder / f"{name}.yml"
    path.write_text(json.dumps(options))
    return path


def weights(folder: Path, step: int = 12) -> dict[str, torch.Tensor]:
    return torch.load(folder / "models" / f"{step}_G.pth", weights_only=True)


def same_as_reference(folder: Path, world: Path) -> None:
    """Weights, averages and optimiser, bit by bit."""
    ours, theirs = (
        checkpoints.read(f / "training_state" / "12.state") for f in (folder, world / "results" / "reference")
    )
    assert_equal(ours, theirs)


def assert_equal(a: Any, b: Any) -> None:
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_equal(a[key], b[key])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_equal(x, y)
    elif isinstance(a, torch.Tensor):
        assert torch.equal(a, b)
    else:
        assert a == b


def assert_same(a: Batch, b: Batch) -> None:
    """All fields of two batches, bit by bit."""
    for field in dataclasses.fields(Batch):
        ours, theirs = getattr(a, field.name), getattr(b, field.name)
        same = torch.equal(ours, theirs) if isinstance(ours, torch.Tensor) else ours == theirs
        assert same, field.name


def make_run(folder: Path, **changes: Any) -> Run:
    options = load_options(write_options(folder, "step", **changes), kind="train")
    return run_of(options, find_inputs(options), folder / "step", torch.device("cpu"), ALONE)


def first_batch(run: Run) -> Batch:
    return next(batches(run.data, 0, 1))


def run_in_child(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    os._exit(train(arguments))


def interrupted(
    children: multiprocessing.context.BaseContext, options: Path, when: Callable[[], bool], number: int
) -> int:
    """Start a training, send it a signal when it is time; returns its exit code."""
    child = children.Process(target=run_in_child, args=(["-opt", str(options)],))
    child.start()
    deadline = time.monotonic() + 60
    while child.is_alive() and not when() and time.monotonic() < deadline:
        time.sleep(0.003)
    os.kill(child.pid, number)
    child.join(60)
    return child.exitcode


def torchrun(processes: int, options: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={processes}", "--standalone"]
    result = subprocess.run(
        [*command, str(ROOT / "train.py"), "-opt", str(options)], capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
