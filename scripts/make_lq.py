"""python scripts/make_lq.py GT_DIR OUT_DIR: degrade clean images (see --help)."""

import sys

from launcher import launch

if __name__ == "__main__":
    sys.exit(launch("make-lq"))
