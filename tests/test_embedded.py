"""The network that comes with the project restores the demonstration images: a broken loader, network or solver would
not. Thresholds are a little below what was measured; other processors round differently."""

import functools
from pathlib import Path

import numpy as np
import pytest
import torch

from codes import load_restorer, read_image
from codes.data.degradations import tensor_degradation
from codes.data.images import to_uint8
from codes.defaults import WEIGHTS
from codes.metrics import psnr
from codes.names import TASKS
from codes.restoration.restorer import Restorer

ROOT = Path(__file__).parents[1]
NAMES = ("astronaut", "coffee", "flower")
SIDE = 128

# Decibels above the degraded image, the mean of three images.
GAINS = {
    "motion-blurry": 0.0,
    "hazy": 8.5,
    "jpeg-compressed": 0.6,
    "low-light": 18.8,
    "noisy": 9.8,
    "raindrop": 1.3,
    "rainy": 7.0,
    "shadowed": 5.5,
    "snowy": 4.5,
    "uncompleted": 13.4,
}


@functools.cache
def restorer() -> Restorer:
    return load_restorer(ROOT / WEIGHTS, device="cpu")


def crop(name: str, height: int = SIDE, width: int = SIDE) -> torch.Tensor:
    image = read_image(ROOT / "options" / "demo" / "GT" / f"{name}.png")
    top, left = (image.shape[1] - SIDE) // 2, (image.shape[2] - SIDE) // 2
    return image[:, top : top + height, left : left + width].contiguous()


@functools.cache
def gain(task: str) -> float:
    """Decibels that the network gains with what it recommends, the mean of three images."""
    gains = []
    for number, name in enumerate(NAMES):
        clean = crop(name)
        degraded = tensor_degradation(task)(clean, np.random.default_rng(number)).clamp(0, 1)
        restored = restorer()(degraded, seed=0)
        before, after = (psnr(to_uint8(image), to_uint8(clean)) for image in (degraded, restored))
        gains.append(after - before)
    return float(np.mean(gains))


@pytest.mark.parametrize("task", TASKS)
def test_it_restores(task):
    assert gain(task) > GAINS[task]


@pytest.mark.parametrize("name", NAMES)
def test_clean_photographs_come_back_unchanged(name):
    clean = crop(name)
    assert psnr(to_uint8(restorer()(clean, seed=0)), to_uint8(clean)) >= 40
    assert psnr(to_uint8(restorer()(clean, seed=0, strength=1.0)), to_uint8(clean)) >= 38


@pytest.mark.parametrize("name", NAMES)
def test_every_size_is_restored_to_its_borders(name):
    """Padded with black, a JPEG lost up to 15 dB, near the padding and in the whole image."""
    clean = crop(name)
    degraded = tensor_degradation("jpeg-compressed")(clean, np.random.default_rng(0)).clamp(0, 1)
    whole = restorer()(degraded, seed=0, strength=1.0)
    for height, width in ((127, 127), (113, 121), (120, 128)):
        part = restorer()(degraded[:, :height, :width], seed=0, strength=1.0)
        here = to_uint8(clean[:, :height, :width])
        assert abs(psnr(to_uint8(part), here) - psnr(to_uint8(whole[:, :height, :width]), here)) < 0.3


def test_more_evaluations_do_not_harm():
    for task in ("noisy", "rainy", "uncompleted"):
        clean = crop("coffee")
        degraded = tensor_degradation(task)(clean, np.random.default_rng(1)).clamp(0, 1)
        one, eight = (restorer()(degraded, nfe=nfe, seed=0, strength=1.0) for nfe in (1, 8))
        assert psnr(to_uint8(eight), to_uint8(clean)) > psnr(to_uint8(one), to_uint8(clean)) - 0.15


def test_files_are_small():
    for path in (ROOT / "pretrained").glob("*.safetensors"):
        assert path.stat().st_size < 16 << 20
