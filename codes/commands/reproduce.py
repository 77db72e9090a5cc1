"""The command line of scripts/reproduce.py."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import OptionsError
from ..figures import FIGURES
from ..reproduce.catalogue import DATASETS, METHODS, TABLES, all_runs
from ..reproduce.drawing import NAMES as FIGURE_NAMES
from ..reproduce.drawing import draw
from ..reproduce.published import published
from ..reproduce.report import table_text, write_report
from ..reproduce.results import Results, collect
from ..runtime.paths import locate
from .cli import at_least

if TYPE_CHECKING:
    from ..reproduce.runs import Setup
    from ..study.bench import Speed

_ABOUT = """\
Run the cells of the paper's tables that are missing, and put ours beside the published numbers.
Results go to results/reproduce/MODEL/: REPORT.md, tables/, figures/, and the runs they are made of. Started again it
goes on where it stopped; several processes share the work:
  torchrun --nproc_per_node=2 scripts/reproduce.py --table all"""
_EXIT = "exit code: 0 all cells are there, 1 some are missing, 2 bad options, data or weights, 130 interrupted."

OPTIONS = {"embedded": Path("options/paper/embedded.yml"), "daclip": Path("options/mrsampler.yml")}
# On two slow cores all tables of the embedded model stay below 40 minutes with these.
IMAGES = {"embedded": 2, "daclip": None}
SIZE = {"embedded": 128, "daclip": None}
FID = {"embedded": "figure", "daclip": "all"}
NAMES = (*TABLES, DATASETS, *FIGURE_NAMES)


def main(argv: Sequence[str] | None = None) -> int:
    """Reproduce; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="reproduce.py", description=_ABOUT, epilog=_EXIT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--table", nargs="+", default=[], metavar="NAME", choices=["all", *NAMES], help=f"all, {', '.join(NAMES)}")
    add("--model", choices=list(OPTIONS), default="embedded", help="the project's small network, or DA-CLIP's weights")
    add("-opt", "--opt", type=Path, metavar="FILE", help="option file with weights and data (default: the model's)")
    add("--images", type=at_least(1), metavar="N", help="images per task (embedded: 2; daclip: all)")
    add("--size", type=at_least(1), metavar="PIXELS", help="side of centre crops (embedded: 128; daclip: whole images)")
    add("--fid", choices=["all", "figure", "none"], help="tasks with FID; figure: those of the paper's figure 2")
    add("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE", dest="overrides", help="override options")
    add("--results", type=Path, metavar="DIR", help="folder of the results (default: results/reproduce/MODEL)")
    add("--report", type=Path, metavar="DIR", help="folder of report and tables (default: that of the results)")
    add("--list", action="store_true", help="show tables and figures with what they cost, and stop")
    add("--render-only", action="store_true", help="draw from stored results; computes nothing")
    arguments = parser.parse_args(argv)
    if not (arguments.table or arguments.list or arguments.render_only):
        parser.error("nothing to do: --table NAME, --list or --render-only")
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        if arguments.render_only:
            return _render_only(arguments)
        return _list(arguments) if arguments.list else _reproduce(arguments)
    except OptionsError as error:
        print(error, file=sys.stderr)
        return 2


def _names(arguments: argparse.Namespace) -> list[str]:
    asked = arguments.table or ["all"]
    return list(NAMES) if "all" in asked else [name for name in NAMES if name in asked]


def _results_folder(arguments: argparse.Namespace) -> Path:
    folder: Path = arguments.results or Path("results") / "reproduce" / arguments.model
    return folder


def _setup(arguments: argparse.Namespace) -> "Setup":
    from ..reproduce.runs import Setup

    model = arguments.model
    return Setup(
        model=model,
        file=locate(arguments.opt or OPTIONS[model]),
        root=_results_folder(arguments),
        images=arguments.images or IMAGES[model],
        size=arguments.size or SIZE[model],
        fid=arguments.fid or FID[model],
        overrides=tuple(arguments.overrides),
    )


# ---- rendering


def _render_only(arguments: argparse.Namespace) -> int:
    if os.environ.get("RANK", "0") != "0":
        return 0
    folder = _results_folder(arguments)
    try:
        results = collect(folder)
    except FileNotFoundError:
        raise OptionsError(
            f"{folder}: no results there; run without --render-only first, or name their --results"
        ) from None
    return _render(results, folder, arguments)


def _render(results: Results, folder: Path, arguments: argparse.Namespace) -> int:
    """Write the report; 1 if cells of the tables are missing."""
    names = _names(arguments)
    out = arguments.report or folder
    out.mkdir(parents=True, exist_ok=True)
    tables = [name for name in names if name not in FIGURE_NAMES]
    report = write_report(results, out, tables, draw(results, folder, out, names))
    wanted = [(task, method, nfe) for task, method in all_runs(names) for nfe in METHODS[method].nfes]
    missing = [cell for cell in wanted if results.cell(*cell) is None]
    if len(tables) <= 2:
        print(*(table_text(results, name) for name in tables), sep="\n")
    print(f"report: {report}")
    if missing:
        task, method, nfe = missing[0]
        first = f"{task}, {METHODS[method].title} at NFE {nfe}"
        print(f"{len(missing)} of {len(wanted)} cells are missing, the first: {first}", file=sys.stderr)
    return 1 if missing else 0


# ---- running


def _reproduce(arguments: argparse.Namespace) -> int:
    from ..reproduce import runs as work
    from ..restoration.loading import check_weights, restorer_of
    from ..runtime.device import choose_device
    from ..runtime.distributed import processes

    setup = _setup(arguments)
    base = work.base_options(setup)
    check_weights(base)
    pairs = all_runs(_names(arguments))
    device = choose_device(base.device)
    with processes(device) as process:
        restorer = restorer_of(base, device)
        work.prepare(setup, base, process)
        found, missing = work.find_tasks(setup, base)
        tasks = work.cut(setup, found, base.seed, process)
        if process.is_main and pairs:
            counts = {name: len(task.items) for name, task in tasks.items()}
            speed = work.time_device(restorer, setup.size or 256, setup.fid != "none")
            print(f"{len(pairs)} runs, {_cost_text(setup, pairs, counts, speed, process.world)}", flush=True)
        process.barrier()
        code, problems = work.run_all(setup, pairs, tasks, process, restorer, logging.info)
        if not process.is_main:
            return code
        if code != 130:
            work.compute_figures(setup, tasks, restorer, _names(arguments), base.seed)
        for line in [*(missing[task] for task in dict(pairs) if task in missing), *problems]:
            print(line, file=sys.stderr)
        return max(code, _render(collect(setup.root), setup.root, arguments))


def _list(arguments: argparse.Namespace) -> int:
    if os.environ.get("RANK", "0") != "0":
        return 0
    from ..reproduce import runs as work
    from ..restoration.loading import restorer_of
    from ..runtime.device import choose_device

    setup = _setup(arguments)
    base = work.base_options(setup)
    found, _ = work.find_tasks(setup, base)
    counts = {name: min(len(task.items), setup.images or len(task.items)) for name, task in found.items()}
    speed, note = None, ""
    try:
        device = choose_device(base.device)
        size = setup.size or 256
        speed = work.time_device(restorer_of(base, device), size, setup.fid != "none")
        note = f"measured: {speed.evaluation:.3f} s per evaluation of {size}x{size} pixels on {device}"
        note += f", {speed.scoring:.2f} s per image for FID" if speed.scoring else ""
    except OptionsError as error:
        note = f"times are unknown: {error}"
    for name in NAMES:
        pairs = all_runs([name])
        text = _cost_text(setup, pairs, counts, speed, 1) if pairs else "nothing to run"
        if name in FIGURE_NAMES:
            title = FIGURES[name].title
            text = f"{FIGURES[name].evaluations} evaluations" if FIGURES[name].evaluations else text
        else:
            title = TABLES[name].title if name in TABLES else published()[name].title
        print(f"{'figure' if name in FIGURE_NAMES else 'table':8}{name:18}{title:45}{text}")
    print(f"{'':8}{'all':18}{'tables share their runs':45}{_cost_text(setup, all_runs(NAMES), counts, speed, 1)}")
    images = ", ".join(f"{task} {count}" for task, count in counts.items()) or "none found"
    print(f"images: {images}\n{note}")
    return 0


def _cost_text(
    setup: "Setup", pairs: Sequence[tuple[str, str]], counts: dict[str, int], speed: "Speed | None", world: int
) -> str:
    from ..reproduce.runs import cost

    evaluations, seconds = cost(setup, pairs, counts, speed)
    text = f"{evaluations} evaluations to do"
    if seconds is None:
        return text
    minutes = seconds / 60 / world
    return f"{text}, about {minutes:.0f} min" if minutes >= 1 else f"{text}, below a minute"
