"""Run every solver on an exactly solvable problem, print its errors and draw its paths."""

import argparse
import sys
from pathlib import Path

from codes.demo import run


def main(argv: list[str] | None = None) -> int:
    """Write to results/demo unless told otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("results/demo"), help="folder (default: %(default)s)")
    run(parser.parse_args(argv).output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
