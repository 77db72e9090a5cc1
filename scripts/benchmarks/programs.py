"""Whole programs from start to end, for large images, folders and beside others: time, processor time, memory.

Times on the clock mean something on an idle machine only; processor time and memory mean something on any.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from codes.data.images import read_image, save_image, to_uint8
from codes.data.resizing import scaled
from codes.defaults import WEIGHTS
from codes.evaluation.tables import plain
from codes.restoration.loading import load_restorer
from codes.restoration.tiling import extra_work
from codes.runtime.paths import PROJECT

MEGAPIXELS = (0.25, 1.0, 4.0, 8.0, 12.0)
_BUSY = "while True: pass"


@dataclass(frozen=True)
class Usage:
    """What a program took: seconds on the clock and of processors, and its largest memory in bytes."""

    seconds: float
    processor: float
    memory: int


def measured(command: Sequence[str], **variables: str) -> Usage:
    """Run a Python program of the project to its end; raises if it fails."""
    start = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, *command], cwd=PROJECT, env=os.environ | variables, stdout=errors, stderr=errors
        )
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            raise RuntimeError(f"{' '.join(command)} failed: {errors.read().decode()[-500:]}")
    return Usage(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def photo(height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    """A photograph of some size: an example of the project, mirrored as often as needed, with noise."""
    image = to_uint8(read_image(PROJECT / "options" / "demo" / "GT" / "chelsea.png"))
    image = np.pad(image, ((0, max(height - len(image), 0)), (0, max(width - image.shape[1], 0)), (0, 0)), "reflect")
    noise = np.random.default_rng(seed).normal(0, 20, (height, width, 3))
    return np.clip(image[:height, :width] + noise, 0, 255).astype(np.uint8)


# ---- large images


def large(megapixels: Sequence[float] = MEGAPIXELS) -> dict[str, Any]:
    """Restore noisy photos of several sizes with the default settings.

    exponent     of the processor time as a power of the pixels, without the start of the program
    extra_work   share of pixels that are computed more than once because tiles overlap
    """
    restorer = load_restorer(WEIGHTS, "cpu")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def usage(height: int, width: int) -> Usage:
            save_image(photo(height, width), folder / f"{height}.png")
            return measured(["restore.py", str(folder / f"{height}.png"), "-o", str(folder / "out"), "--workers", "1"])

        start = usage(64, 64)
        for size in megapixels:
            height = round(math.sqrt(size * 1e6 * 3 / 4))
            width = round(height * 4 / 3)
            used = usage(height, width)
            tile = restorer.tile_for(torch.empty(1, 3, 1, 1).expand(1, 3, height, width))
            rows.append({
                "megapixels": height * width / 1e6, "processor_seconds": used.processor - start.processor,
                "seconds": used.seconds, "memory": used.memory, "tile": tile,
                "extra_work": extra_work(height, width, tile),
            })  # fmt: skip
    sizes, times = ([math.log(row[key]) for row in rows] for key in ("megapixels", "processor_seconds"))
    exponent = float(np.polyfit(sizes, times, 1)[0]) if len(rows) > 1 else math.nan
    return {"exponent": exponent, "start_seconds": start.processor, "rows": rows}


def large_table(found: dict[str, Any]) -> str:
    """The results of `large` as text."""
    lines = []
    for row in found["rows"]:
        seconds, size = row["processor_seconds"], row["megapixels"]
        numbers = [f"{number:.2f}" for number in (size, seconds, seconds / size, row["memory"] / 1e9)]
        lines.append([*numbers, str(row["tile"] or "off"), f"{100 * row['extra_work']:.0f} %"])
    header = ["megapixels", "processor s", "s per megapixel", "memory GB", "tile", "extra work"]
    return f"{plain(header, lines, 'r')}\nprocessor time grows with pixels to the power of {found['exponent']:.3f}"


# ---- many images


def folder(photos: int = 50, repeats: int = 3) -> dict[str, Any]:
    """Restore photos of mixed sizes with one process and with one for each core, in turns; best of several."""
    rng = np.random.default_rng(0)
    found: dict[str, list[Usage]] = {"1": [], "auto": []}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for i in range(photos):
            height, width = (int(side) for side in rng.integers(160, 900, 2))
            save_image(photo(height, width, i), place / "photos" / f"{i}.png")
        for repeat in range(repeats):
            for workers, used in found.items():
                output = place / f"{workers}-{repeat}"
                used.append(measured(["restore.py", str(place / "photos"), "-o", str(output), "--workers", workers]))
        pairs = [(place / "1-0" / f"{i}.png", place / "auto-0" / f"{i}.png") for i in range(photos)]
        same = sum(one.read_bytes() == other.read_bytes() for one, other in pairs)
    best = {key: min(one.seconds for one in used) for key, used in found.items()}
    processor = {key: min(one.processor for one in used) for key, used in found.items()}
    return {
        "photos": photos, "seconds": best, "processor_seconds": processor, "throughput": best["1"] / best["auto"],
        "equal_files": same,
    }  # fmt: skip


# ---- start


def start(repeats: int = 5) -> dict[str, dict[str, float]]:
    """From start to end: the help, and the restoration of one photo of 256x256 pixels; best of several."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        save_image(photo(256, 256), place / "photo.png")
        found: dict[str, list[Usage]] = {"--help": [], "restore": []}
        for repeat in range(repeats):
            found["--help"].append(measured(["-m", "codes.commands.main", "--help"]))
            output = str(place / f"out-{repeat}")
            found["restore"].append(measured(["restore.py", str(place / "photo.png"), "-o", output]))
    return {
        key: {"seconds": min(one.seconds for one in used), "processor_seconds": min(one.processor for one in used)}
        for key, used in found.items()
    }


# ---- beside other work


@contextmanager
def busy() -> Iterator[None]:
    """Another program that uses one core all the time."""
    process = subprocess.Popen([sys.executable, "-c", _BUSY])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def programs(place: Path) -> dict[str, list[str]]:
    """A short run of each program that computes with a network, as a command without the folder for its results."""
    for i, side in enumerate((512, 640, 768)):
        image = photo(side, side, i)
        save_image(image, place / "photos" / f"{i}.png")
        save_image(scaled(image, 0.5), place / "small" / f"{i}.png")
    common = {"device": "cpu", "sde": {"convention": "daclip"}, "sampler": {"num_sample_steps": 2}}
    weights = {"pretrain_model_G": str(PROJECT / "pretrained" / "mr-universal.safetensors")}
    data = {"mode": "GT", "dataroot_GT": str(place / "small"), "degradation": ["noisy"]}
    test = common | {"path": weights, "datasets": {"val": data}, "metrics": {"names": ["psnr"]}}
    training = data | {"batch_size": 4, "patch_size": 128, "n_workers": 1}
    steps = {"niter": 8, "target": "velocity"}
    train = common | {"path": weights, "datasets": {"train": training}, "train": steps}
    for name, options in (("test", test), ("train", train)):
        (place / f"{name}.yml").write_text(json.dumps({"name": name} | options))  # JSON is YAML
    return {
        "restore": ["restore.py", str(place / "photos"), "--workers", "1", "-o"],
        "test": ["test.py", "-opt", str(place / "test.yml"), "--set"],
        "train": ["train.py", "-opt", str(place / "train.yml"), "--set"],
    }


def beside(repeats: int = 3) -> dict[str, dict[str, float]]:
    """How much longer programs take beside one that uses a core all the time; in turns, best of several.

    The page and `reproduce` start in the same way, with the same threads, and restore as `restore` and `test` do.
    """
    result: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        for program, command in programs(place).items():
            times: dict[str, list[float]] = {"alone": [], "beside": []}
            for repeat in range(repeats):
                for kind, seconds in times.items():
                    output = str(place / f"{program}-{kind}-{repeat}")
                    last = output if program == "restore" else f"results={output}"
                    if kind == "alone":
                        seconds.append(measured([*command, last]).seconds)
                    else:
                        with busy():
                            seconds.append(measured([*command, last]).seconds)
            best = {kind: min(seconds) for kind, seconds in times.items()}
            result[program] = best | {"ratio": best["beside"] / best["alone"]}
    return result
