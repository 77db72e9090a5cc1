"""LPIPS, and the Inception features for FID and KID: networks with real weights, never fetched at run time.

Both take uint8 RGB arrays, (H, W, 3) or a batch (N, H, W, 3); grey (H, W) or (H, W, 1) counts as R = G = B. The images
of a batch go through the network one by one, so that a result does not depend on its neighbours, bit for bit.
"""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from ..rows import METRICS
from ..runtime.torchvision_compat import ensure_torchvision
from .weights import FOLDER, check_weights, find_weights

Images = NDArray[np.uint8]

_INCEPTION_SIZE = 299
# The five convolutions of torchvision's AlexNet, which lpips cuts into five slices.
_ALEXNET_CONVOLUTIONS = (0, 3, 6, 8, 10)


class LPIPS(nn.Module):
    """Learned perceptual distance (AlexNet, version 0.1): 0 for equal images, larger is worse.

    The network is the `lpips` package's, with its own linear layers; only AlexNet's convolutions come from `folder` or
    the torch cache.
    """

    smallest = METRICS["lpips"].smallest_side

    def __init__(self, folder: Path = FOLDER) -> None:
        super().__init__()
        convolutions = _read_tensors(find_weights("lpips", folder))
        ensure_torchvision()
        import lpips

        # Random weights first: the package would download the trained ones. They must not shift the user's random
        # numbers. The warnings are about the package's way of calling torchvision.
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.net = lpips.LPIPS(net="alex", pnet_rand=True, verbose=False)
        state = {
            f"slice{i}.{layer}.{part}": convolutions[f"features.{layer}.{part}"]
            for i, layer in enumerate(_ALEXNET_CONVOLUTIONS, 1)
            for part in ("weight", "bias")
        }
        self.net.net.load_state_dict(state)
        self.requires_grad_(False).eval()

    def distance(self, a: Tensor, b: Tensor) -> Tensor:
        """The distance of each pair of two batches (N, 3, H, W) in [0, 1], shape (N,); gradients go through."""
        result: Tensor = self.net(2 * a - 1, 2 * b - 1)
        return result.flatten()

    @torch.inference_mode()
    def forward(self, a: Images, b: Images) -> NDArray[np.float64]:
        """The distance of two images, shape (), or of each pair of two batches, shape (N,)."""
        if a.shape != b.shape:
            raise ValueError(f"the images differ in shape: {a.shape} and {b.shape}")
        batch_a, batch_b = _batch(a), _batch(b)
        height, width = batch_a.shape[1:3]
        if min(height, width) < self.smallest:
            raise ValueError(
                f"the image is too small: {height}x{width} pixels, LPIPS needs at least {self.smallest}x{self.smallest}"
            )
        device = self.net.scaling_layer.shift.device
        distances = [
            float(self.net(_tensor(x, device) / 127.5 - 1, _tensor(y, device) / 127.5 - 1))
            for x, y in zip(batch_a, batch_b, strict=True)
        ]
        return np.array(distances, np.float64).reshape(a.shape[:-3])


class InceptionFeatures(nn.Module):
    """The 2048 features of the Inception network of 2015-12-05, on which FID and KID are defined.

    Two files give the same features: our TorchScript one, and the state dict of pytorch-fid in the torch cache, which
    is loaded into torchvision's Inception v3 with the poolings of the original graph.

    Images of other sizes are resized to 299x299 as in pytorch-fid: bilinear, half-pixel centres, no antialiasing, not
    rounded. Differs from pytorch-fid: values go in as (v - 128) / 128, as in the original graph, not as v / 127.5 - 1.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        super().__init__()
        path = find_weights("fid", folder)
        check_weights(path)
        self.net = pytorch_fid_inception(_load_state(path)) if path.suffix == ".pth" else _load_script(path)
        self.requires_grad_(False).eval()

    @torch.inference_mode()
    def forward(self, images: Images) -> NDArray[np.float32]:
        """Features of shape (2048,) for an image, (N, 2048) for a batch."""
        batch = _batch(images)
        device = next(self.net.parameters()).device
        features = np.empty((len(batch), 2048), np.float32)
        for i, image in enumerate(batch):
            x = _tensor(image, device)
            if x.shape[2:] != (_INCEPTION_SIZE, _INCEPTION_SIZE):
                x = F.interpolate(x, (_INCEPTION_SIZE, _INCEPTION_SIZE), mode="bilinear", align_corners=False)
            features[i] = self.net((x - 128) / 128)[0].cpu().numpy()
        return features if images.ndim == 4 else features[0]


def pytorch_fid_inception(state: dict[str, Tensor]) -> nn.Module:
    """The network whose state dict pytorch-fid publishes, without its classifier.

    It has torchvision's names and layers. What differs are poolings: the original graph leaves the padding out of its
    averages, and takes the maximum in its last block.
    """
    ensure_torchvision()
    import torchvision

    with torch.random.fork_rng(devices=[]):
        net = torchvision.models.inception_v3(weights=None, num_classes=1008, aux_logits=False, init_weights=False)
    net.load_state_dict(state)
    net.fc = nn.Identity()
    for name in ("Mixed_5b", "Mixed_5c", "Mixed_5d", "Mixed_6b", "Mixed_6c", "Mixed_6d", "Mixed_6e", "Mixed_7b"):
        _set_pooling(getattr(net, name), nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False))
    _set_pooling(net.Mixed_7c, nn.MaxPool2d(3, stride=1, padding=1))
    return net.eval()  # type: ignore[no-any-return]


def _set_pooling(block: Any, pooling: Callable[[Tensor], Tensor]) -> None:
    """Make the last branch of an Inception block pool in another way."""
    branches = block._forward

    def forward(x: Tensor) -> Tensor:
        return torch.cat([*branches(x)[:-1], block.branch_pool(pooling(x))], 1)

    block.forward = forward


def _read_tensors(path: Path) -> dict[str, Tensor]:
    check_weights(path)
    if path.suffix == ".pth":
        return _load_state(path)
    from safetensors.torch import load_file

    return load_file(path)


def _load_state(path: Path) -> dict[str, Tensor]:
    return torch.load(path, map_location="cpu", weights_only=True)  # type: ignore[no-any-return]


def _load_script(path: Path) -> nn.Module:
    return torch.jit.load(path, map_location="cpu")  # type: ignore[no-any-return,no-untyped-call]


def _batch(images: Images) -> Images:
    """Images as (N, H, W, 3)."""
    if images.dtype != np.uint8:
        raise ValueError(f"expected 8-bit images (uint8), got {images.dtype}")
    if images.ndim == 2 or (images.ndim == 3 and images.shape[2] == 1):
        images = np.repeat(images.reshape(*images.shape[:2], 1), 3, axis=2)
    if images.ndim not in (3, 4) or images.shape[-1] != 3:
        raise ValueError(f"expected images of shape (H, W, 3), (N, H, W, 3) or grey (H, W), got {images.shape}")
    return images if images.ndim == 4 else images[None]


def _tensor(image: Images, device: torch.device) -> Tensor:
    """(1, 3, H, W) with values 0 to 255."""
    # A copy in memory order: torch takes no flipped views, such as BGR seen as RGB.
    return torch.tensor(np.ascontiguousarray(image), device=device).permute(2, 0, 1)[None].float()
