"""python train.py -opt options/train.yml: train a restoration network (see --help)."""

import os
import sys

# Threads that wait for each other shall sleep: spinning, they take the cores from the processes that read images, and
# beside any other work a step can take ten times as long. Has to be set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from codes.cli import train

if __name__ == "__main__":
    sys.exit(train())
