"""Which solver at which number of evaluations: measure it on all tasks, for one or more networks.

Tries order 1, order 2 and pc with tau 0, 0.3 and 1 on the uniform lambda grid, then clamping and the other grids for
the best of them; with --all every combination. Prints what that costs first; started again it goes on where it
stopped; two processes share it:
  torchrun --nproc_per_node=2 scripts/study.py
Writes study.md, study.csv, study.png and study.svg to the output folder, beside the records.
"""

import argparse
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from codes.commands.cli import at_least
from codes.config import OptionsError, load_options
from codes.study import report as study
from codes.study.candidates import PAPER, Candidate, combinations, mean, search

MODELS = ("pretrained/mr-tiny.safetensors", "pretrained/mr-tiny-noise.safetensors")
NFES = (2, 3, 4, 5, 6, 8, 10, 15, 20)
# The defaults of mrsampler-pc, and at the numbers of evaluations that are compared the paper's setting and order 1 too.
ALWAYS = (
    *(Candidate(nfe, "pc", 0.3 if nfe < 15 else 1.0, True, "auto") for nfe in NFES),
    *(Candidate(nfe, scheme, PAPER.tau) for nfe in study.COMPARED for scheme in ("order1", "order2")),
)


def main(argv: list[str] | None = None) -> int:
    """Run and render; 0 if the study is complete."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", metavar="FILE", help=f"weights (default: {' '.join(MODELS)})")
    parser.add_argument("--images", type=at_least(1), default=2, help="images of each task (default: %(default)s)")
    parser.add_argument(
        "--size", type=at_least(32), default=128, help="side of the crops in pixels (default: %(default)s)"
    )
    parser.add_argument("--nfe", type=at_least(2), nargs="+", default=list(NFES), help=f"evaluations (default: {NFES})")
    parser.add_argument(
        "--keep", type=at_least(1), default=2, help="settings that go on, per network (default: %(default)s)"
    )
    parser.add_argument(
        "--all", action="store_true", help="every scheme and tau, clamped or not, on every grid, not the best ones only"
    )
    parser.add_argument("--no-fid", action="store_true", help="leave out FID and KID")
    parser.add_argument("--dry-run", action="store_true", help="print what it costs, and stop")
    parser.add_argument("--render-only", action="store_true", help="tables and figure from what is stored")
    parser.add_argument("-opt", "--opt", type=Path, default=Path("options/study.yml"), metavar="FILE", help="data")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", dest="overrides", help="override options")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("results/study"), help="folder (default: %(default)s)"
    )
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    try:
        if not arguments.render_only:
            code = measure(arguments)
            if code is not None:
                return code
        render(arguments.output)
    except (OptionsError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def measure(arguments: argparse.Namespace) -> int | None:
    """Measure what is missing. Returns an exit code where nothing is left to render for this process."""
    options = {}
    for model in arguments.model or MODELS:
        overrides = [*arguments.overrides, f"path.pretrain_model_G={model}"]
        options[Path(model).stem] = load_options(arguments.opt, overrides)

    from codes.data.sets import find_data
    from codes.evaluation.summary import make_scorer
    from codes.restoration.loading import restorer_of
    from codes.runtime.device import choose_device
    from codes.runtime.distributed import processes
    from codes.runtime.environment import write_environment
    from codes.study import bench as trials

    first = next(iter(options.values()))
    device = choose_device(first.device)
    with processes(device) as process:
        tasks = find_data(first)
        scorer, notes = make_scorer(("psnr", "ssim", "lpips"), 0, device)
        if notes:
            raise OptionsError(notes[0])
        benches = []
        try:
            for name, chosen in options.items():
                restorer = restorer_of(chosen, device)
                folder = arguments.output / name
                if not arguments.dry_run:
                    trials.claim(folder, trials.facts_of(chosen, arguments.images, arguments.size), process)
                data = arguments.output / "data" / f"{arguments.images}x{arguments.size}"
                cut = trials.crops(tasks, data, arguments.images, arguments.size, chosen.seed, process)
                bench = trials.Bench(folder, cut, restorer, restorer.sde, scorer, device, process, chosen.seed)
                benches.append(bench)
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
                for name, bench in zip(options, benches):
                    print(f"{name}: {bench.images} images, {trials.cost(bench, likely)}", flush=True)
            process.barrier()
            if arguments.dry_run:
                return 0

            def losses(candidates: Sequence[Candidate]) -> list[Mapping[Candidate, float]]:
                for bench in benches:
                    bench.try_out(candidates)
                process.barrier()
                found = [bench.losses("lpips", lower_is_better=True) for bench in benches]
                return [{candidate: mean(group[candidate]) for candidate in candidates} for group in found]

            if arguments.all:
                losses(combinations(arguments.nfe))
            else:
                search(losses, arguments.nfe, **choices)
        except trials.Stopped as error:
            print(error, file=sys.stderr)
            return error.code
        if not process.is_main:
            return 0
        if not arguments.no_fid:
            finalists = study.finalists(study.read(arguments.output))
            pooled = {
                f"{name}/{label}": values
                for name, bench in zip(options, benches)
                for label, values in trials.pooled_values(bench, finalists).items()
            }
            (arguments.output / "pooled.json").write_text(json.dumps(pooled, indent=1) + "\n")
        write_environment(arguments.output, device, process.world)
    return None


def render(folder: Path) -> None:
    """Draw and write what is stored in the folder, and print the answer."""
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


if __name__ == "__main__":
    sys.exit(main())
