"""python scripts/convert.py IN OUT.safetensors: convert published weights to one file (see --help)."""

import sys

from launcher import launch

if __name__ == "__main__":
    sys.exit(launch("convert"))
