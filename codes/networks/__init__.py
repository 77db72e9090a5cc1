"""Networks, selected as in the published option files; the rows are in codes/networks/rows.py.

`network_G: {which_model_G: ConditionalUNet, setting: {...}}` -> `build_network("ConditionalUNet", {...})`. torch is
imported when the first network is built.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
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
    """Check an option file's choice; the error names each wrong key, its value and the nearest known one."""
    found = [f"network_G.{'.'.join(keys)}: {text}" for keys, text in problems(which_model_G, setting, variant)]
    if found:
        raise ValueError("; ".join(found))
    return _chosen(which_model_G, setting, variant)


def _chosen(which_model_G: str, setting: Setting, variant: str | None) -> Architecture:
    variant = default_variant(which_model_G, setting) if variant is None else variant
    return Architecture(which_model_G, variant, dict(setting))


def problems(which_model_G: str, setting: Setting, variant: str | None = None) -> Iterator[tuple[tuple[str, ...], str]]:
    """What is wrong with a choice of network, by its key within the section of an option file."""
    variants = NETWORKS.get(which_model_G)
    if variants is None:
        yield ("which_model_G",), str(unknown("network", which_model_G, NETWORKS))
    elif variant is not None and variant not in variants:
        yield ("variant",), str(unknown(f"variant of {which_model_G}", variant, variants))
    else:
        choice = _chosen(which_model_G, setting, variant)
        found = dict(_out_of_bounds(setting, ("setting",)))
        if not choice.row.whole_setting:
            found = {**dict(_wrong_setting(choice)), **found}
        yield from found.items()


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


def _out_of_bounds(setting: Mapping[Any, Any], at: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Numbers that no network has, wherever they are in a setting."""
    for key, value in setting.items():
        where = (*at, str(key))
        if isinstance(value, Mapping):
            yield from _out_of_bounds(value, where)
        elif isinstance(value, list | tuple):
            numbers = [entry for entry in value if isinstance(entry, int | float)]
            if len(value) > _LONGEST or sum(abs(number) for number in numbers) > _BLOCKS:
                yield where, f"expected at most {_LONGEST} numbers with a sum of at most {_BLOCKS}"
        elif isinstance(value, int | float) and not abs(value) <= _LIMITS.get(key, _LARGEST):
            yield where, f"expected at most {_LIMITS.get(key, _LARGEST):,}, got {value!r}"


def _wrong_setting(choice: Architecture) -> Iterator[tuple[tuple[str, ...], str]]:
    """Arguments that the network's class does not have, of another kind, or missing."""
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
        kind = hints.get(key)
        if key not in parameters and not free:
            yield ("setting", str(key)), str(unknown(f"option of {network}", key, parameters))
        elif kind in _EXPECTED and not _fits(value, kind):
            yield ("setting", str(key)), f"expected {_EXPECTED[kind]}, got {value!r}"
    for key, parameter in parameters.items():
        if parameter.default is parameter.empty and key not in setting:
            yield ("setting", key), f"missing, {network} needs it"


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
