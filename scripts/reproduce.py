"""python scripts/reproduce.py --table all: the paper's tables next to our own results (see --help)."""

import sys

from launcher import launch

if __name__ == "__main__":
    sys.exit(launch("reproduce"))
