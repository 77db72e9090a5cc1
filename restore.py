"""python restore.py photos/*.jpg -o restored/: restore photos (see --help)."""

import sys

from codes.commands.cli import restore

if __name__ == "__main__":
    sys.exit(restore())
