"""From a network to the callable that a sampler wants, at a chosen precision."""

import functools
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from ..names import check_choice, scalar_time
from .coded import CodedNAFNet
from .layers import Context, Embedding
from .nafnet import NAFNet
from .unet import UNet

PRECISIONS = ("fp32", "bf16", "fp16", "auto")
Predict = Callable[[Tensor, Tensor, float | Tensor], Tensor]


def predictor(
    network: nn.Module,
    *,
    degraded: Tensor | None = None,
    text_context: Tensor | None = None,
    image_context: Tensor | None = None,
    precision: str = "fp32",
    compile: bool = False,
) -> Predict:
    """The callable (x, mu, t) -> prediction for one batch of images; images (B,C,H,W), t a number.

    degraded: the whole images, for a network that recognises what is wrong with them; without it, it judges each `mu`
    that it is given, which may be a tile.

    The contexts' share is computed here, once, and the share of each time t when it is first asked for; a call does
    the image-sized work only. Half precision is autocast: weights stay in float32, norms keep their eps of 1e-5, and
    the prediction comes back in the dtype of x, float32 at least. Denoising networks take no mu: theirs is ignored.
    """
    if not isinstance(network, UNet | NAFNet):
        raise ValueError(f"network: expected a U-Net or a NAFNet, got {type(network).__name__}")
    device = next(network.parameters()).device
    dtype = resolve_precision(precision, device)
    takes_mu = network.takes_mu
    recognising = isinstance(network, CodedNAFNet)
    judged = degraded

    def context_of(images: Tensor | None) -> Context:
        if isinstance(network, CodedNAFNet):
            if images is None:
                return Context()
            with arithmetic(dtype, device):
                return network.recognise(images.to(device))[0]
        return network.embed_context(text_context, image_context)

    with torch.no_grad():
        context = context_of(degraded)
    embeddings: dict[float, Embedding] = {}
    evaluate = torch.compile(network.evaluate) if compile else network.evaluate

    @scalar_time
    @torch.no_grad()
    def predict(x: Tensor, mu: Tensor, t: float | Tensor) -> Tensor:
        nonlocal context, judged
        t = one_time(t)
        if recognising and degraded is None and judged is not mu:
            context, judged = context_of(mu), mu
            embeddings.clear()
        if t not in embeddings:
            embeddings[t] = network.embed(t, context)
        with arithmetic(dtype, device):
            prediction: Tensor = evaluate(x, mu if takes_mu else None, embeddings[t])
        return prediction.to(torch.promote_types(x.dtype, torch.float32))

    return predict


def one_time(t: float | Tensor) -> float:
    """The time of a batch, given as a number or as a tensor that repeats it for each image."""
    if isinstance(t, Tensor) and t.numel() > 1 and not (t == t.flatten()[0]).all():
        raise ValueError(f"t must be the same for all images of a batch, got {t.tolist()}")
    return float(t.flatten()[0]) if isinstance(t, Tensor) else float(t)


def arithmetic(dtype: torch.dtype | None, device: torch.device) -> AbstractContextManager[Any]:
    """Work within it is done in the dtype that `resolve_precision` gave; weights stay as they are."""
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype)


def resolve_precision(precision: str, device: torch.device) -> torch.dtype | None:
    """The dtype to autocast to, None for float32; refuses what this machine cannot do."""
    check_choice("precision", precision, PRECISIONS)
    if precision == "auto":
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

    Tried in a process of its own: some virtual machines announce instructions that they then refuse to execute,
    and the process dies (SIGILL).
    """
    code = f"PRECISION = {precision!r}\n{probe}"
    try:
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return "a trial did not end within 120 s"
    if result.returncode < 0:
        return f"a trial was killed by signal {-result.returncode}"
    if result.returncode:
        lines = result.stderr.strip().splitlines() or ["unknown error"]
        return f"a trial failed: {lines[-1]}"
    return ""
