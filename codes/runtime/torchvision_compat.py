"""Makes `import torchvision` work with a CPU-only torch.

The registry's torchvision wheel is a CUDA build. With a CPU-only torch its compiled operators do not load, and
its Python code then fails at import with "operator torchvision::nms does not exist", although nothing in this
project uses those operators. Declaring their schemas (without implementations) is enough for torchvision, and for
lpips, open_clip and timm, which import it. Call `ensure_torchvision()` before the first import of any of them.
"""

import functools
import importlib
from importlib.util import find_spec

import torch

_MISSING_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


@functools.cache
def ensure_torchvision() -> torch.library.Library | None:
    """Import torchvision, if it is installed, declaring its missing operators first if necessary.

    The returned library (None if torchvision imports by itself) is kept alive by the cache: its
    declarations vanish with it.
    """
    if find_spec("torchvision") is None:  # diffusers and its scheduler do without it
        return None
    try:
        importlib.import_module("torchvision")
        return None
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for schema in _MISSING_SCHEMAS:
        library.define(schema)  # type: ignore[no-untyped-call]
    importlib.import_module("torchvision")
    return library
