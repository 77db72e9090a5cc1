"""What tune.py and study.py share: arguments, and a network with images to measure solvers on."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import Options
from .arguments import at_least

if TYPE_CHECKING:
    from ..data.sets import Task
    from ..evaluation.run import Score
    from ..restoration.restorer import Restorer
    from ..runtime.distributed import Process
    from ..study.bench import Bench

METRICS = ("psnr", "ssim", "lpips")


def add_measuring_options(parser: argparse.ArgumentParser, keep: int) -> None:
    """--images, --size, --keep and --dry-run."""
    add = parser.add_argument
    add("--images", type=at_least(1), default=2, metavar="N", help="images of each task (default: %(default)s)")
    add("--size", type=at_least(32), default=128, metavar="PIXELS", help="side of the crops (default: %(default)s)")
    add("--keep", type=at_least(1), default=keep, metavar="N",
        help="settings that reach the next stage of the search, for each network (default: %(default)s)")  # fmt: skip
    add("--dry-run", action="store_true", help="print the cost, and stop")


def make_bench(
    arguments: argparse.Namespace,
    options: Options,
    folder: Path,
    data: Path,
    tasks: "Sequence[Task]",
    restorer: "Restorer",
    score: "Score",
    process: "Process",
) -> "Bench":
    """A restorer with crops of the images, written to `data`. A dry run leaves the folder of measurements untouched."""
    from ..study import bench

    if not arguments.dry_run:
        bench.claim(folder, bench.facts_of(options, arguments.images, arguments.size), process)
    cut = bench.crops(tasks, data, arguments.images, arguments.size, options.seed, process)
    return bench.Bench(folder, cut, restorer, restorer.sde, score, restorer.device, process, options.seed)
