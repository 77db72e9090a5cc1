"""MR Sampler: fast samplers for mean-reverting diffusion.

Restoring images, with `help(load_restorer)` for all that can be chosen:

    from codes import load_restorer, read_image, save_image

    restorer = load_restorer("options/test.yml")
    restored = restorer(read_image("rainy.png"), nfe=8, seed=0)
    save_image(restored, "clean.png")

One level below, `sample(network, sde, mu, solver)` runs a solver on any network: docs/api.md shows both.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from .config import OptionsError
    from .data.images import ImageError, read_image, save_image, to_uint8
    from .restoration.loading import load_restorer
    from .restoration.restorer import Restoration, Restorer
    from .sde import DenoisingSDE, MeanRevertingSDE
    from .solvers import SOLVERS, NonFiniteError, Plan, SampleOutput, Solver, StepInfo, make_plan, sample

__all__ = [
    "SOLVERS",
    "DenoisingSDE",
    "ImageError",
    "MeanRevertingSDE",
    "NonFiniteError",
    "OptionsError",
    "Plan",
    "Restoration",
    "Restorer",
    "SampleOutput",
    "Solver",
    "StepInfo",
    "load_restorer",
    "make_plan",
    "read_image",
    "sample",
    "save_image",
    "to_uint8",
]

_MODULES = {
    "DenoisingSDE": ".sde",
    "ImageError": ".data.images",
    "MeanRevertingSDE": ".sde",
    "OptionsError": ".config",
    "Restoration": ".restoration.restorer",
    "Restorer": ".restoration.restorer",
    "load_restorer": ".restoration.loading",
    "read_image": ".data.images",
    "save_image": ".data.images",
    "to_uint8": ".data.images",
}


def __getattr__(name: str) -> Any:
    """Import on first use: torch takes seconds, and a mistake in an option file should be reported at once."""
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, ".solvers"), __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
