"""python train.py -opt options/train.yml: train a restoration network (see --help)."""

import sys

from codes.commands.main import launch

if __name__ == "__main__":
    sys.exit(launch("train"))
