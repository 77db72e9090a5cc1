"""The embedded models restore: a broken loader, network, solver or degradation fails here."""

from pathlib import Path

import numpy as np
import pytest
import torch

from codes.config import load_options
from codes.data.images import to_uint8
from codes.data.pairs import image_seed
from codes.evaluate import load_item
from codes.metrics import psnr
from codes.networks.checkpoints import load_network
from codes.session import find_data, load_restorer
from codes.solvers import Solver, make_plan
from codes.tasks import TASKS

ROOT = Path(__file__).parent.parent
LIMIT = 16_000_000  # bytes
SIDE = 128  # of the squares cut from the demonstration images, to save time
SOLVER = {"algorithm": "mrsampler", "num_sample_steps": 5, "order": 1, "clamp": True}


@pytest.mark.parametrize(("name", "target"), [("mr-tiny", "velocity"), ("mr-tiny-noise", "noise")])
def test_files_are_small_and_tell_what_they_are(name, target):
    path = ROOT / "pretrained" / f"{name}.safetensors"
    assert path.stat().st_size < LIMIT
    network, metadata = load_network(path)
    assert metadata.fit_target == target and metadata.sde is not None
    assert (metadata.sde.max_sigma, metadata.sde.T, metadata.sde.convention) == (50, 100, "daclip")
    assert 4e6 < sum(parameter.numel() for parameter in network.parameters()) < 7e6


@pytest.fixture(scope="module")
def gains() -> dict[str, float]:
    """How many dB nearer to the clean image the restored one is, by task, on squares of three images."""
    options = load_options(ROOT / "options" / "test.yml", ["device=cpu"])
    restorer = load_restorer(options, torch.device("cpu"))
    plan = make_plan(restorer.sde, Solver(**SOLVER))
    result = {}
    for task in find_data(options):
        differences = []
        for item in task.items[:3]:
            seed = image_seed(0, task.name, item.name)
            loaded = load_item(task, item, seed)
            assert loaded.lq is not None and loaded.gt is not None
            corner = (loaded.gt.shape[0] - SIDE) // 2 // 8 * 8  # where a JPEG block begins
            rows = columns = slice(corner, corner + SIDE)
            lq, gt = loaded.lq.rgb[None, :, rows, columns], loaded.gt[rows, columns]
            restored = restorer(lq, plan, [torch.Generator().manual_seed(seed)]).images[0]
            differences.append(psnr(to_uint8(restored), gt) - psnr(to_uint8(lq[0]), gt))
        result[task.name] = float(np.mean(differences))
    return result


# Measured values less about 1 dB.
THRESHOLDS: dict[str, float] = {}


def test_every_task_has_a_threshold():
    assert set(THRESHOLDS) == set(TASKS)


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_the_demonstration_set_is_restored(gains, task):
    assert gains[task] > THRESHOLDS[task]
