"""A small evaluation to run in tests: a random network, two tasks, a few images."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

from codes.commands.test import main as evaluate
from codes.data.images import save_image
from codes.networks import Architecture, architecture, build
from codes.networks.checkpoints import Metadata, SDESettings, save_checkpoint

SETTING = {"img_channel": 3, "width": 8, "enc_blk_nums": [1, 1], "middle_blk_num": 1, "dec_blk_nums": [1, 1]}


def random_network(choice: Architecture) -> torch.nn.Module:
    """A random network that predicts something of a sensible size."""
    torch.manual_seed(0)
    network = build(choice)
    for parameter in network.parameters():
        if not parameter.detach().any():
            torch.nn.init.normal_(parameter, std=0.1)
    return network


def write_weights(path: Path, fit_target: str = "velocity") -> None:
    """A checkpoint of a small random network."""
    choice = architecture("ConditionalNAFNet", SETTING)
    state = random_network(choice).state_dict()
    save_checkpoint(path, state, Metadata(choice, fit_target, SDESettings(50)))


def write_images(root: Path, tasks: tuple[str, ...] = ("rainy", "hazy"), images: int = 5) -> None:
    """Pairs of images in the published layout; the last one has another size."""
    rng = np.random.default_rng(0)
    for task in tasks:
        for i in range(images):
            clean = rng.integers(0, 255, (40, 48 if i < images - 1 else 36, 3)).astype(np.uint8)
            save_image(clean, root / task / "GT" / f"{i:03}.png")
            save_image((clean // 2 + 60).astype(np.uint8), root / task / "LQ" / f"{i:03}.png")


def write_options(folder: Path, name: str = "run", **changes: Any) -> Path:
    """An option file for weights and data in `folder`; JSON is YAML."""
    options: dict[str, Any] = {
        "name": name,
        "results": str(folder / "results"),
        "datasets": {"val": {"root": str(folder / "data")}},
        "path": {"pretrain_model_G": str(folder / "tiny.safetensors")},
        "sde": {"algorithm": ["posterior", "mrsampler-pc"]},
        "sampler": {"num_sample_steps": [2, 5]},
        "metrics": {"names": ["psnr", "ssim"]},
        "device": "cpu",
    } | changes
    path = folder / f"{name}.yml"
    path.write_text(json.dumps(options))
    return path


def generators(n: int = 1, seed: int = 0) -> list[torch.Generator]:
    """A generator for each of n images, with consecutive seeds."""
    return [torch.Generator().manual_seed(seed + i) for i in range(n)]


def timeless(folder: Path) -> dict[str, str]:
    """The summary of a run, without what depends on time."""
    json_text = re.sub(r'"seconds": [\d.e-]+', '"seconds": 0', (folder / "summary.json").read_text())
    csv_text = re.sub(r",[\d.]+$", ",0", (folder / "summary.csv").read_text(), flags=re.MULTILINE)
    return {"json": json_text, "csv": csv_text}


def images_of(folder: Path) -> dict[str, bytes]:
    """All restored images by path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.glob("*/*/*.png"))}


def run_one(place: Path, code: int = 0, arguments: tuple[str, ...] = (), **changes: Any) -> Path:
    """Run test.py with one solver, or as changed; returns the results folder."""
    options = {"sde": {"algorithm": "mrsampler"}, "sampler": {"num_sample_steps": 2, "order": 1}} | changes
    assert evaluate(["-opt", str(write_options(place, **options)), *arguments]) == code
    return place / "results" / "run"


def rows(folder: Path) -> dict[str, dict[str, Any]]:
    """The rows of a run's table by solver."""
    return {row["solver"]: row for row in json.loads((folder / "summary.json").read_text())["rows"]}
