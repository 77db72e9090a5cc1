"""Find the solver, the number of evaluations, the grid and tau that suit a network and some images.

Measures every scheme, tau and grid with at most --budget evaluations on the middle of a few images of an option file's
data, prints the front (settings that no other one with as few evaluations beats), draws it, and writes an option file
with the cheapest setting of the front that is not measurably worse than the best. Without clean images, quality is the
distance to the result of 100 steps of the ODE; then only solvers of the ODE (tau 0) are compared, because those with
noise lead elsewhere. Measurements are kept: another budget or metric starts from them.
"""

import argparse
import logging
import sys
from pathlib import Path

from codes.commands.cli import at_least
from codes.config import OptionsError, load_options
from codes.study.candidates import METRICS


def main(argv: list[str] | None = None) -> int:
    """Tune; 0 if an option file was written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-opt", "--opt", type=Path, required=True, metavar="FILE", help="option file: network and data")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", dest="overrides", help="override options")
    parser.add_argument(
        "--budget", type=at_least(1), default=20, help="largest number of evaluations (default: %(default)s)"
    )
    parser.add_argument("--metric", choices=METRICS, default="lpips", help="measure of quality (default: %(default)s)")
    parser.add_argument("--images", type=at_least(1), default=2, help="images of each task (default: %(default)s)")
    parser.add_argument(
        "--size", type=at_least(32), default=128, help="side of the crops in pixels (default: %(default)s)"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the cost, and stop")
    parser.add_argument("--output", "-o", type=Path, default=Path("options/tuned.yml"), help="default: %(default)s")
    parser.add_argument("--results", type=Path, help="folder of the measurements (default: results/tune-NAME)")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    for name, least in (("budget", 2), ("images", 1), ("size", 32)):
        if getattr(arguments, name) < least:
            parser.error(f"--{name} must be at least {least}, got {getattr(arguments, name)}")
    try:
        options = load_options(arguments.opt, arguments.overrides)

        from codes.study.tuning import tune

        return tune(
            options,
            budget=arguments.budget,
            metric=arguments.metric,
            images=arguments.images,
            size=arguments.size,
            output=arguments.output,
            folder=arguments.results,
            dry_run=arguments.dry_run,
        )
    except OptionsError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
