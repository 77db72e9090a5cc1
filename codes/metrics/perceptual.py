"""LPIPS, and the Inception features for FID and KID: networks with real weights, never fetched at run time.

Both take uint8 RGB arrays, (H, W, 3) or a batch (N, H, W, 3); grey (H, W) or (H, W, 1) counts as R = G = B. The images
of a batch go through the network one by one, so that a result does not depend on its neighbours, bit for bit.
"""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from ..rows import METRICS
from ..runtime.torchvision_compat import ensure_torchvision
from ..runtime.uninitialised import uninitialised
from .weights import FOLDER, check_weights, find_weights

Images = NDArray[np.uint8]

_INCEPTION_SIZE = 299
# AlexNet's convolutions: place among its layers, channels in and out, kernel, stride, padding.
_CONVOLUTIONS = (
    (0, 3, 64, 11, 4, 2),
    (3, 64, 192, 5, 1, 2),
    (6, 192, 384, 3, 1, 1),
    (8, 384, 256, 3, 1, 1),
    (10, 256, 256, 3, 1, 1),
)
_POOLED = (3, 6)  # those with a pooling before them
# Mean and deviation of the photographs that AlexNet was trained on, for values from -1 to 1; of the lpips package.
_SHIFT, _SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)


class LPIPS(nn.Module):
    """Learned perceptual distance (AlexNet, version 0.1): 0 for equal images, larger is worse.

    Its values are those of the `lpips` package bit for bit. The linear layers are read from that package, AlexNet's
    convolutions from `folder` or the torch cache. The package itself is not imported: with torchvision it takes longer
    to import than torch.
    """

    smallest = METRICS["lpips"].smallest_side

    def __init__(self, folder: Path = FOLDER) -> None:
        super().__init__()
        convolutions = _read_tensors(find_weights("lpips", folder))
        linear = torch.load(_linear_layers(), map_location="cpu", weights_only=True)
        self.slices, self.linear = nn.ModuleList(), nn.ModuleList()
        with uninitialised():
            for i, (place, width_in, width, side, stride, padding) in enumerate(_CONVOLUTIONS):
                convolution = nn.Conv2d(width_in, width, side, stride, padding)
                convolution.load_state_dict(
                    {key: convolutions[f"features.{place}.{key}"] for key in ("weight", "bias")}
                )
                pooling = [nn.MaxPool2d(3, 2)] if place in _POOLED else []
                self.slices.append(nn.Sequential(*pooling, convolution, nn.ReLU()))
                layer = nn.Conv2d(width, 1, 1, bias=False)
                layer.load_state_dict({"weight": linear[f"lin{i}.model.1.weight"]})
                self.linear.append(layer)
        self.shift, self.scale = (nn.Buffer(torch.tensor(values)[None, :, None, None]) for values in (_SHIFT, _SCALE))
        self.requires_grad_(False).eval()

    def distance(self, a: Tensor, b: Tensor) -> Tensor:
        """The distance of each pair of two batches (N, 3, H, W) in [0, 1], shape (N,); gradients go through."""
        return self._distance(2 * a - 1, 2 * b - 1)

    def _distance(self, a: Tensor, b: Tensor) -> Tensor:
        """Of batches in [-1, 1]."""
        x, y = ((image - self.shift) / self.scale for image in (a, b))
        total = torch.zeros((), device=a.device)
        for part, layer in zip(self.slices, self.linear, strict=True):
            x, y = part(x), part(y)
            total = total + layer((_normalized(x) - _normalized(y)) ** 2).mean([2, 3], keepdim=True)
        return total.flatten()

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
        device = next(self.parameters()).device
        distances = [
            float(self._distance(_tensor(x, device) / 127.5 - 1, _tensor(y, device) / 127.5 - 1))
            for x, y in zip(batch_a, batch_b, strict=True)
        ]
        return np.array(distances, np.float64).reshape(a.shape[:-3])


def _normalized(features: Tensor) -> Tensor:
    """Features of length 1 at each pixel."""
    return features / (torch.sqrt(torch.sum(features**2, dim=1, keepdim=True)) + 1e-10)


def _linear_layers() -> Path:
    """The file with the linear layers, in the lpips package."""
    spec = find_spec("lpips")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'lpips'", name="lpips")
    return Path(spec.origin).parent / "weights" / "v0.1" / "alex.pth"


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

    with uninitialised():
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
