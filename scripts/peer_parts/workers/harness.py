"""What the programs of this folder share: images in, restored images out, seconds of processor time.

They run in environments of their own, so they import nothing of this project; Pillow and numpy are in each of them.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]  # (H, W, 3)
Restore = Callable[[Pixels, NDArray[np.bool_]], Pixels]  # of an image and its holes, which most ignore


def serve(make: Callable[[Path, Mapping[str, Any]], Restore]) -> None:
    """Do the job in the file that the command line names; `make(files, options)` loads the method."""
    job = json.loads(Path(sys.argv[1]).read_text())
    restore = make(Path(job["files"]), job["options"])
    for item in job["items"]:
        print(json.dumps({"name": item["name"], "seconds": restored(restore, item)}), flush=True)


def restored(restore: Restore, item: Mapping[str, Any]) -> float:
    """Restore one file; returns the seconds of processor time, of all threads, of the second of two calls.

    The first call is on a part of the image and warms up.
    """
    image = np.asarray(Image.open(item["input"]).convert("RGB"))
    holes = np.zeros(image.shape[:2], bool)
    if item["mask"]:
        holes = np.asarray(Image.open(item["mask"]).convert("L")) > 127
    restore(image[:64, :64], holes[:64, :64])
    start = time.process_time()
    result = restore(image, holes)
    seconds = time.process_time() - start
    if result.shape != image.shape or result.dtype != np.uint8:
        raise ValueError(f"{item['name']}: the result is {result.shape} {result.dtype}, not {image.shape} uint8")
    part = Path(item["output"]).with_suffix(".part")
    Image.fromarray(result).save(part, format="png")
    part.replace(item["output"])
    return seconds
