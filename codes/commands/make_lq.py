"""make_lq.py: degrade clean images in the ten published ways."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..data.pairs import DataError
from ..data.synthesis import make_pairs
from ..names import TASKS
from ..rows import DEGRADATIONS
from .arguments import at_least, new_parser

_ABOUT = """\
Degrade clean images: write OUT_DIR/<task>/LQ/NAME.png and OUT_DIR/<task>/GT/NAME.png for each task.

An image's result depends only on the seed, the task and the image's name. Existing pairs are kept, so the same command
resumes after an interruption."""

_EXAMPLE = "example: python scripts/make_lq.py photos/val datasets/val --tasks rainy snowy --size 256"


def build_parser(prog: str) -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = new_parser(prog, _ABOUT, _EXAMPLE)
    parser.add_argument("gt_dir", type=Path, metavar="GT_DIR", help="folder with clean images (subfolders included)")
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
    parser.add_argument("--overwrite", action="store_true", help="replace existing pairs")
    return parser


def main(argv: Sequence[str] | None = None, prog: str = "make_lq.py") -> int:
    """`python scripts/make_lq.py GT_DIR OUT_DIR`: degrade images.

    Returns 0 if every image was written, 1 if some were not, 2 if nothing could be done, 130 after Ctrl-C.
    """
    options = build_parser(prog).parse_args(argv)
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
        print("make_lq: interrupted; run the same command again to resume", file=sys.stderr)
        return 130
    for problem in result.problems:
        print(f"make_lq: {problem}", file=sys.stderr)
    kept = f", {result.kept} were there" if result.kept else ""
    print(f"{options.out_dir}: {result.written} pairs written{kept}")
    return 1 if result.problems else 0
