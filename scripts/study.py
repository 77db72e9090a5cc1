"""Which solver at which number of evaluations: measure it on all tasks, for one or more networks.

Measures order 1, order 2 and pc with tau 0, 0.3 and 1, clamped or not, on the uniform lambda grid; with --all on every
grid. Prints the cost first. Started again it continues where it stopped; two processes share the work:
  torchrun --nproc_per_node=2 scripts/study.py
Writes study.md, study.csv, study.png and study.svg to the output folder, next to the records.
"""

import argparse
import logging
import sys
from pathlib import Path

from codes.commands.cli import at_least
from codes.config import OptionsError, load_options
from codes.study import report
from codes.study.candidates import GRIDS, combinations

MODELS = ("pretrained/mr-tiny.safetensors", "pretrained/mr-tiny-noise.safetensors")
NFES = (2, 3, 4, 5, 6, 8, 10, 15, 20)


def main(argv: list[str] | None = None) -> int:
    """Run and render; 0 if the study is complete."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", metavar="FILE", help=f"weights (default: {' '.join(MODELS)})")
    parser.add_argument("--images", type=at_least(1), default=2, help="images of each task (default: %(default)s)")
    parser.add_argument(
        "--size", type=at_least(32), default=128, help="side of the crops in pixels (default: %(default)s)"
    )
    parser.add_argument("--nfe", type=at_least(2), nargs="+", default=list(NFES), help=f"evaluations (default: {NFES})")
    parser.add_argument("--all", action="store_true", help="every grid, not the uniform lambda grid only")
    parser.add_argument("--no-fid", action="store_true", help="leave out FID and KID")
    parser.add_argument("--dry-run", action="store_true", help="print the cost, and stop")
    parser.add_argument("--render-only", action="store_true", help="write tables and figure from stored records")
    parser.add_argument("-opt", "--opt", type=Path, default=Path("options/study.yml"), metavar="FILE", help="data")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", dest="overrides", help="override options")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("results/study"), help="folder (default: %(default)s)"
    )
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    try:
        if arguments.render_only:
            report.render(arguments.output)
            return 0
        networks = {}
        for model in arguments.model or MODELS:
            overrides = [*arguments.overrides, f"path.pretrain_model_G={model}"]
            networks[Path(model).stem] = load_options(arguments.opt, overrides)

        from codes.study.runs import run

        candidates = combinations(arguments.nfe, grids=GRIDS if arguments.all else GRIDS[:1])
        sample = {"images": arguments.images, "size": arguments.size}
        return run(
            networks, arguments.output, candidates, **sample, fid=not arguments.no_fid, dry_run=arguments.dry_run
        )
    except (OptionsError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
