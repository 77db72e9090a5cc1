"""Find the solver, the number of evaluations, the grid and tau that suit a network and some images.

Tries solvers with at most --budget evaluations on the middle of a few images of an option file's data, prints the
front (settings that none with as few evaluations beats), draws it, and writes an option file with the cheapest of the
front that is not measurably worse than the best. Where there are no clean images, quality is the distance to the
result of 100 steps of the ODE; then only solvers of the ODE (tau 0) are compared, because those with noise lead
elsewhere. What was measured is kept: another budget or metric starts from it.
"""

import argparse
import logging
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from codes.commands.cli import at_least
from codes.config import Options, OptionsError, load_options, resolved
from codes.study.candidates import (
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

METRICS = {"lpips": True, "psnr": False, "ssim": False}  # whether lower is better


def main(argv: list[str] | None = None) -> int:
    """Tune; 0 if an option file was written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-opt", "--opt", type=Path, required=True, metavar="FILE", help="option file: network and data")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", dest="overrides", help="override options")
    parser.add_argument(
        "--budget", type=at_least(1), default=20, help="largest number of evaluations (default: %(default)s)"
    )
    parser.add_argument("--metric", choices=METRICS, default="lpips", help="of quality (default: %(default)s)")
    parser.add_argument("--images", type=at_least(1), default=2, help="images of each task (default: %(default)s)")
    parser.add_argument(
        "--size", type=at_least(32), default=128, help="side of the crops in pixels (default: %(default)s)"
    )
    parser.add_argument(
        "--keep", type=at_least(1), default=3, help="settings that go on to each stage (default: %(default)s)"
    )
    parser.add_argument("--dry-run", action="store_true", help="print what it costs, and stop")
    parser.add_argument("--output", "-o", type=Path, default=Path("options/tuned.yml"), help="default: %(default)s")
    parser.add_argument("--results", type=Path, help="folder of the measurements (default: results/tune-NAME)")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    for name, least in (("budget", 2), ("images", 1), ("size", 32), ("keep", 1)):
        if getattr(arguments, name) < least:
            parser.error(f"--{name} must be at least {least}, got {getattr(arguments, name)}")
    try:
        return tune(arguments, load_options(arguments.opt, arguments.overrides))
    except OptionsError as error:
        print(error, file=sys.stderr)
        return 2


def tune(arguments: argparse.Namespace, options: Options) -> int:
    """Measure, print, draw, write."""
    from codes.data.sets import find_data
    from codes.evaluation.summary import make_scorer
    from codes.restoration.loading import restorer_of
    from codes.runtime.device import choose_device
    from codes.runtime.distributed import processes
    from codes.study import bench as trials

    device = choose_device(options.device)
    folder = arguments.results or Path(options.results) / f"tune-{options.run_name}"
    lower = METRICS[arguments.metric]
    with processes(device) as process:
        try:
            tasks = find_data(options)
            restorer = restorer_of(options, device)
            scorer, notes = make_scorer(("psnr", "ssim", "lpips"), 0, device)
            if notes and arguments.metric == "lpips":
                raise OptionsError(f"{notes[0]}; or choose --metric psnr")
            if not arguments.dry_run:
                trials.claim(folder, trials.facts_of(options, arguments.images, arguments.size), process)
            cut = trials.crops(tasks, folder / "data", arguments.images, arguments.size, options.seed, process)
            bench = trials.Bench(folder, cut, restorer, restorer.sde, scorer, device, process, options.seed)
            clean = all(item.gt is not None for task in cut for item in task.items)
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
            seconds = seconds_per_evaluation(folder)
            report(arguments, options, folder, {c: everything[c] for c in tried}, clean, seconds)
    return 0


def seconds_per_evaluation(folder: Path) -> float:
    """The median over all restorations."""
    from statistics import median

    from codes.evaluation.records import read_records

    return median(record.seconds / record.nfe for record in read_records(folder).values())


def report(
    arguments: argparse.Namespace,
    options: Options,
    folder: Path,
    losses: Mapping[Candidate, Losses],
    clean: bool,
    seconds: float,
) -> None:
    """Print and draw the front, and write the option file."""
    from codes.figures import FIGURES

    scores = {candidate: mean(values) for candidate, values in losses.items()}
    chosen, best = choose(losses), front(scores)
    sign = 1.0 if METRICS[arguments.metric] else -1.0
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
    written = write_new(arguments.output, tuned_options(resolved(options), chosen, notes))
    print(f"wrote {written} and {drawn[0]}; run it: python test.py -opt {written}")


def write_new(path: Path, text: str) -> Path:
    """Write a file; where another one is in its place, under a numbered name."""
    number, free = 1, path
    while free.exists() and free.read_text() != text:
        number += 1
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
    free.parent.mkdir(parents=True, exist_ok=True)
    free.write_text(text)
    return free


if __name__ == "__main__":
    sys.exit(main())
