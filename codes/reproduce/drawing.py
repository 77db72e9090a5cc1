"""The figures of the report, drawn from the cells and from a few restorations with stored trajectories."""

from collections.abc import Sequence
from pathlib import Path

from ..figures import FIGURES, Figure
from ..figures.curves import CurvePoint
from ..figures.stored import read_items
from ..names import TASKS
from .catalogue import RECOMMENDED, TABLE_OF_TASK, known_nfes
from .published import published
from .results import METRICS, Results

DATA = "figure-data"
NAMES = tuple(FIGURES)

_LEGEND = {
    "posterior-official": "Posterior",
    "euler-official": "Euler",
    "mr-1": "MR Sampler-1",
    "mr-2": "MR Sampler-2",
    "posterior": "Posterior, correct strides",
    "euler": "Euler, correct strides",
    "pc": "mrsampler-pc",
    RECOMMENDED: "recommended",
}


def curve_points(results: Results) -> list[CurvePoint]:
    """Every cell of the task tables, and the paper's numbers where model or images are its own."""
    points = []
    for task in TASKS:
        for method, name in _LEGEND.items():
            for nfe in known_nfes(method):
                cell = results.cell(task, method, nfe)
                if cell is not None:
                    points.append(CurvePoint(task=task, method=name, nfe=nfe, values=dict(cell.metrics)))
        if results.same_model or results.is_whole_set(task):
            for record in published()[TABLE_OF_TASK[task]].records():
                values: dict[str, float | None] = {name: float(record[name.upper()]) for name in METRICS}
                points.append(
                    CurvePoint(task=task, method=record["method"], nfe=record["nfe"], values=values, published=True)
                )
    return points


def _from_cells(figure: Figure, results: Results, stem: Path) -> list[Path]:
    """LPIPS of all tasks, and FID of those that have it; in one picture where all have."""
    points = curve_points(results)
    known = {point.task for point in points if point.values.get("fid") is not None and not point.published}
    if known == {point.task for point in points}:
        return [figure.draw(points, stem)[0]]
    pictures = [figure.draw(points, stem, ["lpips"])[0]]
    if known:
        chosen = [point for point in points if point.task in known]
        pictures.append(figure.draw(chosen, stem.with_name(f"{stem.name}-fid"), ["fid"])[0])
    return pictures


def _pictures(figure: Figure, results: Results, data: Path, out: Path) -> list[Path]:
    stem = out / figure.name
    if figure.stored and (data / f"{figure.name}.npz").is_file():
        return [figure.draw(*(read_items(data / f"{file}.npz", kind) for file, kind in figure.stored), stem)[0]]
    if not figure.stored and results.cells:
        return _from_cells(figure, results, stem)
    return sorted(out.glob(f"{figure.name}*.png"))


def draw(results: Results, root: Path, out: Path, names: Sequence[str]) -> list[tuple[str, str, Path]]:
    """Draw what can be drawn from the cells and from the data below `root`; (name, caption, PNG file) of each picture.

    Without their data, pictures of an earlier drawing are kept. A report away from the results gets PNG files alone:
    SVG files with images in them are too large to keep.
    """
    found = []
    for figure in (FIGURES[name] for name in NAMES if name in names):
        caption = f"{figure.title}. {figure.caption}"
        for i, picture in enumerate(_pictures(figure, results, root / DATA, out / "figures")):
            found.append((picture.stem, caption if i == 0 else "The same for FID.", picture))
            if out != root:
                picture.with_suffix(".svg").unlink(missing_ok=True)
    return found
