"""study.py: compare solvers, grids and numbers of evaluations on all tasks."""

import argparse
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config import OptionsError, load_options
from ..runtime.paths import locate
from ..study import report as study
from ..study.candidates import PAPER, Candidate, combinations, mean, search
from .arguments import add_option_file, add_overrides, at_least, new_parser, run
from .measuring import METRICS, add_measuring_options, make_bench

if TYPE_CHECKING:
    from ..study.bench import Bench

_ABOUT = """\
Measure which solver is best at which number of evaluations, on all tasks, for one or more networks.

Tries order 1, order 2 and pc with tau 0, 0.3 and 1 on the uniform lambda grid, then clamping and the other grids for
the best of them; with --all every combination. Prints the cost first. Started again, it resumes where it stopped;
several processes share the work:
  torchrun --nproc_per_node=2 scripts/study.py
Writes study.md, study.csv, study.png and study.svg to the output folder, next to the records."""

MODELS = ("pretrained/mr-tiny.safetensors", "pretrained/mr-tiny-noise.safetensors")
NFES = (2, 3, 4, 5, 6, 8, 10, 15, 20)
# The defaults of mrsampler-pc; at the numbers of evaluations that are compared, also the paper's setting and order 1.
ALWAYS = (
    *(Candidate(nfe, "pc", 0.3 if nfe < 15 else 1.0, True, "auto") for nfe in NFES),
    *(Candidate(nfe, scheme, PAPER.tau) for nfe in study.COMPARED for scheme in ("order1", "order2")),
)


def build_parser(prog: str) -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = new_parser(prog, _ABOUT)
    add = parser.add_argument
    add("--model", nargs="+", metavar="FILE", help=f"weights (default: {' '.join(MODELS)})")
    add("--nfe", type=at_least(2), nargs="+", default=list(NFES), metavar="N",
        help=f"numbers of evaluations (default: {' '.join(map(str, NFES))})")  # fmt: skip
    add("--all", action="store_true", help="try every scheme and tau, clamped or not, on every grid")
    add("--no-fid", action="store_true", help="leave out FID and KID")
    add_measuring_options(parser, keep=2)
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
    if not arguments.render_only:
        code = _measure(arguments)
        if code is not None:
            return code
    _render(arguments.output)
    return 0


def _measure(arguments: argparse.Namespace) -> int | None:
    """Measure what is missing. Returns an exit code if this process has nothing to render."""
    options = {}
    for model in arguments.model or MODELS:
        overrides = [*arguments.overrides, f"path.pretrain_model_G={model}"]
        options[Path(model).stem] = load_options(locate(arguments.opt), overrides)
    # The imports below take seconds: mistakes in the file are reported before.
    from ..data.sets import find_data
    from ..evaluation.summary import make_scorer
    from ..restoration.loading import restorer_of
    from ..runtime.device import choose_device
    from ..runtime.distributed import processes
    from ..runtime.environment import write_environment
    from ..study import bench as trials

    first = next(iter(options.values()))
    device = choose_device(first.device)
    with processes(device) as process:
        tasks = find_data(first)
        scorer, notes = make_scorer(METRICS, 0, device)
        if notes:
            raise OptionsError(notes[0])
        data = arguments.output / "data" / f"{arguments.images}x{arguments.size}"
        benches = {}
        try:
            for name, chosen in options.items():
                restorer = restorer_of(chosen, device)
                folder = arguments.output / name
                benches[name] = make_bench(arguments, chosen, folder, data, tasks, restorer, scorer, process)
            if not _search(arguments, benches):
                return 0
        except trials.Stopped as error:
            print(error, file=sys.stderr)
            return error.code
        if not process.is_main:
            return 0
        if not arguments.no_fid:
            finalists = study.finalists(study.read(arguments.output))
            pooled = {
                f"{name}/{label}": values
                for name, bench in benches.items()
                for label, values in trials.pooled_values(bench, finalists).items()
            }
            (arguments.output / "pooled.json").write_text(json.dumps(pooled, indent=1) + "\n")
        write_environment(arguments.output, device, process.world)
    return None


def _search(arguments: argparse.Namespace, benches: "Mapping[str, Bench]") -> bool:
    """Print the cost, then measure the candidates with every network. False for a dry run, which stops in between."""
    from ..study import bench as trials

    process = next(iter(benches.values())).process
    choices: dict[str, Any] = {
        "keep": arguments.keep,
        "keep_many": 1,
        "always": [candidate for candidate in ALWAYS if candidate.nfe in arguments.nfe],
    }
    if process.is_main:
        if arguments.all:
            likely = combinations(arguments.nfe)
        else:
            likely = trials.simulated_search(len(benches), arguments.nfe, **choices)
        for name, bench in benches.items():
            print(f"{name}: {bench.images} images, {trials.cost(bench, likely)}", flush=True)
    process.barrier()
    if arguments.dry_run:
        return False

    def losses(candidates: Sequence[Candidate]) -> list[Mapping[Candidate, float]]:
        for bench in benches.values():
            bench.try_out(candidates)
        process.barrier()
        found = [bench.losses("lpips", lower_is_better=True) for bench in benches.values()]
        return [{candidate: mean(group[candidate]) for candidate in candidates} for group in found]

    if arguments.all:
        losses(combinations(arguments.nfe))
    else:
        search(losses, arguments.nfe, **choices)
    return True


def _render(folder: Path) -> None:
    """Write tables and figure from the measurements in the folder, and print the conclusions."""
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder; without --render-only the study is made")
    notes = []
    for path in sorted(folder.glob("*/made-for.json")):
        facts = json.loads(path.read_text())
        notes.append(
            f"{path.parent.name}: {facts['images']} images of each task, {facts['size']} pixels; "
            f"weights {facts['weights'][:12]}"
        )
    notes.append("Means are over networks, tasks and images. Settings are described in `options/README.md`.")
    written = study.render(folder, notes)
    found = study.read(folder)
    print("\n".join(study.statements(found)))
    for nfe in found.nfes():
        best = found.best(nfe)
        paper = replace(PAPER, nfe=nfe)
        print(
            f"NFE {nfe:3}: {best.description:40} LPIPS {found.mean(best, 'lpips'):.4f}  "
            f"(the paper's {found.mean(paper, 'lpips'):.4f})"
        )
    print("wrote " + ", ".join(str(path) for path in written))
