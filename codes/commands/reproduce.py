"""reproduce.py: run the paper's tables and figures and compare with the published numbers."""

import argparse
import logging
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import Options, OptionsError
from ..figures import FIGURES
from ..reproduce.catalogue import DATASETS, DEFAULTS, METHODS, RECOMMENDED, TABLES, all_runs
from ..reproduce.documents import fill
from ..reproduce.drawing import NAMES as FIGURE_NAMES
from ..reproduce.drawing import draw
from ..reproduce.published import published
from ..reproduce.report import table_text, write_report
from ..reproduce.results import Results, collect
from ..reproduce.verdicts import RULES
from ..runtime.paths import locate
from .arguments import add_overrides, at_least, new_parser, run

if TYPE_CHECKING:
    from ..reproduce.runs import Setup

_ABOUT = """\
Run the missing cells of the paper's tables and compare the results with the published numbers.
Results go to results/reproduce/MODEL/: REPORT.md, tables/, figures/, and the runs behind them. Started again, it
resumes where it stopped; several processes share the work:
  torchrun --nproc_per_node=2 scripts/reproduce.py --table all --data testsets
--data names a folder with the paper's own test images: CBSD68, LIVE1, LOL-eval15/{LQ,GT}, Rain100H/{LQ,GT}."""
_EXIT = "exit code: 0 all cells are there, 1 some are missing, 2 bad options, data or weights, 130 interrupted."

OPTIONS = {"embedded": Path("options/paper/embedded.yml"), "daclip": Path("options/mrsampler.yml")}
NAMES = (*TABLES, DATASETS, *FIGURE_NAMES)


def build_parser(prog: str) -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = new_parser(prog, _ABOUT, _EXIT)
    add = parser.add_argument
    add("--table", nargs="+", default=[], metavar="NAME", choices=["all", *NAMES], help=f"all, {', '.join(NAMES)}")
    add("--model", choices=list(OPTIONS), default="embedded", help="the project's small network, or DA-CLIP's weights")
    add("-opt", "--opt", type=Path, metavar="FILE", help="option file with weights and data (default: the model's)")
    add("--data", type=Path, metavar="DIR", help="folder of the paper's test sets, for four of the ten tasks")
    add("--images", type=at_least(1), metavar="N", help="images per task (test sets and daclip: all; photographs: 10)")
    add("--size", type=at_least(1), metavar="PIXELS", help="side of centre crops (photographs: 256; else whole images)")
    add("--subset", type=at_least(1), metavar="N", help="images at NFE 50 and 100 (embedded: 10; daclip: all)")
    add("--full", action="store_true", help="where --images or --size cut the test sets: restore them whole as well")
    add("--fid", choices=["all", "figure", "full", "none"], help="tasks with FID; figure: test sets and figure 2")
    add_overrides(parser, "device=cpu seed=1")
    add("--results", type=Path, metavar="DIR", help="folder for the results (default: results/reproduce/MODEL)")
    add("--report", type=Path, metavar="DIR", help="folder for report and tables (default: that of the results)")
    add("--list", action="store_true", help="list tables and figures with their cost, and stop")
    add("--render-only", action="store_true", help="write the report from stored results; computes nothing")
    add("--fill", nargs="+", type=Path, default=[], metavar="FILE", help="documents to renew the marked numbers of")
    return parser


def main(argv: Sequence[str] | None = None, prog: str = "reproduce.py") -> int:
    """`python scripts/reproduce.py --table NAME`: reproduce; returns the exit code."""
    parser = build_parser(prog)
    arguments = parser.parse_args(argv)
    if not (arguments.table or arguments.data or arguments.list or arguments.render_only):
        parser.error("nothing to do: --table NAME, --data DIR, --list or --render-only")
    if arguments.render_only:
        return run(_render_only, arguments)
    return run(_list if arguments.list else _reproduce, arguments)


def _names(arguments: argparse.Namespace) -> list[str]:
    asked = arguments.table or ["all"]
    return list(NAMES) if "all" in asked else [name for name in NAMES if name in asked]


def _results_folder(arguments: argparse.Namespace) -> Path:
    folder: Path = arguments.results or Path("results") / "reproduce" / arguments.model
    return folder


def _setup(arguments: argparse.Namespace) -> "Setup":
    from ..reproduce.runs import Setup

    model = arguments.model
    usual = DEFAULTS[model]
    return Setup(
        model=model,
        file=locate(arguments.opt or OPTIONS[model]),
        root=_results_folder(arguments),
        data=arguments.data,
        images=arguments.images or usual["images"],
        size=arguments.size or usual["size"],
        set_images=arguments.images,
        set_size=arguments.size,
        subset=arguments.subset or usual["subset"],
        fid=arguments.fid or usual["fid"],
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
    # A report elsewhere is one to keep: it has the tables in itself, and all numbers in cells.json.
    report = write_report(results, out, tables, draw(results, folder, out, names), files=out == folder)
    for path in arguments.fill:
        fill(path, results)
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


# ---- what is there


def _missing_data(names: Sequence[str], problems: Mapping[str, str]) -> dict[str, str]:
    """What tables and figures lack, in words, by name; `problems` has the reason for each task without images."""
    found = {}
    for name in names:
        tasks = list(dict(all_runs([name]))) or (FIGURES[name].tasks if name in FIGURES else [])
        lacking = [task for task in tasks if task in problems]
        if lacking:
            found[name] = "no data" + ("" if len(lacking) == len(tasks) else f" for {', '.join(lacking)}")
    return found


def _check(
    setup: "Setup", base: Options, names: Sequence[str], problems: Mapping[str, str], *, is_main: bool = True
) -> None:
    """Say what is missing, table by table, before anything is loaded; raises OptionsError without weights."""
    from ..reproduce.runs import missing_metrics
    from ..restoration.loading import check_weights

    missing = _missing_data(names, problems)
    lines = [*dict.fromkeys(problems.values())] if missing else []
    lines += [f"{_kind(name)} {name}: {text}" for name, text in missing.items()] + missing_metrics(setup, base)
    if is_main and lines:
        print("\n".join(lines), file=sys.stderr, flush=True)
    if any(all_runs([name]) or name in FIGURES for name in names):
        check_weights(base)


def _kind(name: str) -> str:
    return "figure" if name in FIGURE_NAMES else "table"


# ---- running


def _reproduce(arguments: argparse.Namespace) -> int:
    from ..reproduce import runs as work

    setup = _setup(arguments)
    base = work.base_options(setup)
    names = _names(arguments)
    found, problems = work.find_tasks(setup, base)
    _check(setup, base, names, problems, is_main=os.environ.get("RANK", "0") == "0")
    from ..reproduce import cost
    from ..restoration.loading import restorer_of
    from ..runtime.device import choose_device
    from ..runtime.distributed import processes

    device = choose_device(base.device)
    with processes(device) as process:
        if process.is_main and setup.model == "daclip":
            print(RULES, flush=True)
        code = 0
        lines: list[str] = []
        pairs = [(task, method) for task, method in all_runs(names) if task in found]
        if pairs or any(name in FIGURES for name in names):
            restorer = restorer_of(base, device)
            work.prepare(setup, base, restorer, found, process)
            tasks = work.cut(setup, found, base.seed, process)
            images = cost.images_of(tasks, setup)
            to_do = cost.cost(setup, pairs, images, None)[0]
            speed = cost.measure(setup, base, restorer, process) if to_do else None
            total = cost.cost(setup, pairs, images, speed)[1]
            if process.is_main and to_do:
                print(f"{len(pairs)} runs, {_cost_text(to_do, total, process.world)}", flush=True)
            process.barrier()
            start = time.perf_counter()

            def tell(text: str) -> None:
                """Log the next run with the time left: the estimate, corrected by what the finished runs took."""
                left = cost.cost(setup, pairs, images, speed)[1]
                if left < total:
                    left *= (time.perf_counter() - start) * process.world / (total - left)
                logging.info("%s (%s left)", text, _duration(left / process.world))

            code, lines = work.run_all(setup, pairs, tasks, process, restorer, tell)
            if code != 130 and arguments.full and (setup.set_images or setup.set_size):
                of_sets = [task for task, method in pairs if method == RECOMMENDED]
                more, others = work.run_full(setup, of_sets, process, restorer, logging.info)
                code, lines = max(code, more), [*lines, *others]
            logging.info("the runs took %s", _duration(time.perf_counter() - start))
            if process.is_main and code != 130:
                work.compute_figures(setup, tasks, restorer, names, base.seed)
        if not process.is_main:
            return code
        for line in lines:
            print(line, file=sys.stderr)
        return max(code, _render(_collected(setup.root), setup.root, arguments))


def _collected(folder: Path) -> Results:
    """The results of a folder, none of a new one."""
    try:
        return collect(folder)
    except FileNotFoundError:
        return Results()


def _list(arguments: argparse.Namespace) -> int:
    if os.environ.get("RANK", "0") != "0":
        return 0
    from ..reproduce import cost
    from ..reproduce import runs as work
    from ..restoration.loading import restorer_of
    from ..runtime.device import choose_device
    from ..runtime.distributed import Process

    setup = _setup(arguments)
    base = work.base_options(setup)
    found, problems = work.find_tasks(setup, base)
    missing = _missing_data(NAMES, problems)
    images = cost.images_of(found, setup)
    speed = None
    notes = [*dict.fromkeys(problems.values()), *work.missing_metrics(setup, base)]
    try:
        device = choose_device(base.device)
        speed = cost.measure(setup, base, restorer_of(base, device), Process())
        side = math.isqrt(speed.pixels)
        notes.append(f"measured: {speed.evaluation:.3f} s per evaluation of {side}x{side} pixels on {device}")
    except OptionsError as error:
        notes.append(f"times are unknown: {error}")
    for name in NAMES:
        figure, pairs = FIGURES.get(name), all_runs([name])
        title = figure.title if figure else TABLES[name].title if name in TABLES else published()[name].title
        if figure and figure.evaluations:
            scale = max((images[task].pixels for task in figure.tasks if task in images), default=0)
            seconds = 0.0 if speed is None else figure.evaluations * speed.evaluation * scale / speed.pixels
            text = _cost_text(figure.evaluations, seconds, 1)
        else:
            text = _cost_text(*cost.cost(setup, pairs, images, speed), 1) if pairs else "nothing to run"
        if name in missing:
            text = missing[name] if missing[name] == "no data" else f"{text}; {missing[name]}"
        print(f"{_kind(name):8}{name:18}{title:45}{text}")
    text = _cost_text(*cost.cost(setup, all_runs(NAMES), images, speed), 1)
    print(f"{'':8}{'all':18}{'tables share their runs':45}{text if images else 'no data'}")
    print(f"images: {', '.join(f'{task} {each.count}' for task, each in images.items()) or 'none found'}")
    print(*notes, sep="\n")
    return 0


def _cost_text(evaluations: int, seconds: float, world: int) -> str:
    return f"{evaluations} evaluations" + (f", about {_duration(seconds / world)}" if seconds else "")


def _duration(seconds: float) -> str:
    """
    >>> _duration(7.2), _duration(130), _duration(9000)
    ('7 s', '2 min', '2.5 h')
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
