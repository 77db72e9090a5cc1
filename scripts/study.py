"""python scripts/study.py: which solver at which number of evaluations (see --help)."""

import sys

from launcher import launch

if __name__ == "__main__":
    sys.exit(launch("study"))
