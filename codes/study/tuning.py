"""Find the solver, the number of evaluations, the grid and tau that suit a network and some images."""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median

from ..config import Options, OptionsError, resolved
from ..evaluation.records import read_records
from ..networks.checkpoints import read_checkpoint, save_checkpoint
from ..networks.recommended import Recommended
from ..restoration.loading import sde_settings
from ..restoration.restorer import Restorer
from ..runtime.files import write_atomically
from ..runtime.locks import claim
from ..runtime.paths import locate
from ..solvers import Solver
from .bench import Stopped, open_benches, with_reference
from .candidates import (
    METRICS,
    TAUS,
    Candidate,
    Losses,
    budgeted,
    choose,
    combinations,
    deficit,
    front,
    mean,
    tuned_options,
)
from .figures import FIGURES


def tune(
    options: Options,
    *,
    budget: int,
    metric: str,
    images: int,
    size: int,
    output: Path,
    store: Path | None = None,
    folder: Path | None = None,
    dry_run: bool = False,
) -> int:
    """Measure every scheme, tau and grid, print and draw the front, and write an option file; returns the exit code.

    With `store` the weights are also written to a new file that recommends the solver.
    Without clean images the reference is a long run of the ODE. Then only solvers of the ODE are compared: solvers
    with noise lead elsewhere.
    """
    if store is not None:
        check_can_be_stored(options, store)
    folder = folder or Path(options.results) / f"tune-{options.run_name}"
    without_lpips = "; or choose --metric psnr" if metric == "lpips" else None
    try:
        with open_benches(
            {folder: options}, folder / "data", images, size, bind=not dry_run, without_lpips=without_lpips
        ) as (bench,):
            clean = bench.has_clean_images
            clamp = bench.restorer.latent is None  # latents have no range to clamp to
            candidates = combinations(budgeted(budget), taus=TAUS if clean else (0.0,), clamps=(clamp,))
            if bench.process.is_main:
                print(f"{bench.images} images, {bench.cost(candidates)}", flush=True)
            bench.process.barrier()
            if dry_run:
                return 0
            if not clean:
                bench = with_reference(bench)
            bench.measure(candidates)
            if not bench.process.is_main:
                return 0
            found = bench.losses(metric)
    except Stopped as error:
        print(error, file=sys.stderr)
        return error.code
    losses = {candidate: found[candidate] for candidate in candidates}
    name = f"{metric.upper()} {'to the clean image' if clean else 'to 100 steps of the ODE'}"
    seconds = median(record.seconds / record.nfe for record in read_records(folder).values())
    scores = {candidate: mean(values) for candidate, values in losses.items()}
    chosen, sign = choose(losses), METRICS[metric].sign
    lines = front_lines(losses, chosen, metric, seconds)
    print("\n".join([f"the front, {name} (* chosen):", *lines]))
    stem = folder / f"front-{metric}-{budget}"
    drawn = FIGURES["front"].draw(scores, chosen, name, stem, sign=sign, seconds_per_evaluation=seconds)
    notes = [
        f"Made by scripts/tune.py from {options.file}: {chosen.description}, {chosen.nfe} evaluations.",
        f"The cheapest setting with at most {budget} evaluations that is not measurably worse than the best:",
        f"mean {name} {sign * scores[chosen]:.4f} over the middle {size} pixels of {len(losses[chosen])} images.",
        "The front:",
        *(f"  {line}" for line in lines),
    ]
    written = write_new(output, tuned_options(resolved(options), chosen, notes))
    print(f"wrote {written} and {drawn[0]}; run it: python test.py -opt {written}")
    if store is not None:
        save_recommending(
            bench.restorer, locate(options.path.pretrain_model_G or ""), store, Solver(**chosen.options())
        )
        print(f"wrote {store}: restore.py, the page and load_restorer take this solver by default")
    return 0


def check_can_be_stored(options: Options, target: Path) -> None:
    """Raise OptionsError for a place that no weights can be written to, before anything is measured."""
    if target.suffix != ".safetensors":
        raise OptionsError(f"{target}: expected a name ending in .safetensors")
    if target.exists():
        raise OptionsError(f"{target}: exists already; choose another name")
    if options.path.pretrain_model_G is None:
        raise options.error(("path", "pretrain_model_G"), "missing, nothing to store a solver with")


def save_recommending(restorer: Restorer, weights: Path, target: Path, solver: Solver) -> None:
    """Write the weights of a restorer to a new file that describes itself and recommends a solver."""
    known = restorer.metadata
    assert known is not None
    metadata = replace(
        known,
        fit_target=restorer.fit_target,
        sde=sde_settings(restorer.sde),
        recommended=replace(known.recommended or Recommended(), solver=solver),
    )
    try:
        save_checkpoint(target, read_checkpoint(weights).state, metadata)
    except ValueError as error:
        raise OptionsError(str(error)) from error


def front_lines(losses: Mapping[Candidate, Losses], chosen: Candidate, metric: str, seconds: float) -> list[str]:
    """The front as a table with the choice marked; `seconds` are those of one evaluation."""
    scores = {candidate: mean(values) for candidate, values in losses.items()}
    best = front(scores)
    lines = [f"{'':2}{'NFE':>4}  {'s/image':>8}  {metric.upper():>8}  {'behind the best':>18}  setting"]
    for candidate in best:
        gap = deficit(losses[candidate], losses[best[-1]])
        lines.append(
            f"{'* ' if candidate == chosen else '  '}{candidate.nfe:4}  {candidate.nfe * seconds:8.2f}  "
            f"{METRICS[metric].sign * scores[candidate]:8.4f}  {gap.mean:9.4f} ± {gap.error:.4f}  "
            f"{candidate.description}"
        )
    return lines


def write_new(path: Path, text: str) -> Path:
    """Write a file, under a numbered name where another file is in its place."""
    with claim(path, wait=None):  # of several at once, each takes a name of its own
        number, free = 1, path
        while free.exists() and free.read_text() != text:
            number += 1
            free = path.with_name(f"{path.stem}-{number}{path.suffix}")
        write_atomically(free, text.encode())
    return free
