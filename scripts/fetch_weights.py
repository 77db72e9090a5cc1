"""python scripts/fetch_weights.py: download the weights of LPIPS and FID (see --help)."""

import sys

from launcher import launch

if __name__ == "__main__":
    sys.exit(launch("fetch-weights"))
