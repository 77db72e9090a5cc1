"""python scripts/tune.py -opt FILE --budget 20: find the solver for a network and images (see --help)."""

import sys

from launcher import launch

if __name__ == "__main__":
    sys.exit(launch("tune"))
