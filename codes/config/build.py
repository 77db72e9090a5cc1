"""Builds schedule and solvers from options, and checks options against a checkpoint. Imports torch on first use."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..defaults import SOLVER
from ..names import OptionValueError
from ..networks.rows import CONTEXT_KEYS
from .errors import Keys, dotted, join, line, show
from .rules import CLIP_WIDTHS
from .schema import NO_SAMPLING, Options

if TYPE_CHECKING:
    from ..sde import MeanRevertingSDE
    from ..solvers import PlannedSolver

_SDE_KEYS = ("max_sigma", "T", "schedule", "eps")
_DENOISING_KEYS = ("max_sigma", "T", "schedule")  # its eps and convention are always the same


def build_sde(options: Options, metadata: Mapping[str, Any] | None = None) -> "MeanRevertingSDE":
    """The schedule: each value from the file, else from the checkpoint's metadata, else DA-CLIP's.

    Networks that take no degraded image have the denoising process, which begins with noise of `degradation.sigma`.
    """
    from ..sde import DenoisingSDE, MeanRevertingSDE

    recorded = (metadata or {}).get("sde") or {}
    denoising = _denoises(options, metadata or {})
    keys = _DENOISING_KEYS if denoising else _SDE_KEYS
    values = {key: value for key in keys if (value := recorded.get(key)) is not None}
    values |= {key: value for key in keys if (value := getattr(options.sde, key)) is not None}
    try:
        if denoising:
            return DenoisingSDE(**values, noise_level=options.degradation.sigma)
        if options.sde.convention != "auto":
            values["convention"] = options.sde.convention
        else:
            values["convention"] = recorded.get("convention") or _convention(options)
        return MeanRevertingSDE(**values)
    except OptionValueError as error:
        place = ("degradation", "sigma") if error.option == "noise_level" else ("sde", error.option)
        raise options.error(place, str(error).removeprefix(f"{error.option}: ")) from None


def _denoises(options: Options, metadata: Mapping[str, Any]) -> bool:
    """Whether the network takes no degraded image, as file or checkpoint say."""
    return (metadata.get("variant") or options.variant) == "denoising"


def _convention(options: Options) -> str:
    """Only DA-CLIP's networks take contexts, and only they were trained with its convention."""
    setting = options.network_G.setting
    contexts = CONTEXT_KEYS & set(setting)
    return "daclip" if contexts or options.path.daclip or options.network_G.which_model_G is None else "irsde"


def build_solvers(
    options: Options, sde: "MeanRevertingSDE", usual: Mapping[str, Any] = SOLVER
) -> list["PlannedSolver"]:
    """The solvers of `options.solvers(usual)` with their plans; raises OptionsError for those that cannot run."""
    import numpy as np

    from ..solvers import Plan, PlannedSolver, Solver, make_plan

    if options.model == "latent":
        return [
            PlannedSolver(
                NO_SAMPLING,
                Solver("posterior", 1),
                Plan(sde=sde, steps=(), end=sde.point(0), parameterization="data", start_sigma=0.0),
            )
        ]
    planned = []
    problems: dict[tuple[Keys, str], list[str]] = {}
    for label, arguments in options.solvers(usual):
        try:
            solver = Solver(**arguments)
            with np.errstate(divide="raise", over="raise", invalid="raise"):
                planned.append(PlannedSolver(label, solver, make_plan(sde, solver)))
        except ValueError as error:
            option = getattr(error, "option", None)  # see OptionValueError
            keys = ("sde", "algorithm") if option == "algorithm" else ("sampler", *([option] if option else []))
            problems.setdefault((_in_variant(options, label, keys), str(error)), []).append(label)
        except ArithmeticError as error:
            text = f"cannot be computed with such large or small numbers ({error})"
            problems.setdefault((("sampler",), text), []).append(label)
    if problems:
        raise join(
            line(options.file_of(keys), keys, f"{text} ({', '.join(labels[:5])}{', ...' if len(labels) > 5 else ''})")
            for (keys, text), labels in problems.items()
        )
    return planned


def _in_variant(options: Options, label: str, keys: Keys) -> Keys:
    """The key within the variant that a label belongs to if the variant sets it, else the common key."""
    names = [name for name in options.sampler.variants if label.startswith(f"{name}-")]
    variant = max(names, key=len, default="")
    if variant and keys[-1] in options.sampler.variants[variant].model_fields_set:
        return ("sampler", "variants", variant, keys[-1])
    return keys


def check_against_checkpoint(options: Options, metadata: Mapping[str, Any]) -> None:
    """Raise OptionsError where the file contradicts what the checkpoint records about itself.

    `metadata` is {which_model_G, variant, setting, fit_target, sde: {max_sigma, T, schedule, eps, convention}}; what is
    missing or None is not compared.
    """
    network, sde = options.network_G, options.sde
    denoising = _denoises(options, metadata)
    if options.variant == "denoising" and not denoising:
        text = (
            "denoising means a network of denoising-sde, which takes no degraded image, but these weights are the "
            f"variant {metadata.get('variant')}: name it as network_G.variant"
        )
        raise options.error(("distortion",), text)
    targets = options.sampler.fit_target
    recorded = metadata.get("sde") or {}
    setting = metadata.get("setting") or {}
    pairs: list[tuple[Keys, Any, Any]] = [
        (("network_G", "which_model_G"), network.which_model_G, metadata.get("which_model_G")),
        (("network_G", "variant"), network.variant, metadata.get("variant")),
        *((("network_G", "setting", key), value, setting.get(key)) for key, value in network.setting.items()),
        *(
            (("sde", key), getattr(sde, key), recorded.get(key))
            for key in (_DENOISING_KEYS if denoising else _SDE_KEYS)
        ),
        (
            ("sde", "convention"),
            None if sde.convention == "auto" or denoising else sde.convention,
            recorded.get("convention"),
        ),
        *(
            (("sampler", "fit_target"), target, metadata.get("fit_target"))
            for target in (targets if isinstance(targets, tuple) else (targets,))
        ),
        *(
            (("sampler", "variants", name, "fit_target"), target, metadata.get("fit_target"))
            for name, variant in options.sampler.variants.items()
            for target in (variant.fit_target if isinstance(variant.fit_target, tuple) else (variant.fit_target,))
        ),
    ]
    problems = [
        line(
            options.file_of(keys),
            keys,
            f"{show(given)} contradicts the checkpoint, which was trained with {show(trained)}",
        )
        for keys, given, trained in pairs
        if given is not None and trained is not None and not _same(dotted(keys), given, trained)
    ]
    if problems:
        raise join(problems)


def _same(key: str, a: Any, b: Any) -> bool:
    if key == "sde.max_sigma":  # from 1 on in 8-bit units
        a, b = (value / 255 if value >= 1 else value for value in (a, b))
    if isinstance(a, float) or isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-6)
    return list(a) == list(b) if isinstance(a, list | tuple) and isinstance(b, list | tuple) else bool(a == b)


def check_context_dim(options: Options, width: int) -> None:
    """Raise OptionsError unless the network takes contexts of the width that the DA-CLIP weights give."""
    expected = options.network_G.setting.get("context_dim", 512)
    if options.takes_contexts and expected != width:
        model = next((name for name, known in CLIP_WIDTHS.items() if known == width), "its model")
        raise options.error(
            ("network_G", "setting", "context_dim"),
            f"{show(expected)} contradicts {options.path.daclip}: {model} has embeddings of width {width}",
        )
