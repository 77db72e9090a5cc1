"""Nodes for ComfyUI. A folder in ComfyUI/custom_nodes needs an __init__.py with two lines:

    from mr_sampler.integrations.comfyui import NODE_CLASS_MAPPINGS, NODE_DISPLAY_NAME_MAPPINGS
    __all__ = ["NODE_CLASS_MAPPINGS", "NODE_DISPLAY_NAME_MAPPINGS"]

ComfyUI's images are tensors (B, H, W, 3) in [0, 1]. Nothing here imports ComfyUI: a node is a class with the attributes
that it asks for.
"""

from typing import Any

import torch
from torch import Tensor

from ..restoration.loading import load_restorer
from ..restoration.restorer import Restoration, Restorer
from ..solvers import SOLVERS

MODEL = "MR_SAMPLER_MODEL"  # the type of the connection between the nodes
RECOMMENDED = "recommended"
MOST_UNCERTAIN = 0.2  # standard deviation that is drawn white, as in restore.py

_SEED = ("INT", {"default": 0, "min": 0, "max": 2**63 - 1})
_NFE = ("INT", {"default": 0, "min": 0, "max": 1000, "tooltip": "network evaluations; 0: the checkpoint's own number"})


class LoadModel:
    """Loads a checkpoint or an option file."""

    CATEGORY = "MR Sampler"
    RETURN_TYPES = (MODEL,)
    RETURN_NAMES = ("model",)
    FUNCTION = "load"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        """The inputs, as ComfyUI asks for them."""
        path = {
            "default": "options/test.yml",
            "tooltip": "a .safetensors checkpoint, an option file or hf://owner/name",
        }
        return {"required": {"path": ("STRING", path), "device": (["auto", "cpu", "cuda"],)}}

    def load(self, path: str, device: str) -> tuple[Restorer]:
        """The restorer."""
        return (load_restorer(path, device),)


class Restore:
    """Restores a batch of images, each with the same seed."""

    CATEGORY = "MR Sampler"
    RETURN_TYPES = ("IMAGE",)
    FUNCTION = "restore"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        """The inputs, as ComfyUI asks for them."""
        strength = {"default": 1.0, "min": 0.0, "max": 1.0, "step": 0.05}
        return {
            "required": {
                "model": (MODEL,),
                "image": ("IMAGE",),
                "nfe": _NFE,
                "solver": ([RECOMMENDED, *SOLVERS],),
                "seed": _SEED,
                "strength": ("FLOAT", strength),
            }
        }

    def restore(
        self, model: Restorer, image: Tensor, nfe: int, solver: str, seed: int, strength: float
    ) -> tuple[Tensor]:
        """The restored images."""
        results = [_sample(model, one, 1, nfe, solver, seed, strength).sample for one in image]
        return (_to_comfy(torch.stack(results)),)


class Uncertainty:
    """Draws several restorations of each image: their mean, and where they differ (white: a fifth of the range)."""

    CATEGORY = "MR Sampler"
    RETURN_TYPES = ("IMAGE", "IMAGE")
    RETURN_NAMES = ("mean", "uncertainty")
    FUNCTION = "measure"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        """The inputs, as ComfyUI asks for them."""
        samples = {"default": 4, "min": 2, "max": 64}
        return {
            "required": {
                "model": (MODEL,),
                "image": ("IMAGE",),
                "samples": ("INT", samples),
                "nfe": _NFE,
                "solver": ([RECOMMENDED, *SOLVERS],),
                "seed": _SEED,
            }
        }

    def measure(
        self, model: Restorer, image: Tensor, samples: int, nfe: int, solver: str, seed: int
    ) -> tuple[Tensor, Tensor]:
        """The means and the standard deviations."""
        drawn = [_sample(model, one, samples, nfe, solver, seed, 1.0) for one in image]
        spread = torch.stack([each.std.mean(dim=0, keepdim=True).expand(3, -1, -1) for each in drawn])
        means = torch.stack([each.mean for each in drawn])
        return _to_comfy(means), _to_comfy((spread / MOST_UNCERTAIN).clamp(max=1))


def _sample(model: Restorer, image: Tensor, n: int, nfe: int, solver: str, seed: int, strength: float) -> Restoration:
    return model.sample(
        image[..., :3].permute(2, 0, 1),
        n,
        nfe=nfe or None,
        algorithm=None if solver == RECOMMENDED else solver,
        seed=seed,
        strength=strength,
    )


def _to_comfy(images: Tensor) -> Tensor:
    return images.permute(0, 2, 3, 1).contiguous()


NODE_CLASS_MAPPINGS = {
    "MRSamplerLoad": LoadModel,
    "MRSamplerRestore": Restore,
    "MRSamplerUncertainty": Uncertainty,
}
NODE_DISPLAY_NAME_MAPPINGS = {
    "MRSamplerLoad": "Load restoration model (MR Sampler)",
    "MRSamplerRestore": "Restore image (MR Sampler)",
    "MRSamplerUncertainty": "Restoration uncertainty (MR Sampler)",
}
