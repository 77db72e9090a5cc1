"""Networks, selected as in the published option files; the rows are in codes/networks/rows.py.

`network_G: {which_model_G: ConditionalUNet, setting: {...}}` -> `build_network("ConditionalUNet", {...})`. torch is
imported when the first network is built.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_type_hints

from ..names import unknown
from .rows import NETWORKS, Row, Setting, load

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Architecture:
    """Which network: the published name, the variant where that name has several, and its setting."""

    which_model_G: str
    variant: str
    setting: Setting = field(default_factory=dict)

    def __str__(self) -> str:
        setting = ", ".join(f"{key}: {value}" for key, value in self.setting.items())
        return f"{self.which_model_G} (variant {self.variant}, setting {{{setting}}})"

    @property
    def row(self) -> Row:
        """What is known about this network."""
        return NETWORKS[self.which_model_G][self.variant]


def default_variant(which_model_G: str, setting: Setting) -> str:
    """The variant that a published option file with this setting means."""
    rows = NETWORKS[which_model_G]
    return next((variant for variant, row in rows.items() if row.suggested_by(setting)), next(iter(rows)))


def architecture(which_model_G: str, setting: Setting, variant: str | None = None) -> Architecture:
    """Check an option file's choice; the error names the key, its value and the nearest known one."""
    variants = NETWORKS.get(which_model_G)
    if variants is None:
        raise ValueError(f"network_G.which_model_G: {unknown('network', which_model_G, NETWORKS)}")
    variant = default_variant(which_model_G, setting) if variant is None else variant
    if variant not in variants:
        raise ValueError(f"network_G.variant: {unknown(f'variant of {which_model_G}', variant, variants)}")
    choice = Architecture(which_model_G, variant, dict(setting))
    _check_bounds(setting, "network_G.setting")
    if not choice.row.whole_setting:
        _check_setting(choice)
    return choice


def build_network(which_model_G: str, setting: Setting, variant: str | None = None) -> "nn.Module":
    """A network with random weights, in channels_last memory and evaluation mode."""
    return build(architecture(which_model_G, setting, variant))


def build(choice: Architecture) -> "nn.Module":
    """The network of a checked choice, with random weights, in channels_last memory and evaluation mode."""
    import torch

    network_class = load(choice.row.network)
    whole = choice.row.whole_setting
    network: nn.Module = network_class(choice.setting) if whole else network_class(**choice.setting, **choice.row.fixed)
    return network.to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload]


# The largest numbers of a setting, far beyond every published network: a slip must not take all memory and hours.
_LARGEST, _LONGEST, _BLOCKS = 100_000, 16, 256
_LIMITS = {"depth": 8, "layers": 100, "middle_blk_num": _BLOCKS}


def _check_bounds(setting: Mapping[Any, Any], at: str) -> None:
    """Raise ValueError for numbers that no network has, wherever they are in a setting."""
    for key, value in setting.items():
        where = f"{at}.{key}"
        if isinstance(value, Mapping):
            _check_bounds(value, where)
        elif isinstance(value, list | tuple):
            numbers = [entry for entry in value if isinstance(entry, int | float)]
            if len(value) > _LONGEST or sum(abs(number) for number in numbers) > _BLOCKS:
                raise ValueError(f"{where}: expected at most {_LONGEST} numbers with a sum of at most {_BLOCKS}")
        elif isinstance(value, int | float) and not abs(value) <= _LIMITS.get(key, _LARGEST):
            raise ValueError(f"{where}: expected at most {_LIMITS.get(key, _LARGEST):,}, got {value!r}")


def _check_setting(choice: Architecture) -> None:
    network, setting = f"{choice.which_model_G} (variant {choice.variant})", choice.setting
    network_class = load(choice.row.network)
    signature = {} if _has_no_constructor(network_class) else inspect.signature(network_class).parameters
    free = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.values())
    parameters = {
        key: parameter
        for key, parameter in signature.items()
        if key not in choice.row.fixed and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
    }
    hints = get_type_hints(network_class.__init__)
    for key, value in setting.items():
        if key not in parameters and not free:
            raise ValueError(f"network_G.setting.{key}: {unknown(f'option of {network}', key, parameters)}")
        kind = hints.get(key)
        if kind in _EXPECTED and not _fits(value, kind):
            raise ValueError(f"network_G.setting.{key}: expected {_EXPECTED[kind]}, got {value!r}")
    for key, parameter in parameters.items():
        if parameter.default is parameter.empty and key not in setting:
            raise ValueError(f"network_G.setting.{key}: missing, {network} needs it")


def _has_no_constructor(network_class: Any) -> bool:
    from torch import nn

    return network_class.__init__ is nn.Module.__init__


# The kinds of arguments that are checked here; a network checks others itself.
_EXPECTED: Mapping[Any, str] = {
    int: "a positive whole number",
    float: "a number",
    bool: "true or false",
    int | None: "a whole number or null",
    Sequence[int]: "a list of whole numbers",
}


def _fits(value: Any, kind: Any) -> bool:
    if kind is bool:
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kind is int:
        return isinstance(value, int) and value > 0
    if kind is float:
        return isinstance(value, int | float)
    if kind == int | None:
        return value is None or isinstance(value, int)
    # A stage may have no block: then it only changes the resolution.
    return isinstance(value, list | tuple) and all(type(entry) is int and entry >= 0 for entry in value)
