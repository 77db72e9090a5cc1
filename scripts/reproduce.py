"""python scripts/reproduce.py --table all: the paper's tables, ours beside the published numbers (see --help)."""

import sys

from codes.reproduce.command import main

if __name__ == "__main__":
    sys.exit(main())
