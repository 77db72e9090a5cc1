"""python scripts/prepare_photos.py: download photographs to train and validate on (see --help)."""

import sys

from launcher import launch

if __name__ == "__main__":
    sys.exit(launch("prepare-photos"))
