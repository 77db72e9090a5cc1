"""spandrel, through which ComfyUI, chaiNNer and AUTOMATIC1111's web UI load models.

    from mr_sampler.integrations import spandrel
    spandrel.register()
    model = ModelLoader().load_from_file("mr-universal.safetensors")  # an ImageModelDescriptor
    restored = model(image)                                      # (1, 3, H, W) in [0, 1]

The whole restoration is one call of the model: the checkpoint's solver and number of evaluations, with a fixed seed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from ..networks.checkpoints import Checkpoint, metadata_of
from ..restoration.loading import load_restorer
from ..restoration.restorer import Restorer
from ..runtime.torchvision_compat import ensure_torchvision

ensure_torchvision()  # which spandrel imports
try:
    from spandrel import MAIN_REGISTRY, Architecture, ArchSupport, ImageModelDescriptor, ModelLoader, ModelTiling
except ImportError as error:
    raise ImportError("this module needs spandrel: pip install spandrel") from error

SEED = 0
# spandrel hands on tensors only; what a network predicts and its schedule are in the header of its file.
_file: ContextVar[Path | None] = ContextVar("file", default=None)


class RestoringModule(nn.Module):
    """A restorer as a module: images (B, 3, H, W) in [0, 1] to restored ones, on the device of the weights."""

    def __init__(self, restorer: Restorer) -> None:
        super().__init__()
        self.network = restorer.network
        self.restorer = restorer

    def forward(self, images: Tensor) -> Tensor:
        restorer = replace(self.restorer, device=next(self.network.parameters()).device)
        return torch.stack([restorer(image, seed=SEED) for image in images]).to(images)


class MeanReverting(Architecture[RestoringModule]):  # type: ignore[misc]
    """Every network of this project that restores images by itself."""

    def __init__(self) -> None:
        super().__init__(id="MR Sampler", detect=_detect)

    def load(self, state_dict: dict[str, Any]) -> ImageModelDescriptor[RestoringModule]:
        """The descriptor; the tensors must come from a file that `ModelLoader.load_from_file` is reading."""
        file = _file.get()
        if file is None:
            raise ValueError(
                "the tensors alone do not say what the network predicts: load it with ModelLoader().load_from_file"
            )
        # Its module may be moved to a GPU later, so nothing is chosen for the CPU.
        restorer = replace(load_restorer(file, device="cpu"), precision="auto")
        millions = sum(parameter.numel() for parameter in restorer.network.parameters()) / 1e6
        return ImageModelDescriptor(
            RestoringModule(restorer),
            {f"network.{key}": value for key, value in restorer.network.state_dict().items()},
            architecture=self,
            purpose="Restoration",
            tags=[f"{millions:.1f}M", f"{restorer.plan().nfe} evaluations"],
            supports_half=False,
            supports_bfloat16=False,
            scale=1,
            input_channels=3,
            output_channels=3,
            tiling=ModelTiling.INTERNAL,
        )


def register() -> None:
    """Make spandrel's `ModelLoader` know the networks of this project; a second call changes nothing.

    They are looked for before NAFNet, whose keys a ConditionalNAFNet has too.
    """
    before = tuple(row.architecture.id for row in MAIN_REGISTRY)
    if MAIN_REGISTRY.add(ArchSupport.from_architecture(MeanReverting(), before), ignore_duplicates=True):
        _remember_files()


def _detect(state: dict[str, Any]) -> bool:
    if not all(isinstance(value, Tensor) for value in state.values()):
        return False
    file = _file.get() or Path()
    header: dict[str, str] = {}
    if file.suffix == ".safetensors":
        with safe_open(file, framework="pt") as opened:
            header = opened.metadata() or {}
    found = metadata_of(Checkpoint(file, state, "online", header))
    return found is not None and found.architecture.row.role == "restoration"


def _remember_files() -> None:
    plain = ModelLoader.load_from_file

    @wraps(plain)
    def load_from_file(self: Any, path: str | Path) -> Any:
        with _reading(Path(path)):
            return plain(self, path)

    ModelLoader.load_from_file = load_from_file


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    token = _file.set(path)
    try:
        yield
    finally:
        _file.reset(token)
