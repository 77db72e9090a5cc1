"""The runs behind the solver study: every candidate with every network, trained and synthetic."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from ..config import Options
from ..data.images import read_image, save_image, to_uint8
from ..data.pairs import Item
from ..data.sets import Task
from ..restoration.restorer import Restorer
from ..runtime.environment import write_environment
from ..runtime.files import write_json
from ..sde import MeanRevertingSDE
from . import report
from .bench import Bench, Stopped, open_benches, open_folder
from .candidates import Candidate
from .synthetic import IMAGES, SIZE, SYNTHETIC, Problem, SyntheticNetwork


def run(
    networks: Mapping[str, Options],
    folder: Path,
    candidates: Sequence[Candidate],
    *,
    images: int,
    size: int,
    synthetic: Sequence[str] = (),
    document: Path | None = None,
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
            made = [synthetic_bench(name, folder, benches[0], bind=not dry_run) for name in synthetic]
            benches = [*made, *benches]
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
            restorer = benches[-1].restorer
            write_environment(folder, restorer.device, process.world, restorer.precision)
    except Stopped as error:
        print(error, file=sys.stderr)
        return error.code
    report.render(folder, document)
    return 0


def synthetic_bench(name: str, folder: Path, like: Bench, *, bind: bool = True) -> Bench:
    """A bench of a synthetic network; its images are kept in `folder`, scores of exact samples beside the records."""
    row = SYNTHETIC[name]
    problem, sde = row.problem(), MeanRevertingSDE()
    data = folder / "data" / name
    items = tuple(Item(f"{i:02}", data / "LQ" / f"{i:02}.png", data / "GT" / f"{i:02}.png") for i in range(IMAGES))
    if like.process.is_main:
        for number, item in enumerate(items):
            _save(problem, number, item)
    like.process.barrier()
    if bind:
        made = {"weights": f"synthetic: {row.about}", "problem": repr(problem), "error": repr(row.error)}
        open_folder(folder / name, {**made, "images": IMAGES, "size": SIZE}, like.process)
        if like.process.is_main and not (folder / name / report.EXACT).is_file():
            write_json(folder / name / report.EXACT, _exact_scores(problem, items, like))
    return replace(
        like,
        folder=folder / name,
        tasks=(Task(name=name, items=items),),
        restorer=Restorer(network=SyntheticNetwork(problem, sde, row.error), sde=sde, fit_target="data", tile="off"),
    )


def _save(problem: Problem, number: int, item: Item) -> None:
    assert item.lq is not None and item.gt is not None
    if not item.lq.is_file():
        clean, degraded = (torch.from_numpy(image).clamp(0, 1) for image in problem.draw(number))
        save_image(to_uint8(clean), item.gt)
        save_image(to_uint8(degraded), item.lq)  # last: it marks a complete pair


def _exact_scores(problem: Problem, items: Sequence[Item], like: Bench) -> dict[str, dict[str, float | None]]:
    """The scores of one exact sample of the posterior of every image: what a perfect solver would get."""
    found: dict[str, dict[str, float | None]] = {}
    for number, item in enumerate(items):
        assert item.lq is not None and item.gt is not None
        mu = read_image(item.lq).double().numpy()
        drawn = problem.posterior(mu).draw(np.random.default_rng([3, number])) + problem.coordinates(mu)
        pixels = to_uint8(torch.from_numpy(problem.image(drawn)).clamp(0, 1))
        found[item.name] = dict(like.score(pixels, to_uint8(read_image(item.gt))))
    return found
