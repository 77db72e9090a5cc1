"""calibrate.py: measure a network, and record in its checkpoint what follows for its use."""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import OptionsError
from ..runtime.paths import locate
from .arguments import at_least, new_parser, run

if TYPE_CHECKING:
    from ..networks.checkpoints import Metadata
    from ..restoration.restorer import Restorer

_ABOUT = """\
Choose the rule by which photos that look clean are left alone, and write it into the metadata of a checkpoint.

Clean photos, as they are and degraded in the ten ways, are restored at full strength with the solver that the
checkpoint recommends. The rule derives the strength from the recognised probability of no degradation and the size of
the change; it is chosen so that clean photos stay as they are and degraded ones lose nothing. Take photos from the
training set: on those that a network is judged by, the result would look better than it is.

With --bf16 something else is measured and written: what bf16 instead of float32 changes in the restorations of these
photos, degraded in the ten ways. `precision: auto` goes by it. Use the demonstration images, options/demo/GT."""


def build_parser(prog: str) -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = new_parser(prog, _ABOUT)
    add = parser.add_argument
    add("checkpoint", type=Path, metavar="CHECKPOINT", help="a .safetensors file that describes itself")
    add("photos", type=Path, metavar="FOLDER", help="clean photos")
    add("-o", "--output", type=Path, metavar="OUT.safetensors", help="write the checkpoint with the rule to this file")
    add("--images", type=at_least(1), default=40, metavar="N", help="photos to use (default: %(default)s)")
    add("--size", type=at_least(32), default=256, metavar="PIXELS", help="side of the crops (default: %(default)s)")
    add(
        "--seed",
        type=at_least(0, 2**63 - 1),
        default=0,
        metavar="N",
        help="seed of degradations and noise (default: 0)",
    )
    add("--device", default="auto", help="cpu, cuda, cuda:N (default: a GPU if there is one)")
    add("--bf16", action="store_true", help="measure what bf16 changes, instead of choosing a rule")
    add(
        "--check",
        action="store_true",
        help="write nothing: say what the checkpoint's rule, or bf16, does on these photos",
    )
    add("--overwrite", action="store_true", help="replace OUT if it exists; it may be CHECKPOINT itself")
    return parser


def main(argv: Sequence[str] | None = None, prog: str = "calibrate.py") -> int:
    """`python scripts/calibrate.py CHECKPOINT FOLDER -o OUT`: calibrate; returns 0 if the goals are met."""
    parser = build_parser(prog)
    arguments = parser.parse_args(argv)
    if (arguments.output is None) != arguments.check:
        parser.error("give either -o OUT.safetensors or --check")
    if arguments.output is not None and arguments.output.suffix != ".safetensors":
        parser.error(f"-o {arguments.output}: expected a name ending in .safetensors")
    if arguments.output is not None and arguments.output.exists() and not arguments.overwrite:
        parser.error(f"-o {arguments.output}: exists already; --overwrite replaces it")
    return run(_calibrate, arguments, level=logging.WARNING)


def _calibrate(arguments: argparse.Namespace) -> int:
    from ..restoration.loading import load_restorer

    # The rule is chosen in float32: which photos are left alone must not depend on the machine.
    restorer = load_restorer(arguments.checkpoint, arguments.device, ["precision=fp32"])
    if arguments.check and restorer.careful is None and not arguments.bf16:
        raise OptionsError(f"{arguments.checkpoint}: has no rule to check")
    return (_measure_bf16 if arguments.bf16 else _choose_rule)(arguments, restorer, _photos(arguments))


def _photos(arguments: argparse.Namespace) -> list[Path]:
    from ..data.pairs import DataError, find_images

    try:
        paths = list(find_images(arguments.photos).values())
    except DataError as error:
        raise OptionsError(str(error)) from error
    if not paths:
        raise OptionsError(f"{arguments.photos}: no images in this folder")
    return paths[:: max(len(paths) // arguments.images, 1)][: arguments.images]


def _write(arguments: argparse.Namespace, change: Callable[["Metadata"], "Metadata"]) -> None:
    """Write the checkpoint with other metadata."""
    from ..networks.checkpoints import CheckpointError, metadata_of, read_checkpoint, save_checkpoint

    try:
        checkpoint = read_checkpoint(locate(arguments.checkpoint))
        metadata = metadata_of(checkpoint)
        assert metadata is not None  # the restorer was made with it
        save_checkpoint(arguments.output, checkpoint.state, change(metadata), arguments.overwrite)
    except (CheckpointError, OSError) as error:
        raise OptionsError(str(error)) from error
    print(f"written to {arguments.output}")


def _measure_bf16(arguments: argparse.Namespace, restorer: "Restorer", paths: list[Path]) -> int:
    from tqdm import tqdm

    from ..data.images import ImageError
    from ..metrics import LPIPS, MissingWeights
    from ..names import TASKS
    from ..networks.auto_precision import MOST_LPIPS, MOST_PSNR
    from ..networks.predictor import resolve_precision
    from ..restoration import calibration

    try:
        resolve_precision("bf16", restorer.device)
        lpips = LPIPS()
        with tqdm(total=len(paths) * len(TASKS), unit="image", disable=None) as bar:
            photos = calibration.photos_for(paths, arguments.size)
            changes = calibration.bf16_changes(restorer, photos, lpips, arguments.seed, bar.update)
    except (ImageError, MissingWeights, ValueError) as error:
        raise OptionsError(str(error)) from error
    for task, change in changes.items():
        print(f"{task:16} {change}")
    mean = calibration.mean_change(list(changes.values()))
    print(f"{'mean':16} {mean} on {len(paths)} photos, bf16 against float32")
    if not arguments.check:
        _write(arguments, lambda metadata: replace(metadata, bf16=mean))
    if not mean.small:
        print(
            f"bf16 changes too much: `precision: auto` allows {MOST_PSNR} dB PSNR and {MOST_LPIPS} LPIPS",
            file=sys.stderr,
        )
    return 0 if mean.small else 1


def _choose_rule(arguments: argparse.Namespace, restorer: "Restorer", paths: list[Path]) -> int:
    from tqdm import tqdm

    from ..data.images import ImageError
    from ..names import TASKS
    from ..networks.recommended import Recommended
    from ..restoration import calibration

    try:
        with tqdm(total=len(paths) * (2 * len(TASKS) + 1), unit="image", disable=None) as bar:
            photos = calibration.photos_for(paths, arguments.size)
            trials = calibration.measure(restorer, photos, arguments.seed, bar.update)
    except ImageError as error:
        raise OptionsError(str(error)) from error
    if arguments.check:
        assert restorer.careful is not None
        rule, found = restorer.careful, calibration.outcome(restorer.careful, trials)
    else:
        rule, found = calibration.choose(trials)
    print(f"{rule} on {len(paths)} photos: {found}")
    if not arguments.check:

        def changed(metadata: "Metadata") -> "Metadata":
            # What bf16 changes was measured with another rule.
            advice = replace(metadata.recommended or Recommended(), careful=rule)
            return replace(metadata, recommended=advice, bf16=None)

        _write(arguments, changed)
    if not found.good:
        share, lost = 100 * calibration.SHARE, calibration.MOST_LOST
        print(f"the goals are not met: {share:.0f} % of the clean photos, {-lost:+.1f} dB on tasks", file=sys.stderr)
    return 0 if found.good else 1
