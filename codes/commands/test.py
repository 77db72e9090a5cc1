"""test.py: restore data sets with several solvers, score the results and print a table."""

import argparse
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..config import Options, OptionsError, build_sde, build_solvers, gathered, load_options, resolved
from ..runtime.paths import locate
from .arguments import add_run_options, new_parser, run

_ABOUT = """\
Restore the images of one or more tasks with one or more solvers, score them and print a table.
Results go to results/<name>/: images, records, summary.{json,csv,md} and a contact sheet per task.
Started again it resumes where it stopped. Other solvers are added to the same folder and table;
other weights, images or seeds need another name or --fresh. Several processes share the work:
  torchrun --nproc_per_node=2 test.py -opt options/test.yml"""

_EXIT = """\
exit code: 0 all images restored, 1 some left out or the run failed, 2 bad options or data, 130 interrupted.
All options are described in options/README.md."""


def build_parser(prog: str) -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = new_parser(prog, _ABOUT, _EXIT)
    add_run_options(parser, "sampler.num_sample_steps=10 device=cpu", "show options, data and work, and stop")
    parser.add_argument("--score-only", action="store_true", help="score the images of an earlier run again")
    return parser


def main(argv: Sequence[str] | None = None, prog: str = "test.py") -> int:
    """`python test.py -opt FILE`: evaluate; returns the exit code."""
    try:
        return run(_test, build_parser(prog).parse_args(argv))
    except KeyboardInterrupt:  # before the first image, or a second one
        return 130


def _test(arguments: argparse.Namespace) -> int:
    options = load_options(locate(arguments.opt), arguments.overrides, on_disk=True)
    # The imports below take seconds: mistakes in the file are reported before.
    from ..data.sets import find_data
    from ..evaluation.run import test_run
    from ..evaluation.summary import sheet_path
    from ..metrics import make_scorer, names_for
    from ..restoration.loading import check_weights, restorer_of
    from ..runtime.device import choose_device
    from ..runtime.distributed import processes

    checks: list[Callable[[], Any]] = [lambda: find_data(options), lambda: check_weights(options)]

    def solvers() -> object:
        return build_solvers(options, build_sde(options))

    if arguments.dry_run:
        checks.append(solvers)
    try:
        tasks, *_ = gathered(*checks)
    except OptionsError:
        gathered(
            *checks, solvers
        )  # all problems in one go; else the solvers are planned once, for the network's schedule
        raise
    if arguments.dry_run:
        print(_described(options, [(task.name, len(task.items), len(task.problems)) for task in tasks]))
        return 0
    device = choose_device(options.device)
    with processes(device) as process:
        restorer = restorer_of(options, device, checked=True)
        if process.is_main:
            for line in (*options.notes, *options.ignored):
                logging.info(line)
        paired = {item.gt is not None for task in tasks for item in task.items}
        names, left_out = names_for(options.metrics.names, clean=True in paired, unpaired=False in paired)
        scorer, notes = make_scorer(names, options.metrics.crop_border, device)
        how = {"fresh": arguments.fresh, "score_only": arguments.score_only, "relabel": True}
        done = test_run(options, tasks, restorer, scorer, process, names=names, notes=[*notes, *left_out], **how)
        if process.is_main:
            sheets = [str(path) for task in done.job.tasks if (path := sheet_path(done.job, task.name)).is_file()]
            shown = ["contact sheets: " + ", ".join(sheets)] if sheets else []
            print(*([done.table] if done.table else []), *shown, f"results: {done.job.folder}", sep="\n")
        return done.outcome.exit_code


def _described(options: Options, tasks: list[tuple[str, int, int]]) -> str:
    """What a run would do: its options, tasks, solvers and number of images."""
    import yaml

    solvers = options.solvers()
    lines = [yaml.safe_dump(resolved(options), sort_keys=False, allow_unicode=True).rstrip(), ""]
    lines += [*options.notes, *(f"ignored: {line}" for line in options.ignored)]
    for name, images, problems in tasks:
        lines.append(f"task {name}: {images} images" + (f", {problems} without a partner" if problems else ""))
    for label, arguments in solvers:
        given = ", ".join(f"{key} {value}" for key, value in arguments.items())
        lines.append(f"solver {label}: {given or 'no sampling'}")
    total = len(solvers) * sum(images for _, images, _ in tasks)
    lines.append(f"{total} images to restore into {Path(options.results) / options.run_name}")
    return "\n".join(lines)
