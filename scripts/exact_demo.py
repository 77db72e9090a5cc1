"""python scripts/exact_demo.py: run every solver on a problem with a known solution (see --help)."""

import sys

from launcher import launch

if __name__ == "__main__":
    sys.exit(launch("exact-demo"))
