"""python restore.py photos/*.jpg -o restored/: restore photos (see --help)."""

import sys

from codes.commands.main import launch

if __name__ == "__main__":
    sys.exit(launch("restore"))
