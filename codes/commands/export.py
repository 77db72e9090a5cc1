"""export: write network and solver as one ONNX or OpenVINO graph."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..config import OptionsError
from ..defaults import WEIGHTS
from .arguments import add_option_file, add_overrides, at_least, new_parser, run

_ABOUT = """\
Write the restoration as one graph for ONNX Runtime or OpenVINO: a few evaluations of the network, unrolled.
Inputs are the image (1, 3, H, W) in [0, 1] and standard normal noise, the output is the restored image at full
strength. Height and width are free, in multiples of 8. Beside an ONNX file goes a short Python
program that runs it with onnxruntime alone."""

_EXIT = "exit code: 0 written, 2 bad options, or a network that cannot be exported."


def build_parser(prog: str) -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = new_parser(prog, _ABOUT, _EXIT)
    add = parser.add_argument
    add_option_file(parser, "checkpoint or option file", WEIGHTS)
    add_overrides(parser, "sampler.time_schedule=sinh")
    add("--nfe", type=at_least(1), default=2, metavar="N", help="network evaluations in the graph (default: 2)")
    add("--algorithm", metavar="NAME", help="solver (default: the option file's, else the checkpoint's)")
    add("--format", choices=["onnx", "openvino"], default="onnx", help="default: onnx")
    add("-o", "--output", type=Path, metavar="FILE", help="default: restore-NFE.onnx, for OpenVINO .xml and .bin")
    add("--overwrite", action="store_true", help="replace existing files")
    return parser


def main(argv: Sequence[str] | None = None, prog: str = "mr-sampler export") -> int:
    """`mr-sampler export`: write a graph; returns the exit code."""
    return run(_export, build_parser(prog).parse_args(argv))


def _export(arguments: argparse.Namespace) -> int:
    from ..integrations.export import SUFFIXES, ExportError, example_file, export
    from ..restoration.loading import load_restorer

    suffix = SUFFIXES[arguments.format]
    file: Path = arguments.output or Path(f"restore-{arguments.nfe}{suffix}")
    if file.suffix != suffix:
        raise OptionsError(f"-o {file}: expected a name ending in {suffix}")
    beside = example_file(file) if suffix == ".onnx" else file.with_suffix(".bin")
    for path in (file, beside):
        if path.exists() and not arguments.overwrite:
            raise OptionsError(f"{path}: exists already; --overwrite replaces it")
    restorer = load_restorer(arguments.opt, "cpu", [*arguments.overrides, "precision=fp32"])  # as the graph's
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        made = export(restorer, file, arguments.format, nfe=arguments.nfe, algorithm=arguments.algorithm)
    except (ExportError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    count = "1 evaluation" if made.plan.nfe == 1 else f"{made.plan.nfe} evaluations"
    print(f"{file}: {count}, {made.draws} draws of noise; beside it {beside.name}")
    return 0
