"""Option files: the only code that reads option YAML. Imports no torch, so that mistakes are reported at once."""

from ..names import OptionsError
from .build import build_sde, build_solvers, check_against_checkpoint, check_context_dim
from .dataset_options import DatasetOptions, PairingRule
from .errors import gathered
from .loading import check_settings, difference, load_options, options_for, resolved
from .reference import schema_markdown
from .schema import Options
from .stages import load_stages
from .sweep import second_label, stem_of, title_of

__all__ = [
    "DatasetOptions",
    "Options",
    "OptionsError",
    "PairingRule",
    "build_sde",
    "build_solvers",
    "check_against_checkpoint",
    "check_context_dim",
    "check_settings",
    "difference",
    "gathered",
    "load_options",
    "load_stages",
    "options_for",
    "resolved",
    "schema_markdown",
    "second_label",
    "stem_of",
    "title_of",
]
