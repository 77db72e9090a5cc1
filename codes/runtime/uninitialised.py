"""Networks whose weights are loaded at once, made without random ones before.

Drawing random weights takes longer than reading trained ones: AlexNet has 61 million, of which LPIPS uses a 25th.
"""

from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode


class Uninitialised(TorchFunctionMode):
    """Within this context the functions of torch.nn.init change nothing and draw no random numbers."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if getattr(function, "__module__", None) == "torch.nn.init":
            return args[0] if args else named["tensor"]
        return function(*args, **named)
