"""python test.py -opt options/test.yml: evaluate solvers on restoration tasks (see --help)."""

import sys

from codes.commands.main import launch

if __name__ == "__main__":
    sys.exit(launch("test"))
