"""python scripts/fetch_weights.py: download the weights and parameters of the metrics (see --help)."""

import sys

from launcher import launch

if __name__ == "__main__":
    sys.exit(launch("fetch-weights"))
