"""BM3D for colour images."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import bm3d
import numpy as np
from harness import Pixels, Restore, serve
from numpy.typing import NDArray


def make(files: Path, options: Mapping[str, Any]) -> Restore:
    """Remove noise of a known level."""

    def restore(image: Pixels, holes: NDArray[np.bool_]) -> Pixels:
        clean = bm3d.bm3d_rgb(image / 255.0, sigma_psd=options["sigma"] / 255)
        return (np.asarray(clean).clip(0, 1) * 255).round().astype(np.uint8)

    return restore


if __name__ == "__main__":
    serve(make)
