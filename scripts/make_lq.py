"""Degrade clean images: write OUT_DIR/<task>/LQ/NAME.png and OUT_DIR/<task>/GT/NAME.png for each task.

An image's result depends on the seed, the task and the image's name only. Pairs that are there are kept, so run it
again to go on after an interruption.
"""

import argparse
import sys
from pathlib import Path

from codes.commands.cli import at_least
from codes.data.pairs import DataError
from codes.data.synthesis import make_pairs
from codes.names import TASKS
from codes.rows import DEGRADATIONS


def main(argv: list[str] | None = None) -> int:
    """0 if every image came out, 1 if some did not, 2 if nothing could be done, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="example: python scripts/make_lq.py photos/val datasets/val --tasks rainy snowy --size 256",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("gt_dir", type=Path, metavar="GT_DIR", help="folder with clean images (searched below as well)")
    parser.add_argument("out_dir", type=Path, metavar="OUT_DIR", help="folder to write to")
    parser.add_argument(
        "--tasks",
        nargs="+",
        choices=DEGRADATIONS,
        default=list(TASKS),
        metavar="TASK",
        help="; ".join(f"{row.name}: {row.title}" for row in DEGRADATIONS.values()) + " (default: the published)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="another seed gives other degradations (default: %(default)s)"
    )
    parser.add_argument("--max-images", type=at_least(1), metavar="N", help="take the first N images by name")
    parser.add_argument(
        "--size", type=at_least(1), metavar="N", help="take NxN pixels from the middle (default: whole images)"
    )
    parser.add_argument("--overwrite", action="store_true", help="write pairs again that are there")
    options = parser.parse_args(argv)
    try:
        result = make_pairs(
            options.gt_dir,
            options.out_dir,
            options.tasks,
            seed=options.seed,
            max_images=options.max_images,
            size=options.size,
            overwrite=options.overwrite,
        )
    except (DataError, OSError) as error:
        print(f"make_lq: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("make_lq: interrupted; run it again to go on", file=sys.stderr)
        return 130
    for problem in result.problems:
        print(f"make_lq: {problem}", file=sys.stderr)
    kept = f", {result.kept} were there" if result.kept else ""
    print(f"{options.out_dir}: {result.written} pairs written{kept}")
    return 1 if result.problems else 0


if __name__ == "__main__":
    sys.exit(main())
