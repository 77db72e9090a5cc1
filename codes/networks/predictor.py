"""From a network to the callable that a sampler calls, at a chosen precision."""

import functools
import itertools
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from ..names import check_choice, scalar_time
from ..runtime.processor import remembered
from .compiling import compiled
from .protocols import Embeds, Recognises, TakesContexts

PRECISIONS = ("fp32", "bf16", "fp16", "auto")
Predict = Callable[[Tensor, Tensor, float], Tensor]


def predictor(
    network: nn.Module,
    *,
    degraded: Tensor | None = None,
    text_context: Tensor | None = None,
    image_context: Tensor | None = None,
    precision: str = "fp32",
    compile: bool = False,
) -> Predict:
    """The callable (x, mu, t) -> prediction for one batch of images (B, C, H, W); t is a number, or (B,) equal ones.

    network   any module with `forward(x, mu, t)`, t of shape (B,); codes/networks/protocols.py lists what it may offer
              besides, and is used here where it does
    degraded  the whole images, for a network that recognises their degradation; without it the network judges each
              `mu` that it gets, which may be a tile

    The share of the contexts is computed here, once, and the share of a time t at its first call; other calls do the
    image-sized work only. Half precision is autocast: weights stay in float32, norms keep their eps of 1e-5, and the
    prediction is returned in the dtype of x, float32 at least. Networks that take no mu ignore it.
    """
    if not isinstance(network, nn.Module):
        raise ValueError(f"network: expected a torch module, got {type(network).__name__}")
    device = _device(network)
    dtype = resolve_precision(precision, device)
    evaluate: Callable[[Tensor, Tensor, float], Tensor]
    if isinstance(network, Embeds):
        evaluate = _embedded(network, degraded, text_context, image_context, dtype, device, compile)
    else:
        for name, context in (("text_context", text_context), ("image_context", image_context)):
            if context is not None:
                raise ValueError(f"{name}: {type(network).__name__} takes none")
        evaluate = _plain(network, dtype, device, compile)

    @scalar_time
    @torch.no_grad()
    def predict(x: Tensor, mu: Tensor, t: float | Tensor) -> Tensor:
        prediction = evaluate(x, mu, _number(t))
        return prediction.to(torch.promote_types(x.dtype, torch.float32))

    return predict


def _device(network: nn.Module) -> torch.device:
    tensor = next(itertools.chain(network.parameters(), network.buffers()), None)
    return torch.device("cpu") if tensor is None else tensor.device


def _number(t: float | Tensor) -> float:
    """One time; the images of a batch are at the same time."""
    if isinstance(t, Tensor) and t.numel() > 1:
        if not bool((t == t.flatten()[0]).all()):
            raise ValueError(f"t: expected one time for the batch, got {t.tolist()}")
        t = t.flatten()[0]
    return float(t)


def _plain(network: nn.Module, dtype: torch.dtype | None, device: torch.device, compile: bool) -> Predict:
    """A network with nothing but `forward`."""
    forward = compiled(network, device) if compile else network
    takes_mu = getattr(network, "takes_mu", True)

    def evaluate(x: Tensor, mu: Tensor, t: float) -> Tensor:
        times = torch.full((len(x),), t, dtype=x.dtype, device=x.device)
        with arithmetic(dtype, device):
            prediction: Tensor = forward(x, mu, times) if takes_mu else forward(x, times)
        return prediction

    return evaluate


def _embedded(
    network: Embeds,
    degraded: Tensor | None,
    text_context: Tensor | None,
    image_context: Tensor | None,
    dtype: torch.dtype | None,
    device: torch.device,
    compile: bool,
) -> Predict:
    """A network that embeds times, and maybe contexts, separately from the images."""
    takes_mu = getattr(network, "takes_mu", True)
    recognises = isinstance(network, Recognises)
    judged = degraded

    @torch.no_grad()
    def context_of(images: Tensor | None) -> Any:
        if isinstance(network, Recognises):
            # In float32, whatever the precision: it is done once for all evaluations, is no faster in bf16 on CPUs, and
            # its rounding would shift the brightness of the whole image.
            return None if images is None else network.recognise(images.to(device))[0]
        if isinstance(network, TakesContexts):
            return network.embed_context(text_context, image_context)
        return None

    context = context_of(degraded)
    embeddings: dict[float, Any] = {}
    image_work = compiled(network.evaluate, device) if compile else network.evaluate

    def evaluate(x: Tensor, mu: Tensor, t: float) -> Tensor:
        nonlocal context, judged
        if recognises and degraded is None and judged is not mu:
            context, judged = context_of(mu), mu
            embeddings.clear()
        if t not in embeddings:
            embeddings[t] = network.embed(t, context)
        with arithmetic(dtype, device):
            prediction: Tensor = image_work(x, mu if takes_mu else None, embeddings[t])
        return prediction

    return evaluate


def arithmetic(dtype: torch.dtype | None, device: torch.device) -> AbstractContextManager[Any]:
    """A context whose arithmetic is in the dtype of `resolve_precision`; weights keep theirs."""
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype)


def resolve_precision(precision: str, device: torch.device) -> torch.dtype | None:
    """The dtype to autocast to, None for float32; an error for what this machine cannot compute."""
    check_choice("precision", precision, PRECISIONS)
    if precision == "auto":  # on a CPU the network decides as well: codes/networks/auto_precision.py
        on_gpu = device.type == "cuda" and torch.cuda.is_bf16_supported()
        return torch.bfloat16 if on_gpu else None
    if precision == "fp32":
        return None
    dtype = torch.bfloat16 if precision == "bf16" else torch.float16
    if device.type == "cpu":
        problem = half_precision_problem(precision)
        if problem:
            raise ValueError(f"precision: {precision} does not work on this CPU ({problem}); use fp32 or auto")
    elif device.type == "cuda" and precision == "bf16" and not torch.cuda.is_bf16_supported():
        raise ValueError("precision: this GPU has no bf16; use fp16 or fp32")
    return dtype


_PROBE = """
import torch
dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[PRECISION]
x = torch.rand(1, 64, 32, 32).to(memory_format=torch.channels_last)
with torch.no_grad(), torch.autocast("cpu", dtype):
    y = torch.nn.Conv2d(64, 64, 3, padding=1)(x)
    y = torch.nn.Linear(64, 64)(y.permute(0, 2, 3, 1).flatten(1, 2))
    torch.nn.functional.scaled_dot_product_attention(y[:, None], y[:, None], y[:, None])
"""


@functools.cache
def half_precision_problem(precision: str, probe: str = _PROBE) -> str:
    """Why this CPU cannot compute in half precision, '' if it can.

    Tried in a process of its own: some virtual machines announce instructions that they cannot execute, and the
    process dies (SIGILL). That takes seconds, so the answer is remembered.
    """
    code = f"PRECISION = {precision!r}\n{probe}"
    try:
        return remembered(code, lambda: _tried(code))
    except subprocess.TimeoutExpired:
        return "a trial did not end within 120 s"


def _tried(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    if result.returncode < 0:
        return f"a trial was killed by signal {-result.returncode}"
    if result.returncode:
        lines = result.stderr.strip().splitlines() or ["unknown error"]
        return f"a trial failed: {lines[-1]}"
    return ""
