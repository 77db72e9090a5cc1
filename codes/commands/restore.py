"""restore.py: restore photos into a folder."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import OptionsError, options_for
from ..defaults import LARGEST_SEED, MOST_EVALUATIONS, MOST_SAMPLES, NFE, WEIGHTS
from ..runtime.paths import locate
from .arguments import add_option_file, at_least, filled, named, new_parser, run, share, tile, workers

if TYPE_CHECKING:
    from ..restoration.restorer import Restorer

_ABOUT = """\
Restore photos into a folder, under their own names, with their metadata and transparency.
Photos are files, folders (with all folders below) or quoted patterns ('photos/**/*.jpg'); '-' reads an image from stdin
and writes the result to stdout. Existing files are not overwritten without --overwrite; finished photos are skipped, so
the same command resumes after an interruption. restored.jsonl in the folder records how each result was made."""

_FILES = """\
results for a photo a.jpg:
                 a.jpg              the restoration
  --samples K    a.sample-2.jpg...  more, with the seeds after SEED; and a.mean.jpg, the mean
  --uncertainty  a.uncertainty.png  where they differ: black not at all, white a fifth or more
  --compare      a.compare.png      before and after; with --samples also mean and uncertainty

exit code: 0 every photo has its result, 1 some were left out, 2 bad options, 130 interrupted."""


def build_parser(prog: str) -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = new_parser(prog, _ABOUT, _FILES)
    add = parser.add_argument
    add("photos", nargs="+", type=filled, metavar="PHOTO", help="file, folder, pattern, or - for stdin to stdout")
    add("-o", "--output", type=named, metavar="FOLDER", help="folder for the results (default: restored)")
    add_option_file(parser, "checkpoint or option file", WEIGHTS)
    add("--nfe", type=at_least(1, MOST_EVALUATIONS), metavar="N",
        help="network evaluations (default: the option file's, else what the checkpoint recommends, "
        f"else {NFE})")  # fmt: skip
    add("--algorithm", metavar="NAME", help="solver (default: as for --nfe)")
    # The other samples have the seeds after it.
    add("--seed", type=at_least(0, LARGEST_SEED - MOST_SAMPLES), default=0, metavar="N",
        help="seed of the noise, for every photo (default: 0)")  # fmt: skip
    add("--samples", type=at_least(1, MOST_SAMPLES), metavar="K", help="draw K restorations of each photo")
    add("--uncertainty", action="store_true", help="write where samples differ; draws 4 unless --samples is given")
    add("--compare", action="store_true", help="write before and after side by side")
    add("--strength", type=share, metavar="S",
        help="from 0 (the photo as it is) to 1 (the whole restoration); default: the network's own rule, which leaves "
        "clean photos alone, else 1")  # fmt: skip
    add("--describe", action="store_true", help="print the degradations that are recognised, with probabilities")
    add("--tile", type=tile, metavar="SIDE", help="restore in overlapping tiles of this side; or auto, off")
    add("--precision", choices=("auto", "fp32", "bf16", "fp16"), metavar="P",
        help="auto, fp32, bf16, fp16 (default: the option file's, else auto: bf16 where processor and network "
        "suit)")  # fmt: skip
    add("--device", default="auto", help="cpu, cuda, cuda:N (default: the option file's, else a GPU if there is one)")
    add("--workers", type=workers, metavar="N",
        help="processes that restore photos at the same time (default: auto, one for each core of a CPU if there is "
        "enough to do and enough memory)")  # fmt: skip
    add("--overwrite", action="store_true", help="replace existing results")
    return parser


def main(argv: Sequence[str] | None = None, prog: str = "restore.py") -> int:
    """`python restore.py PHOTO... [-o FOLDER]`: restore files; returns the exit code."""
    parser = build_parser(prog)
    arguments = parser.parse_args(argv)
    only = [name for name in ("output", "samples", "uncertainty", "compare") if getattr(arguments, name)]
    if "-" in arguments.photos and (len(arguments.photos) > 1 or only):
        parser.error("-: goes from stdin to stdout alone" + (f", without --{only[0]}" if only else ""))
    if "-" not in arguments.photos and arguments.output is None:
        arguments.output = Path("restored")
    if arguments.uncertainty and arguments.samples == 1:
        parser.error("--uncertainty: one sample has none, give --samples 2 or more")
    return run(_restore, arguments)


def _restore(arguments: argparse.Namespace) -> int:
    overrides = [f"precision={arguments.precision}"] if arguments.precision else []
    options = options_for(locate(arguments.opt), overrides)
    if arguments.output is not None and arguments.output.exists() and not arguments.output.is_dir():
        raise OptionsError(f"-o {arguments.output}: is a file, expected a folder")
    if arguments.photos == ["-"]:
        for stream, name in ((sys.stdin, "standard input"), (sys.stdout, "standard output")):
            if stream is None:
                raise OptionsError(f"-: {name} is closed")
    # The imports below take seconds: mistakes in the file are reported before.
    from ..data.images import ImageError
    from ..networks.checkpoints import find_file
    from ..restoration import photos
    from ..restoration.loading import restorer_of
    from ..restoration.photo_results import RestoreSettings
    from ..runtime.device import memory_budget

    restorer = restorer_of(options, arguments.device)
    samples = arguments.samples or (4 if arguments.uncertainty else 1)
    extras = {key: getattr(arguments, key) for key in ("uncertainty", "compare", "overwrite", "describe")}
    chosen = {key: getattr(arguments, key) for key in ("nfe", "algorithm", "seed", "tile", "strength")}
    settings = RestoreSettings(samples=samples, **chosen, **extras)
    try:
        restorer.plan(settings.algorithm, settings.nfe)  # reports a bad solver before any photo is read
    except ValueError as error:
        raise OptionsError(str(error)) from error
    try:
        if arguments.photos == ["-"]:
            photos.pipe(restorer, sys.stdin.buffer, sys.stdout.buffer, settings)
            return 0
        weights = find_file(locate(options.path.pretrain_model_G or ""))
        if restorer.device.type == "cpu":
            # What is free now decides on tiles: while others restore it is less, which would change results.
            restorer = replace(restorer, memory=memory_budget(restorer.device))
        load = partial(_load, arguments.opt, arguments.device, overrides, restorer.memory)
        chosen = {"workers": arguments.workers, "load": load}
        return photos.run(restorer, arguments.photos, arguments.output, settings, weights, **chosen).exit_code
    except ImageError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _load(opt: Path, device: str, overrides: Sequence[str], memory: float | None) -> "Restorer":
    """The restorer of another process."""
    from ..restoration.loading import restorer_of

    return replace(restorer_of(options_for(locate(opt), overrides), device), memory=memory)
