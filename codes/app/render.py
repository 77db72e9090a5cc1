"""HTML fragments and pictures for the web page. All text from outside is escaped."""

import base64
from collections.abc import Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

from .. import metrics as m
from ..data.contact_sheet import contact_sheet
from ..data.images import encode_image
from ..data.resizing import shrunk
from .jobs import Cell, Compared, Finished, Scores, Step

Image = NDArray[np.uint8]

_CELL = 320


def data_uri(image: Image, side: int) -> str:
    """An image as a data URI, at most `side` pixels a side."""
    return "data:image/jpeg;base64," + base64.b64encode(encode_image(shrunk(image, side), ".jpg")).decode()


def message(text: str, kind: str = "error") -> str:
    """A message to the user; empty if the text is."""
    role = "alert" if kind == "error" else "status"
    return f'<div class="note {kind}" role="{role}">{escape(text)}</div>' if text else ""


def progress(done: int, total: int, text: str) -> str:
    """A progress bar with a text."""
    share = 100 * done / max(total, 1)
    return (
        f'<div class="bar" role="progressbar" aria-valuenow="{share:.0f}" aria-valuemin="0" aria-valuemax="100">'
        f'<div class="fill" style="width:{share:.1f}%"></div><span>{escape(text)}</span></div>'
    )


def strip(images: Sequence[tuple[str, Image]], waiting: int = 0) -> str:
    """Images in a row, from degraded to restored, followed by `waiting` empty places."""
    figures = [
        f'<figure><img src="{data_uri(image, 128)}" alt="{escape(caption)}"><figcaption>{escape(caption)}</figcaption>'
        "</figure>"
        for caption, image in images
    ]
    figures += ['<figure class="waiting"><div></div><figcaption>&nbsp;</figcaption></figure>'] * waiting
    return f'<div class="strip" tabindex="0" aria-label="Restoration steps">{"".join(figures)}</div>'


def step_strip(step: Step, expected: int) -> str:
    """The strip of a running restoration."""
    return strip(step.strip, max(0, expected - len(step.strip)))


def facts(finished: Finished, solver: str) -> str:
    """Settings and time of a restoration in one line."""
    restoration = finished.restoration
    samples = len(restoration.samples)
    evaluations = f"{restoration.nfe} evaluation{'s' if restoration.nfe > 1 else ''}"
    parts = [solver, evaluations + (f" × {samples} samples" if samples > 1 else "")]
    parts += [f"seed {restoration.seeds[0]}", f"{finished.seconds:.1f} s"]
    if restoration.tile is not None:
        parts.append(f"in tiles of {restoration.tile}")
    return " · ".join(parts)


def score_table(rows: dict[str, Scores]) -> str:
    """A table of metrics; the best value of each column is marked."""
    names = list(dict.fromkeys(name for scores in rows.values() for name in scores))
    if not names:
        return ""
    heads = "".join(f"<th>{escape(_head(name))}</th>" for name in names)
    best = {name: _best(name, [scores.get(name) for scores in rows.values()]) for name in names}
    body = ""
    for label, scores in rows.items():
        cells = ""
        for name in names:
            value = scores.get(name)
            marked = ' class="best"' if value is not None and value == best[name] and len(rows) > 1 else ""
            cells += f"<td{marked}>{_number(name, value)}</td>"
        body += f"<tr><th>{escape(label)}</th>{cells}</tr>"
    return f'<table class="scores"><thead><tr><th></th>{heads}</tr></thead><tbody>{body}</tbody></table>'


def _head(name: str) -> str:
    return f"{m.METRICS[name].label} {'↓' if m.METRICS[name].lower_is_better else '↑'}"


def _best(name: str, values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    return min(known) if m.METRICS[name].lower_is_better else max(known)


def _number(name: str, value: float | None) -> str:
    return "n/a" if value is None else f"{value:.{m.METRICS[name].digits}f}"


def grid(compared: Compared) -> str:
    """Solvers in rows, numbers of evaluations in columns; the best PSNR and LPIPS are marked."""
    cells = [cell for cell in compared.cells.values() if isinstance(cell, Cell)]
    best = {name: _best(name, [cell.scores.get(name) for cell in cells]) for name in ("psnr", "lpips")}
    heads = "".join(f"<th>{nfe} evaluation{'s' if nfe > 1 else ''}</th>" for nfe in compared.nfes)
    width = f"min-width:{7 * len(compared.nfes)}rem"  # wider than the screen: it scrolls
    body = ""
    for solver in compared.solvers:
        row = "".join(_grid_cell(solver, nfe, compared.cells.get((solver, nfe)), best) for nfe in compared.nfes)
        body += f'<tr><th colspan="{len(compared.nfes)}"><span>{escape(solver)}</span></th></tr><tr>{row}</tr>'
    known = [("degraded", compared.degraded)]
    known += [] if compared.reference is None else [("reference", compared.reference)]
    return (
        f'<div class="grid" tabindex="0" aria-label="Comparison"><table style="{width}"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{strip(known)}"
    )


def _grid_cell(solver: str, nfe: int, cell: Cell | str | None, best: dict[str, float | None]) -> str:
    if cell is None:
        return '<td class="waiting"><div></div></td>'
    if isinstance(cell, str):
        return f'<td class="failed">{escape(cell)}</td>'
    facts = []
    for name, unit in (("psnr", " dB"), ("lpips", " LPIPS")):
        value = cell.scores.get(name)
        if value is not None:
            text = f"{_number(name, value)}{unit}"
            facts.append(f'<b class="best">{text}</b>' if value == best[name] else f"<span>{text}</span>")
    facts.append(f"<span>{cell.seconds:.1f} s</span>")
    image = data_uri(cell.image, _CELL)
    return f'<td><img src="{image}" alt="{escape(solver)}, {nfe} evaluations"><small>{"".join(facts)}</small></td>'


def sheet(compared: Compared) -> Image:
    """A comparison as one picture, for download."""
    rows: list[list[Image | None]] = []
    captions: list[list[str]] = []
    for solver in compared.solvers:
        found = [compared.cells.get((solver, nfe)) for nfe in compared.nfes]
        rows.append([compared.degraded, *(cell.image if isinstance(cell, Cell) else None for cell in found)])
        captions.append([solver, *(_caption(cell) for cell in found)])
        if compared.reference is not None:
            rows[-1].append(compared.reference)
            captions[-1].append("")
    heads = ["degraded", *(f"NFE {nfe}" for nfe in compared.nfes)]
    return contact_sheet([*heads, "reference"] if compared.reference is not None else heads, rows, captions)


def _caption(cell: Cell | str | None) -> str:
    if not isinstance(cell, Cell):
        return "" if cell is None else "failed"
    parts = [f"{value:.2f} dB" for name, value in cell.scores.items() if name == "psnr" and value is not None]
    parts += [f"{value:.3f} LPIPS" for name, value in cell.scores.items() if name == "lpips" and value is not None]
    return ", ".join(parts)


def uncertainty(std: NDArray[np.float32]) -> tuple[Image, float]:
    """A heat map of a standard deviation (3, H, W), and the value (0 to 255) of its brightest colour."""
    import cv2

    spread = np.sqrt((std.astype(np.float64) ** 2).mean(axis=0))
    top = max(float(np.quantile(spread, 0.995)), 1 / 255)  # a few extreme pixels would leave the rest black
    scaled = np.clip(255 * spread / top, 0, 255).astype(np.uint8)
    colours = np.asarray(cv2.applyColorMap(scaled, cv2.COLORMAP_INFERNO), np.uint8)
    return np.ascontiguousarray(colours[..., ::-1]), 255 * top
