"""Run every solver on an exactly solvable problem, print its errors and draw its paths."""

import argparse
import sys
from pathlib import Path

import torch

from codes.study.demo import run


def main(argv: list[str] | None = None) -> int:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("results/exact-demo"), help="folder (default: %(default)s)"
    )
    options = parser.parse_args(argv)
    torch.set_num_threads(1)  # the problem is tiny: more threads only wait for each other
    run(options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
