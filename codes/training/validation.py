"""Validation: restore fixed images with the averaged weights and score them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.contact_sheet import contact_sheet
from ..data.images import encode_image, to_uint8
from ..data.pairs import DataError, image_seed
from ..data.sets import Loaded, Task, load_item
from ..metrics import Scorer
from ..prediction import convert
from ..restoration.restorer import Restorer
from ..runtime.files import write_atomically
from ..sde import Point
from ..solvers import Plan

Image = NDArray[np.uint8]
Scores = dict[str, dict[str, float]]  # by 'task/solver'

# Not a solver: the data prediction where every sampling begins; at t = T from the prior, or for denoising at the time
# that fits the noise.
START = "t=T"


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Validation images, solvers and metrics."""

    tasks: tuple[Task, ...]
    plans: tuple[tuple[str, Plan], ...]
    scorer: Scorer
    seed: int = 0
    sheet_images: int = 1

    def __call__(self, restorer: Restorer, sheet: Path | None = None) -> Scores:
        """Mean scores of each task and of all ('all/...'): of the input, of the first prediction, of each solver."""
        values: dict[str, dict[str, list[float]]] = {}
        headings = ["degraded", START, *(label for label, _ in self.plans), "clean"]
        rows: list[list[Image | None]] = []
        captions: list[list[str]] = []
        for task in self.tasks:
            for i, item in enumerate(task.items):
                loaded = load_item(task, item, image_seed(self.seed, task.name, item.name))
                if loaded.problem:
                    raise DataError(loaded.problem)
                images = self._restored(loaded, restorer)
                texts = [task.name]
                for label, image in images.items():
                    scores = {} if loaded.gt is None else self.scorer(image, loaded.gt)
                    for name, value in scores.items():
                        if value is not None:
                            for group in (task.name, "all"):
                                values.setdefault(f"{group}/{label}", {}).setdefault(name, []).append(value)
                    texts.append(", ".join(f"{value:.2f}" for value in scores.values() if value is not None))
                if i < self.sheet_images:
                    rows.append([*images.values(), loaded.gt])
                    captions.append([f"{texts[0]} {texts[1]}", *texts[2:], item.name])
        if sheet is not None and rows:
            write_atomically(sheet, encode_image(contact_sheet(headings, rows, captions), ".png"))
        return {
            group: {name: round(float(np.mean(numbers)), 4) for name, numbers in scores.items()}
            for group, scores in values.items()
        }

    def _restored(self, loaded: Loaded, restorer: Restorer) -> dict[str, Image]:
        assert loaded.lq is not None
        lq = loaded.lq.rgb[None].to(restorer.device)

        def generators() -> Sequence[torch.Generator]:
            return [torch.Generator().manual_seed(loaded.seed)]

        images = {"input": to_uint8(lq[0]), START: to_uint8(predicted_at_start(restorer, lq, generators()[0])[0])}
        for label, plan in self.plans:
            images[label] = to_uint8(restorer.batch(lq, plan, generators()).samples[0])
        return images


@torch.inference_mode()
def predicted_at_start(restorer: Restorer, lq: Tensor, generator: torch.Generator) -> Tensor:
    """The clean image predicted from the state that sampling starts from."""
    sde = restorer.sde
    mu, skips = (lq, None) if restorer.latent is None else restorer.latent.encode(lq)
    x = sde.prior(mu, torch.randn(mu.shape, generator=generator).to(mu))
    y = restorer.predictor(lq)(x, mu, sde.start.t)
    # A noise prediction says nothing about the image where alpha is 0; samplers use the alpha of t = T.
    known = restorer.fit_target == "noise" or not sde.reverts
    start = sde.start if known else Point(sde.T, 0.0, sde.sigma_inf, -float("inf"))
    data = convert(y, x, mu, start, source=restorer.fit_target, target="data", sigma_inf=sde.sigma_inf)
    if restorer.latent is not None and skips is not None:
        data = restorer.latent.decode(data, skips)
    return data.clamp(0, 1)
