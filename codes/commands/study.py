"""study.py: compare solvers, grids and numbers of evaluations on trained and synthetic networks."""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from ..config import OptionsError, load_options
from ..names import check_choice
from ..runtime.paths import locate
from ..study import report
from ..study.candidates import GRIDS, combinations
from .arguments import add_measuring_options, add_option_file, add_overrides, at_least, new_parser, run

_ABOUT = """\
Measure which solver is best with how many evaluations: for trained networks on all tasks, and for synthetic ones
whose error is known.

Measures order 1, order 2 and pc with tau 0, 0.3 and 1, clamped, on the uniform lambda grid and the grid late; with
--all on every grid. Prints the cost first. Started again, it resumes where it stopped; several processes share the
work:
  torchrun --nproc_per_node=2 scripts/study.py
Writes study.md, study.csv, study.png and study.svg to the output folder, next to the records; with --document also
the part of a page between its two marks, and the figure beside it."""

MODELS = ("pretrained/mr-universal.safetensors",)
SYNTHETIC = ("fields", "fields-white", "patches", "patches-white", "patches-brightness", "patches-late")
NFES = (1, 2, 3, 5, 8, 10, 20)


def build_parser(prog: str) -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = new_parser(prog, _ABOUT)
    add = parser.add_argument
    add("--model", nargs="+", metavar="FILE", help=f"weights (default: {' '.join(MODELS)})")
    add("--synthetic", nargs="*", default=list(SYNTHETIC), metavar="NAME",
        help=f"synthetic networks (default: {' '.join(SYNTHETIC)})")  # fmt: skip
    add("--nfe", type=at_least(1, 10_000), nargs="+", default=list(NFES), metavar="N",
        help=f"numbers of evaluations (default: {' '.join(map(str, NFES))})")  # fmt: skip
    add("--all", action="store_true", help="every grid, not the uniform lambda grid and late only")
    add_measuring_options(parser)
    add("--render-only", action="store_true", help="write tables and figure from stored measurements")
    add("--document", type=Path, metavar="FILE", help="page to renew, such as docs/solvers.md")
    add_option_file(parser, "option file that names the data", "options/study.yml")
    add_overrides(parser, "device=cpu seed=1")
    add("-o", "--output", type=Path, default=Path("results/study"), metavar="FOLDER",
        help="folder (default: %(default)s)")  # fmt: skip
    return parser


def main(argv: Sequence[str] | None = None, prog: str = "study.py") -> int:
    """`python scripts/study.py`: measure and render; returns 0 if the study is complete."""
    arguments = build_parser(prog).parse_args(argv)
    return run(_study, arguments, level=logging.WARNING, bad_input=(OptionsError, ValueError))


def _study(arguments: argparse.Namespace) -> int:
    for name in arguments.synthetic:
        check_choice("--synthetic", name, SYNTHETIC)
    if arguments.document is not None:
        report.check_document(arguments.document)
    if arguments.render_only:
        report.render(arguments.output, arguments.document)
        return 0
    networks = {}
    for model in arguments.model or MODELS:
        overrides = [*arguments.overrides, f"path.pretrain_model_G={model}"]
        networks[Path(model).stem] = load_options(locate(arguments.opt), overrides)
    # The imports below take seconds: mistakes in the file are reported before.
    from ..study.runs import run as measure

    candidates = combinations(arguments.nfe, clamps=(True,), grids=GRIDS if arguments.all else GRIDS[:2])
    return measure(
        networks,
        arguments.output,
        candidates,
        images=arguments.images,
        size=arguments.size,
        synthetic=arguments.synthetic,
        document=arguments.document,
        dry_run=arguments.dry_run,
    )
