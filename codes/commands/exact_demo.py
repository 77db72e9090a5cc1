"""exact_demo.py: run every solver on a problem whose solution is known."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from .arguments import new_parser

_ABOUT = "Run every solver on an exactly solvable problem, print the errors and draw the trajectories."


def build_parser(prog: str) -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = new_parser(prog, _ABOUT)
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("results/exact-demo"), help="folder (default: %(default)s)"
    )
    return parser


def main(argv: Sequence[str] | None = None, prog: str = "exact_demo.py") -> int:
    """`python scripts/exact_demo.py`: write tables and picture; returns the exit code."""
    options = build_parser(prog).parse_args(argv)
    import torch

    from ..study.demo import run

    torch.set_num_threads(1)  # the problem is tiny: more threads would only wait for each other
    run(options.output)
    return 0
