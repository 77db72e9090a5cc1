"""python train.py -opt options/train.yml: train a restoration network (see --help)."""

import ctypes
import os
import sys

# Threads that wait for each other shall sleep: spinning, they take the cores from the processes that read images, and
# beside any other work a step can take ten times as long. Has to be set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from codes.commands.cli import train


def keep_memory() -> None:
    """Let the C library keep freed memory: a step frees and asks for gigabytes, and fresh pages cost a tenth of it."""
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        if hasattr(library, "mallopt"):
            trim_threshold, mmap_max = -1, -4
            library.mallopt(trim_threshold, 2**31 - 1)
            library.mallopt(mmap_max, 0)


if __name__ == "__main__":
    keep_memory()
    sys.exit(train())
