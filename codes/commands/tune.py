"""tune.py: find the best solver settings for a network and some images."""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from ..config import load_options
from ..defaults import MOST_EVALUATIONS
from ..runtime.paths import locate
from ..study.candidates import METRICS
from .arguments import add_measuring_options, add_option_file, add_overrides, at_least, new_parser, run

_ABOUT = """\
Find the solver, number of evaluations, grid and tau that suit a network and some images.

Measures every scheme, tau and grid with at most --budget evaluations on centre crops of a few images of the option
file's data. Prints and draws the Pareto front of quality against evaluations, and writes an option file with the
cheapest setting on it that is not measurably worse than the best; --store also keeps it with the weights. Without clean
images, quality is the distance to the result of 100 ODE steps; then only ODE solvers (tau 0) are compared, because
solvers that add noise converge to other images. Measurements are kept: another budget or metric starts from them."""


def build_parser(prog: str) -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = new_parser(prog, _ABOUT)
    add = parser.add_argument
    add_option_file(parser, "option file that names network and data")
    add_overrides(parser, "device=cpu seed=1")
    add(
        "--budget",
        type=at_least(1, MOST_EVALUATIONS),
        default=20,
        metavar="N",
        help="most evaluations to try (default: %(default)s)",
    )
    add("--metric", choices=METRICS, default="lpips", help="measure of quality (default: %(default)s)")
    add_measuring_options(parser)
    add("-o", "--output", type=Path, default=Path("options/tuned.yml"), metavar="FILE",
        help="option file to write (default: %(default)s)")  # fmt: skip
    add("--store", type=Path, metavar="OUT.safetensors",
        help="also write the weights to this new file, with the setting as the solver that they recommend: restore.py, "
        "the web page and the Python interface then use it by default")  # fmt: skip
    add("--results", type=Path, metavar="FOLDER", help="folder for measurements (default: results/tune-NAME)")
    return parser


def main(argv: Sequence[str] | None = None, prog: str = "tune.py") -> int:
    """`python scripts/tune.py -opt FILE`: tune; returns 0 if an option file was written."""
    parser = build_parser(prog)
    arguments = parser.parse_args(argv)
    if arguments.budget < 2:
        parser.error(f"--budget must be at least 2, got {arguments.budget}")
    return run(_tune, arguments, level=logging.WARNING)


def _tune(arguments: argparse.Namespace) -> int:
    options = load_options(locate(arguments.opt), arguments.overrides)
    # The imports below take seconds: mistakes in the file are reported before.
    from ..study.tuning import tune

    return tune(
        options,
        budget=arguments.budget,
        metric=arguments.metric,
        images=arguments.images,
        size=arguments.size,
        output=arguments.output,
        store=arguments.store,
        folder=arguments.results,
        dry_run=arguments.dry_run,
    )
