"""The runs behind the solver study: every candidate with every network on the same images."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..config import Options
from ..runtime.environment import write_environment
from ..runtime.files import write_json
from . import report
from .bench import Stopped, open_benches, pooled_values
from .candidates import Candidate


def run(
    networks: Mapping[str, Options],
    folder: Path,
    candidates: Sequence[Candidate],
    *,
    images: int,
    size: int,
    fid: bool = True,
    dry_run: bool = False,
) -> int:
    """Measure what is missing, then write the report; returns the exit code."""
    try:
        with open_benches(
            {folder / name: options for name, options in networks.items()},
            folder / "data" / f"{images}x{size}",
            images,
            size,
            bind=not dry_run,
        ) as benches:
            process = benches[0].process
            if process.is_main:
                for bench in benches:
                    print(f"{bench.folder.name}: {bench.images} images, {bench.cost(candidates)}", flush=True)
            process.barrier()
            if dry_run:
                return 0
            for bench in benches:
                bench.measure(candidates)
            if not process.is_main:
                return 0
            if fid:
                finalists = report.finalists(report.read(folder))
                pooled = {
                    f"{bench.folder.name}/{label}": values
                    for bench in benches
                    for label, values in pooled_values(bench, finalists).items()
                }
                write_json(folder / "pooled.json", pooled)
            write_environment(folder, benches[0].restorer.device, process.world)
    except Stopped as error:
        print(error, file=sys.stderr)
        return error.code
    report.render(folder)
    return 0
