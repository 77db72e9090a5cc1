"""python train.py -opt options/train.yml: train a restoration network (see --help)."""

import sys

from codes.cli import train

if __name__ == "__main__":
    sys.exit(train())
