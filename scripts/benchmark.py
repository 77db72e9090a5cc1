"""Measure speed, as ratios within one run."""

import argparse
import json
import sys

import torch

from codes.benchmarks import solvers


def main(argv: list[str] | None = None) -> int:
    """Print the benchmarks that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--solvers", action="store_true", help="arithmetic of one sampling step, without a network")
    parser.add_argument("--size", type=int, default=256, help="image side (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=1, help="images per batch (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=200, help="timed repetitions (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(argv)
    if not options.solvers:
        parser.error("nothing to do: name a benchmark, e.g. --solvers")
    seconds = solvers.run(options.size, options.batch, options.repeats)
    if options.json:
        print(json.dumps({"solvers": seconds, "size": options.size, "batch": options.batch}))
        return 0
    shape = f"{options.batch}x3x{options.size}x{options.size}"
    print(f"one second-order step on {shape}, float32, {torch.get_num_threads()} threads, median:")
    for name, value in seconds.items():
        print(f"  {name:32}{1e6 * value:9.0f} us   {value / seconds['plan']:5.1f} x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
