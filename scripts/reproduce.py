"""python scripts/reproduce.py --table all: the paper's tables, ours beside the published numbers (see --help)."""

import sys

from codes.commands.reproduce import main

if __name__ == "__main__":
    sys.exit(main())
