"""How much memory an evaluation of a network takes, to decide on tiles before anything is allocated."""

import logging
import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .predictor import predictor

log = logging.getLogger(__name__)

# Sides of the images on which a network is tried, and what is added to the measurement: libraries allocate work space
# that torch does not see, and the allocator keeps gaps.
SIDES = (64, 128)
MARGIN = 1.5
# Where the trial fails: feature maps of the first convolution's width that are in memory at the same time. Of the
# networks here the U-Nets need most, 6.7.
COPIES = 16

_measured: "weakref.WeakKeyDictionary[nn.Module, float]" = weakref.WeakKeyDictionary()


def bytes_per_pixel(network: nn.Module, channels: int = 3) -> float:
    """Estimated peak memory of one evaluation in float32, per pixel of the image.

    It is the network's attribute `bytes_per_pixel` if it has one; otherwise it is measured once, on small images.
    """
    known = getattr(network, "bytes_per_pixel", None)
    if known is not None:
        return float(known)
    if network not in _measured:
        try:
            _measured[network] = measured_bytes_per_pixel(network, channels)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            _measured[network] = 4.0 * COPIES * base_width(network)
            log.info("memory of %s: estimated by its width, a trial failed (%s)", type(network).__name__, error)
    return _measured[network]


def measured_bytes_per_pixel(network: nn.Module, channels: int = 3) -> float:
    """Growth of the peak memory of an evaluation with the number of pixels, and a margin."""
    predict = predictor(network)
    tensor = next(network.parameters(), torch.empty(0))
    peaks = []
    for side in SIDES:
        x = torch.zeros(1, channels, side, side, device=tensor.device, dtype=tensor.dtype)
        with PeakMemory() as peak:
            predict(x, x, 1.0)
        peaks.append(peak.bytes)
    small, large = SIDES
    # A network that allocates nothing that grows still has its result.
    return MARGIN * max((peaks[1] - peaks[0]) / (large**2 - small**2), 4.0 * channels)


def base_width(network: nn.Module) -> int:
    """Channels at full resolution: those of the first convolution's output, 64 where there is none."""
    first = next((module for module in network.modules() if isinstance(module, nn.Conv2d)), None)
    return 64 if first is None else int(first.out_channels)


class PeakMemory(TorchDispatchMode):
    """Counts the bytes of the tensors that are made within it; `bytes` is the most that existed at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.now = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {storage._cdata for storage in _storages((args, kwargs))}
        result = func(*args, **(kwargs or {}))
        for storage in _storages(result):
            if storage._cdata not in given:  # otherwise a view, or written in place
                self._count(storage)
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self.known:
            return
        self.known.add(key)
        self.now += size
        self.bytes = max(self.bytes, self.now)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now -= size


def _storages(values: Any) -> list[torch.UntypedStorage]:
    """The memory of all tensors within some values; packed convolution weights have none that torch knows."""
    tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
    return [tensor.untyped_storage() for tensor in tensors if not tensor.is_mkldnn]
