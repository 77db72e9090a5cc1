"""Networks whose weights are loaded at once, made without random ones before.

Drawing random weights takes longer than reading trained ones: AlexNet has 61 million, of which LPIPS uses a 25th.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


@contextmanager
def uninitialised() -> Iterator[None]:
    """Within this context, layers keep what their memory holds as weights. Torch's random generator stays as it is."""
    with torch.random.fork_rng(devices=[]), _NoInitialisation():
        yield


class _NoInitialisation(TorchFunctionMode):
    """Stops the functions of torch.nn.init that torch lets modes replace: those of convolutions and linear layers."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if getattr(function, "__module__", None) == "torch.nn.init":
            return args[0] if args else named["tensor"]
        return function(*args, **named)
