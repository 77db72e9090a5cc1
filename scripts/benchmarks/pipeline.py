"""How much of an evaluation's time is not the network's: reading, saving, scoring."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from codes.data.images import save_image
from codes.data.pairs import pair
from codes.data.sets import Task
from codes.evaluation.job import Job
from codes.evaluation.run import run
from codes.metrics import make_scorer
from codes.networks import build_network
from codes.restoration.loading import load_restorer
from codes.restoration.restorer import Restoration, Restorer
from codes.runtime.distributed import Process
from codes.sde import MeanRevertingSDE
from codes.solvers import Plan, Solver, make_plan

from .networks import NETWORKS


@dataclass
class Stopwatch:
    """A restorer that adds up its own time."""

    restorer: Restorer
    seconds: float = 0.0
    calls: list[float] = field(default_factory=list)

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return self.restorer.device

    def batch(self, lq: Tensor, plan: Plan, generators: Sequence[torch.Generator], **options: Any) -> Restoration:
        """Restore and count the seconds."""
        start = time.perf_counter()
        result = self.restorer.batch(lq, plan, generators, **options)
        self.seconds += time.perf_counter() - start
        return result


def measure(weights: str | None = None, size: int = 256, nfe: int = 5, images: int = 6) -> dict[str, Any]:
    """Evaluate random images; the share of time that is not the network's.

    weights   a checkpoint; None: DA-CLIP's U-Net with random weights
    """
    device = torch.device("cpu")
    if weights is None:
        which, setting = NETWORKS["daclip-unet"]
        network = build_network(which, setting | {"use_degra_context": False, "use_image_context": False})
        sde = MeanRevertingSDE()
        restorer = Stopwatch(Restorer(network=network, sde=sde, fit_target="noise", device=device))
        plan = make_plan(sde, Solver("mrsampler-pc", nfe))
    else:
        restorer = Stopwatch(load_restorer(weights, "cpu"))
        plan = restorer.restorer.plan(None, nfe)
    scorer, notes = make_scorer(("psnr", "ssim", "lpips"), 0, device)
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for i in range(images):
            for kind in ("LQ", "GT"):
                save_image(rng.integers(0, 255, (size, size, 3)).astype(np.uint8), folder / kind / f"{i}.png")
        items, _ = pair(folder / "LQ", folder / "GT")
        job = Job(folder=folder, tasks=(Task(name="random", items=tuple(items)),), plans=((f"nfe{nfe}", plan),))
        start = time.perf_counter()
        outcome = run(job, restorer, scorer, Process())  # type: ignore[arg-type]
        total = time.perf_counter() - start
    assert outcome.exit_code == 0, outcome
    return {
        "network": weights or "DA-CLIP's U-Net",
        "images": images,
        "size": size,
        "nfe": nfe,
        "seconds": total,
        "network_seconds": restorer.seconds,
        "other_share": 1 - restorer.seconds / total,
        "notes": notes,
    }
