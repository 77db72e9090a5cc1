"""python scripts/calibrate.py CHECKPOINT FOLDER -o OUT: when photos that look clean are left alone (see --help)."""

import sys

from launcher import launch

if __name__ == "__main__":
    sys.exit(launch("calibrate"))
