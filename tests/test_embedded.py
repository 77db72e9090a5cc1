"""The networks that come with the project restore the demonstration images: a broken loader, network or solver would
not. Thresholds are a little below what was measured; other processors round differently."""

import functools
from pathlib import Path

import numpy as np
import pytest
import torch

from codes import load_restorer, read_image
from codes.data.degradations import tensor_degradation
from codes.data.images import to_uint8
from codes.metrics import psnr
from codes.names import TASKS
from codes.restoration.restorer import Restorer

ROOT = Path(__file__).parents[1]
NAMES = ("astronaut", "coffee", "flower")
SIDE = 128

# Decibels above the degraded image, the mean of three images. Where little was learned, what it may cost.
GAINS = {
    "mr-tiny": {
        "motion-blurry": -0.8,
        "hazy": 8.2,
        "jpeg-compressed": -1.7,
        "low-light": 14.7,
        "noisy": 7.3,
        "raindrop": -0.8,
        "rainy": 4.6,
        "shadowed": 4.8,
        "snowy": 1.5,
        "uncompleted": 9.7,
    },
    "mr-tiny-noise": {
        "motion-blurry": -0.5,
        "hazy": 1.9,
        "jpeg-compressed": -1.2,
        "low-light": 4.8,
        "noisy": 0.1,
        "raindrop": -0.6,
        "rainy": 1.9,
        "shadowed": -0.3,
        "snowy": 0.7,
        "uncompleted": 3.5,
    },
}


@functools.cache
def restorer(name: str) -> Restorer:
    return load_restorer(ROOT / "pretrained" / f"{name}.safetensors", device="cpu")


def crop(name: str) -> torch.Tensor:
    image = read_image(ROOT / "options" / "demo" / "GT" / f"{name}.png")
    top, left = ((length - SIDE) // 2 for length in image.shape[1:])
    return image[:, top : top + SIDE, left : left + SIDE].contiguous()


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("network", GAINS)
def test_it_restores(network, task):
    gains = []
    for number, name in enumerate(NAMES):
        clean = crop(name)
        degraded = tensor_degradation(task)(clean, np.random.default_rng(number)).clamp(0, 1)
        restored = restorer(network)(degraded, nfe=8, seed=0)
        before, after = (psnr(to_uint8(image), to_uint8(clean)) for image in (degraded, restored))
        gains.append(after - before)
    assert np.mean(gains) > GAINS[network][task]


def test_files_are_small():
    for path in (ROOT / "pretrained").glob("*.safetensors"):
        assert path.stat().st_size < 16 << 20
