"""describe: show what a checkpoint holds, or what is wrong with a photo."""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .arguments import add_option_file, new_parser, run

if TYPE_CHECKING:
    from ..restoration.restorer import Restorer

_ABOUT = """\
Describe weights: network, what it predicts, schedule, recommended solver. Describe photos: the degradations that the
network (or DA-CLIP, where the option file names it) recognises, with their probabilities."""

_EXIT = "exit code: 0 all described, 1 some files cannot be read or nothing recognises photos, 2 bad options."


def build_parser(prog: str) -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = new_parser(prog, _ABOUT, _EXIT)
    parser.add_argument("files", nargs="+", metavar="FILE", help="weights (.safetensors, .pth, .pt), or photos")
    add_option_file(parser, "what recognises photos: an option file, or a .safetensors checkpoint", "options/test.yml")
    return parser


def main(argv: Sequence[str] | None = None, prog: str = "mr-sampler describe") -> int:
    """`mr-sampler describe FILE...`: describe weights and photos; returns the exit code."""
    return run(_describe, build_parser(prog).parse_args(argv), level=logging.WARNING)


def _describe(arguments: argparse.Namespace) -> int:
    from ..data.images import ImageError, read_image
    from ..networks.checkpoints import CheckpointError
    from ..networks.weight_files import SUFFIXES
    from ..restoration.loading import load_restorer
    from ..restoration.photos import described

    restorer: Restorer | None = None
    failed = False
    for name in arguments.files:
        try:
            if Path(name).suffix in SUFFIXES:
                print(about_weights(Path(name)))
                continue
            image = read_image(name)
            restorer = restorer or load_restorer(arguments.opt, "cpu")
            recognised = restorer.recognise(image)
            if recognised is None:
                raise ImageError(f"{name}: the network of {arguments.opt} does not recognise degradations")
            print(f"{name}: {described(recognised)}")
        except (CheckpointError, ImageError, OSError) as error:
            print(error, file=sys.stderr)
            failed = True
    return 1 if failed else 0


def about_weights(file: Path) -> str:
    """What is known about a weight file, in a few lines."""
    from ..networks.checkpoints import CheckpointError, metadata_of, read_checkpoint
    from ..networks.recommended import given

    checkpoint = read_checkpoint(file)
    found = metadata_of(checkpoint)
    if found is None:
        raise CheckpointError(f"{file}: its keys belong to no known network")
    count = sum(tensor.numel() for tensor in checkpoint.state.values())
    size = f"  {count:,} numbers in {len(checkpoint.state)} tensors, {found.weights} weights"
    lines = [f"{file}: {found.architecture}", size]
    if found.architecture.row.role == "restoration":
        lines.append(f"  predicts: {found.fit_target or 'not recorded'}")
        lines.append(f"  schedule: {found.sde or found.architecture.row.sde or 'not recorded'}")
    if found.recommended is not None and found.recommended.solver is not None:
        solver = ", ".join(f"{key} {value}" for key, value in given(found.recommended.solver).items())
        lines.append(f"  recommended: {solver}")
    return "\n".join(lines)
