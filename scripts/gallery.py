"""Draw the README's first picture: the ten examples of the web page, degraded above, restored below."""

import argparse
import sys
import tempfile
from pathlib import Path

from launcher import start


def main(argv: list[str] | None = None) -> int:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, nargs="?", default=Path("docs/images/restored.png"))
    parser.add_argument(
        "--opt", default="pretrained/mr-universal.safetensors", help="option file or weights (default: %(default)s)"
    )
    parser.add_argument("--cell", type=int, default=160, help="side of an image in pixels (default: %(default)s)")
    options = parser.parse_args(argv)
    import numpy as np

    from codes import load_restorer, read_image, save_image
    from codes.app.examples import make_examples
    from codes.data.contact_sheet import contact_sheet
    from codes.data.images import to_uint8

    restorer = load_restorer(options.opt)
    halves = []
    with tempfile.TemporaryDirectory() as folder:
        examples = make_examples(Path(folder))
        for half in (examples[:5], examples[5:]):
            degraded = [read_image(example.degraded) for example in half]
            rows = [[to_uint8(image) for image in degraded], [to_uint8(restorer(image)) for image in degraded]]
            headings = [example.task for example in half]
            halves.append(contact_sheet(headings, rows, [[""] * len(half)] * 2, options.cell))
    save_image(np.vstack(halves), options.output)
    print(options.output)
    return 0


if __name__ == "__main__":
    sys.exit(start(main))
