"""convert.py: convert published weights to one self-describing .safetensors file."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..config import OptionsError, options_for
from ..config.reading import read
from ..names import PREDICTIONS
from ..networks import Architecture, architecture, build
from ..networks.checkpoints import (
    Metadata,
    SDESettings,
    metadata_of,
    published_sde,
    read_checkpoint,
    save_checkpoint,
)
from ..networks.recommended import Recommended
from ..sde import CONVENTIONS, SCHEDULES
from ..solvers import Solver
from .arguments import new_parser

_ABOUT = """\
Convert a weight file to one .safetensors file that also holds architecture and schedule, so that no option file is
needed. Encoders stay files of their own: DA-CLIP's U-Net also needs path.daclip, latent ones path.pretrain_model_L."""

_EXAMPLES = """
examples:
  python scripts/convert.py pretrained/universal-ir.pth pretrained/universal-ir.safetensors
  python scripts/convert.py pretrained/ir-sde-derain.pth ir-sde-derain.safetensors --max-sigma 10
  python scripts/convert.py experiments/mine/models mine.safetensors --opt options/mine.yml

IN may be a .pth, .pt or .safetensors file, or a folder of a training run (its EMA weights are preferred). It is
recognised by its keys. The SDE settings default to those of the published models of that network; IR-SDE's differ from
task to task (max_sigma 10; 30 for inpainting and super-resolution), so they need --max-sigma.
"""


def build_parser(prog: str) -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = new_parser(prog, _ABOUT, _EXAMPLES)
    schedules = [name for name in SCHEDULES if name != "custom"]  # its thetas cannot be given here
    parser.add_argument("input", type=Path, metavar="IN", help="weight file, or folder of a training run")
    parser.add_argument("output", type=Path, metavar="OUT.safetensors")
    parser.add_argument(
        "--opt",
        type=Path,
        metavar="YAML",
        help="option file of a test or a training to take network_G, sde and the prediction from",
    )
    parser.add_argument("--variant", help="architecture, where the keys fit several (ConditionalNAFNet: latent)")
    parser.add_argument("--fit-target", choices=PREDICTIONS, help="what the network predicts (default: noise)")
    parser.add_argument("--max-sigma", type=float, help="stationary standard deviation, 8-bit units")
    parser.add_argument("--T", type=int, help="number of training times (default: 100)")
    parser.add_argument("--schedule", choices=schedules, help="schedule of the SDE (default: cosine)")
    parser.add_argument("--eps", type=float, help="weight of the clean image at time T (default: 0.005)")
    parser.add_argument("--convention", choices=CONVENTIONS, help="default: that of the network's authors")
    parser.add_argument(
        "--recommend", type=Path, metavar="YAML",
        help="option file, such as tune.py writes, whose solver becomes the default for this network",
    )  # fmt: skip
    parser.add_argument("--half", action="store_true", help="store weights as 16-bit floats: half the size")
    parser.add_argument("--overwrite", action="store_true", help="replace OUT if it exists")
    return parser


def main(argv: Sequence[str] | None = None, prog: str = "convert.py") -> int:
    """`python scripts/convert.py IN OUT`: convert; returns the exit code."""
    options = build_parser(prog).parse_args(argv)
    try:
        metadata = convert(options)
    except (OptionsError, OSError, ValueError) as error:
        print(f"convert: {error}", file=sys.stderr)
        return 2
    sde = "" if metadata.sde is None else f", {metadata.sde}"
    print(f"{options.output}: {metadata.architecture}, {metadata.weights} weights of {metadata.source}{sde}")
    print(f"{options.output}: {_use(metadata.architecture)}")
    return 0


def _use(choice: Architecture) -> str:
    """What it takes to use the converted file, and which file it does not contain."""
    if choice.row.role != "restoration":
        key = {"encoder": "path.daclip", "latent": "path.pretrain_model_L"}[choice.row.role]
        return f"give it as {key} beside the network that needs it"
    with torch.device("meta"):
        network = build(choice)
    if getattr(network, "takes_contexts", False):
        return "not enough by itself: DA-CLIP's encoder stays a file of its own, give it as path.daclip"
    if choice.variant == "latent":
        return "not enough by itself: the compressing U-Net stays a file of its own, give it as path.pretrain_model_L"
    return "enough by itself, as path.pretrain_model_G or as restore.py --opt"


def convert(options: argparse.Namespace) -> Metadata:
    """Read, complete the metadata and write; returns them."""
    yml = {} if options.opt is None else _option_file(options.opt)
    checkpoint = read_checkpoint(options.input)
    found = metadata_of(checkpoint)
    choice = _architecture(options, yml, found)
    recorded = found or Metadata(choice, weights=checkpoint.weights, source=str(checkpoint.path))
    metadata = replace(recorded, architecture=choice)
    if choice.row.role == "restoration":
        fit_target = options.fit_target or _fit_target(yml) or recorded.fit_target or "noise"
        metadata = replace(metadata, fit_target=fit_target, sde=_sde(options, yml, metadata))
    if options.recommend is not None:
        advice = replace(metadata.recommended or Recommended(), solver=_solver(options.recommend))
        metadata = replace(metadata, recommended=advice)
    if options.half or options.recommend is not None:
        metadata = replace(metadata, bf16=None)  # measured with other weights, or with another solver
    state = {key: value.half() if options.half else value for key, value in checkpoint.state.items()}
    save_checkpoint(options.output, state, metadata, options.overwrite)
    return metadata


def _fit_target(yml: dict[str, Any]) -> str | None:
    """What a network predicts by its option file: that of a test, or that of its training."""
    trained = (yml.get("train") or {}).get("target")
    named: str | None = (yml.get("sampler") or {}).get("fit_target") or (trained if trained in PREDICTIONS else None)
    return named


def _solver(path: Path) -> Solver:
    """The one solver of an option file."""
    solvers = [Solver(**arguments) for _, arguments in options_for(path).solvers()]
    if len(solvers) != 1:
        raise ValueError(f"{path}: expected one solver to recommend, found {len(solvers)}")
    return solvers[0]


def _option_file(path: Path) -> dict[str, Any]:
    content = read(path, ()).values
    sections = ("network_G", "sde", "sampler", "train")
    odd = next((key for key in sections if not isinstance(content.get(key), dict | None)), None)
    if odd is not None:
        raise ValueError(f"{path}: {odd}: expected keys and values")
    network = content.get("network_G")
    if network is not None and not isinstance(network.get("which_model_G"), str):
        raise ValueError(f"{path}: network_G.which_model_G: expected the name of a network")
    if network is not None and not isinstance(network.get("setting"), dict | None):
        raise ValueError(f"{path}: network_G.setting: expected keys and values")
    return content


def _architecture(options: argparse.Namespace, yml: Mapping[str, Any], found: Metadata | None) -> Architecture:
    network = yml.get("network_G")
    if network is not None:
        name = network.get("which_model_G")  # `read` has moved the other name, which_model
        variant = options.variant or network.get("variant")
        if variant is None and found is not None and found.architecture.which_model_G == name:
            variant = found.architecture.variant  # published files do not name it
        return architecture(name, network.get("setting") or {}, variant)
    if found is None:
        raise ValueError(f"{options.input}: its keys belong to no known network; give --opt with its network_G")
    choice = found.architecture
    return architecture(choice.which_model_G, choice.setting, options.variant or choice.variant)


def _sde(options: argparse.Namespace, yml: Mapping[str, Any], metadata: Metadata) -> SDESettings:
    """The schedule from the arguments, else the option file, else the weight file, else the published models."""
    known = metadata.sde or published_sde(metadata.architecture)
    keys = ("max_sigma", "T", "schedule", "eps", "convention")
    given = {key: value for key in keys if (value := getattr(options, key)) is not None}
    given = {key: value for key, value in (yml.get("sde") or {}).items() if key in keys} | given
    if known is not None:
        return replace(known, **given)
    if "max_sigma" not in given:
        raise ValueError(
            f"{options.input}: IR-SDE networks were trained with different SDEs; give --max-sigma "
            "(10; 30 for inpainting and super-resolution)"
        )
    return SDESettings(**{"convention": "irsde", **given})
