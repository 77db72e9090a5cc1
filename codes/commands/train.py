"""train.py: train a restoration network."""

import argparse
from collections.abc import Sequence

from ..config import load_stages
from ..runtime.paths import locate
from .arguments import add_run_options, new_parser, run

_ABOUT = """\
Train a restoration network. The run is written to results/<name>/: weights in models/, states to resume from in
training_state/, log.jsonl, and pictures of the validation in validation/.
Started again with the same options, it resumes from its newest checkpoint and ends with the same weights as a run that
was never stopped. Stages of the option file run one after the other, in results/<name>/<stage>/; finished ones are
skipped. Several processes share each batch:  torchrun --nproc_per_node=2 train.py -opt options/train.yml"""

_EXIT = """\
exit code: 0 trained to the last step, 1 the training failed, 2 bad options or data, 130 interrupted (and saved).
All options are described in options/README.md."""


def build_parser(prog: str) -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = new_parser(prog, _ABOUT, _EXIT)
    example = "train.niter=1000 datasets.train.batch_size=8"
    add_run_options(parser, example, "show options, data and network, and stop")
    return parser


def main(argv: Sequence[str] | None = None, prog: str = "train.py") -> int:
    """`python train.py -opt FILE`: train a network; returns the exit code."""
    return run(_train, build_parser(prog).parse_args(argv))


def _train(arguments: argparse.Namespace) -> int:
    stages = load_stages(locate(arguments.opt), arguments.overrides, on_disk=True)
    # The import below takes seconds: mistakes in the file are reported before.
    from ..training import stages as training

    if arguments.dry_run:
        print(training.describe(stages))
        return 0
    return training.run(stages, fresh=arguments.fresh)
