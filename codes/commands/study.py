"""study.py: compare solvers, grids and numbers of evaluations on all tasks."""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from ..config import OptionsError, load_options
from ..runtime.paths import locate
from ..study import report
from ..study.candidates import GRIDS, combinations
from .arguments import add_measuring_options, add_option_file, add_overrides, at_least, new_parser, run

_ABOUT = """\
Measure which solver is best at which number of evaluations, on all tasks, for one or more networks.

Measures order 1, order 2 and pc with tau 0, 0.3 and 1, clamped or not, on the uniform lambda grid; with --all on every
grid. Prints the cost first. Started again, it resumes where it stopped; several processes share the work:
  torchrun --nproc_per_node=2 scripts/study.py
Writes study.md, study.csv, study.png and study.svg to the output folder, next to the records."""

MODELS = ("pretrained/mr-universal.safetensors",)
NFES = (2, 3, 4, 5, 6, 8, 10, 15, 20)


def build_parser(prog: str) -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = new_parser(prog, _ABOUT)
    add = parser.add_argument
    add("--model", nargs="+", metavar="FILE", help=f"weights (default: {' '.join(MODELS)})")
    add("--nfe", type=at_least(2, 10_000), nargs="+", default=list(NFES), metavar="N",
        help=f"numbers of evaluations (default: {' '.join(map(str, NFES))})")  # fmt: skip
    add("--all", action="store_true", help="every grid, not the uniform lambda grid only")
    add("--no-fid", action="store_true", help="leave out FID and KID")
    add_measuring_options(parser)
    add("--render-only", action="store_true", help="write tables and figure from stored measurements")
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
    if arguments.render_only:
        report.render(arguments.output)
        return 0
    networks = {}
    for model in arguments.model or MODELS:
        overrides = [*arguments.overrides, f"path.pretrain_model_G={model}"]
        networks[Path(model).stem] = load_options(locate(arguments.opt), overrides)
    # The imports below take seconds: mistakes in the file are reported before.
    from ..study.runs import run as measure

    candidates = combinations(arguments.nfe, grids=GRIDS if arguments.all else GRIDS[:1])
    return measure(
        networks,
        arguments.output,
        candidates,
        images=arguments.images,
        size=arguments.size,
        fid=not arguments.no_fid,
        dry_run=arguments.dry_run,
    )
