"""tune.py: find the best solver settings for a network and some images."""

import argparse
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from ..config import Options, OptionsError, load_options, resolved
from ..runtime.paths import locate
from ..study.candidates import (
    TAUS,
    Candidate,
    Losses,
    budgeted,
    choose,
    deficit,
    front,
    mean,
    search,
    tuned_options,
)
from .arguments import add_option_file, add_overrides, at_least, new_parser, run
from .measuring import METRICS, add_measuring_options, make_bench

_ABOUT = """\
Find the solver, number of evaluations, grid and tau that suit a network and some images.

Tries solvers with at most --budget evaluations on centre crops of a few images of the option file's data. Prints and
draws the Pareto front of quality against evaluations, and writes an option file with the cheapest setting on it that is
not measurably worse than the best. Without clean images, quality is the distance to the result of 100 ODE steps; then
only ODE solvers (tau 0) are compared, because solvers that add noise converge to other images. Measurements are kept:
another budget or metric starts from them."""

_LOWER_IS_BETTER = {"lpips": True, "psnr": False, "ssim": False}


def build_parser(prog: str) -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = new_parser(prog, _ABOUT)
    add = parser.add_argument
    add_option_file(parser, "option file that names network and data")
    add_overrides(parser, "device=cpu seed=1")
    add("--budget", type=at_least(1), default=20, metavar="N", help="most evaluations to try (default: %(default)s)")
    add("--metric", choices=_LOWER_IS_BETTER, default="lpips", help="measure of quality (default: %(default)s)")
    add_measuring_options(parser, keep=3)
    add("-o", "--output", type=Path, default=Path("options/tuned.yml"), metavar="FILE",
        help="option file to write (default: %(default)s)")  # fmt: skip
    add("--results", type=Path, metavar="FOLDER", help="folder for measurements (default: results/tune-NAME)")
    return parser


def main(argv: Sequence[str] | None = None, prog: str = "tune.py") -> int:
    """`python scripts/tune.py -opt FILE`: tune; returns 0 if an option file was written."""
    parser = build_parser(prog)
    arguments = parser.parse_args(argv)
    if arguments.budget < 2:
        parser.error(f"--budget must be at least 2, got {arguments.budget}")
    return run(_tune, arguments, level=logging.WARNING)


def _tune(arguments: argparse.Namespace) -> int:
    options = load_options(locate(arguments.opt), arguments.overrides)
    # The imports below take seconds: mistakes in the file are reported before.
    from ..data.sets import find_data
    from ..evaluation.summary import make_scorer
    from ..restoration.loading import restorer_of
    from ..runtime.device import choose_device
    from ..runtime.distributed import processes
    from ..study import bench as trials

    device = choose_device(options.device)
    folder = arguments.results or Path(options.results) / f"tune-{options.run_name}"
    lower = _LOWER_IS_BETTER[arguments.metric]
    with processes(device) as process:
        try:
            tasks = find_data(options)
            restorer = restorer_of(options, device)
            scorer, notes = make_scorer(METRICS, 0, device)
            if notes and arguments.metric == "lpips":
                raise OptionsError(f"{notes[0]}; or choose --metric psnr")
            bench = make_bench(arguments, options, folder, folder / "data", tasks, restorer, scorer, process)
            clean = all(item.gt is not None for task in bench.tasks for item in task.items)
            nfes = budgeted(arguments.budget)
            choices: dict[str, Any] = {
                "keep": arguments.keep,
                "taus": TAUS if clean else (0.0,),
                "clamp": restorer.latent is None,  # latents have no range to clamp to
            }
            if process.is_main:
                likely = trials.simulated_search(1, nfes, **choices)
                print(f"{bench.images} images, {trials.cost(bench, likely)}", flush=True)
            process.barrier()
            if arguments.dry_run:
                return 0
            if not clean:
                bench = trials.with_reference(bench)

            def measure(candidates: Sequence[Candidate]) -> list[Mapping[Candidate, float]]:
                bench.try_out(candidates)
                process.barrier()
                found = bench.losses(arguments.metric, lower)
                return [{candidate: mean(found[candidate]) for candidate in candidates}]

            tried = search(measure, nfes, **choices)
        except trials.Stopped as error:
            print(error, file=sys.stderr)
            return error.code
        if process.is_main:
            everything = bench.losses(arguments.metric, lower)
            _report(arguments, options, folder, {candidate: everything[candidate] for candidate in tried}, clean)
    return 0


def _report(
    arguments: argparse.Namespace, options: Options, folder: Path, losses: Mapping[Candidate, Losses], clean: bool
) -> None:
    """Print and draw the front, and write the option file."""
    from ..figures import FIGURES

    seconds = _seconds_per_evaluation(folder)
    scores = {candidate: mean(values) for candidate, values in losses.items()}
    chosen, best = choose(losses), front(scores)
    sign = 1.0 if _LOWER_IS_BETTER[arguments.metric] else -1.0
    name = f"{arguments.metric.upper()} {'to the clean image' if clean else 'to 100 steps of the ODE'}"
    lines = [f"{'':2}{'NFE':>4}  {'s/image':>8}  {arguments.metric.upper():>8}  {'behind the best':>18}  setting"]
    for candidate in best:
        gap, error = deficit(losses[candidate], losses[best[-1]])
        lines.append(
            f"{'* ' if candidate == chosen else '  '}{candidate.nfe:4}  {candidate.nfe * seconds:8.2f}  "
            f"{sign * scores[candidate]:8.4f}  {gap:9.4f} ± {error:.4f}  {candidate.description}"
        )
    print("\n".join(["the front, " + name + " (* chosen):", *lines]))
    stem = folder / f"front-{arguments.metric}-{arguments.budget}"
    drawn = FIGURES["front"].draw(scores, chosen, name, stem, sign=sign, seconds_per_evaluation=seconds)
    images = len(losses[chosen])
    notes = [
        f"Made by scripts/tune.py from {arguments.opt}: {chosen.description}, {chosen.nfe} evaluations.",
        f"The cheapest setting with at most {arguments.budget} evaluations that is not measurably worse than the best:",
        f"mean {name} {sign * scores[chosen]:.4f} over the middle {arguments.size} pixels of {images} images.",
        "The front:",
        *(f"  {line}" for line in lines),
    ]
    written = _write_new(arguments.output, tuned_options(resolved(options), chosen, notes))
    print(f"wrote {written} and {drawn[0]}; run it: python test.py -opt {written}")


def _seconds_per_evaluation(folder: Path) -> float:
    """The median over all restorations on record."""
    from ..evaluation.records import read_records

    return median(record.seconds / record.nfe for record in read_records(folder).values())


def _write_new(path: Path, text: str) -> Path:
    """Write a file, under a numbered name if another one with that name exists; returns its path."""
    number, free = 1, path
    while free.exists() and free.read_text() != text:
        number += 1
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
    free.parent.mkdir(parents=True, exist_ok=True)
    free.write_text(text)
    return free
