"""python app.py [--opt FILE] [--port 7860]: restore images in the browser (see --help)."""

import sys

from codes.commands.main import launch

if __name__ == "__main__":
    sys.exit(launch("app"))
