"""HTML fragments and pictures for the web page. All text from outside is escaped."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from .. import metrics as m
from ..data.contact_sheet import contact_sheet
from ..data.images import encode_image
from ..data.resizing import shrunk
from .jobs import Cell, Compared, Finished, Scores

Image = NDArray[np.uint8]

_CELL = 320


def data_uri(image: Image, side: int) -> str:
    """An image as a data URI, at most `side` pixels a side."""
    return "data:image/jpeg;base64," + base64.b64encode(encode_image(shrunk(image, side), ".jpg")).decode()


def message(text: str, kind: str = "error") -> str:
    """A message to the user; empty if the text is."""
    role = "alert" if kind == "error" else "status"
    return f'<div class="note {kind}" role="{role}">{escape(text)}</div>' if text else ""


def progress(done: float, total: float, text: str) -> str:
    """A progress bar with a text."""
    share = 100 * done / max(total, 1)
    return (
        f'<div class="bar" role="progressbar" aria-valuenow="{share:.0f}" aria-valuemin="0" aria-valuemax="100">'
        f'<div class="fill" style="width:{share:.1f}%"></div><span>{escape(text)}</span></div>'
    )


def strip(images: Sequence[tuple[str, Image]], waiting: int = 0) -> str:
    """Images in a row, from the input to the restoration, followed by `waiting` empty places."""
    figures = [
        f'<figure><img src="{data_uri(image, 128)}" alt="{escape(caption)}"><figcaption>{escape(caption)}</figcaption>'
        "</figure>"
        for caption, image in images
    ]
    figures += ['<figure class="waiting"><div></div><figcaption>&nbsp;</figcaption></figure>'] * waiting
    return f'<div class="strip" tabindex="0" aria-label="Restoration steps">{"".join(figures)}</div>'


def url(path: Path) -> str:
    """The address of a file of the page."""
    return f"/gradio_api/file={quote(str(path))}"


@dataclass(frozen=True, kw_only=True)
class PhotoView:
    """A photo in the list of results: a thumbnail with its state, and once it is restored what there is to see."""

    name: str
    thumbnail: str  # address
    state: str = "waiting"
    section: str = ""  # HTML


def results(photos: Sequence[PhotoView], archive: Path | None = None) -> str:
    """The list of photos, where there are several, and the result of each; page.js shows the one that is chosen."""
    first = next((i for i, photo in enumerate(photos) if photo.section), None)
    listed = ""
    if len(photos) > 1:
        for i, photo in enumerate(photos):
            image = f'<img src="{photo.thumbnail}" alt=""><span>{escape(photo.name)}</span>'
            usable = f'data-photo="{i}"' if photo.section else "disabled"
            listed += f'<button type="button" {usable}>{image}<small>{escape(photo.state)}</small></button>'
        listed = f'<div class="photos" aria-label="Photos">{listed}</div>'
        if archive is not None:
            listed += download(archive, "Download all (zip)", "zip")
    sections = "".join(
        f'<section class="photo{" first" if i == first else ""}" data-photo="{i}">{photo.section}</section>'
        for i, photo in enumerate(photos)
        if photo.section
    )
    return f'<div class="results">{listed}{sections}</div>'


def viewer(before: Path, after: Path, width: int, height: int) -> str:
    """Before and after with a divider between them and a common zoom; page.js moves both."""
    tools = "".join(
        f'<button type="button" data-zoom="{name}" title="{title}" aria-label="{title}">{sign}</button>'
        for name, title, sign in (("in", "Zoom in", "+"), ("out", "Zoom out", "−"), ("fit", "Whole photo", "⤢"))
    )
    return (
        f'<div class="viewer" style="aspect-ratio:{width}/{height};--ratio:{width / height:.4f}" data-width="{width}">'
        f'<div class="half before"><img src="{url(before)}" alt="before" draggable="false"></div>'
        f'<div class="half after"><img src="{url(after)}" alt="after" draggable="false"></div>'
        '<div class="divider" role="slider" tabindex="0" aria-label="Before and after" aria-valuemin="0" '
        'aria-valuemax="100" aria-valuenow="50"></div>'
        '<span class="tag left">before</span><span class="tag right">after</span>'
        f'<div class="tools">{tools}</div></div>'
    )


def download(path: Path, label: str, kind: str = "file") -> str:
    """A link that saves a file under its own name."""
    return f'<a class="download {kind}" href="{url(path)}" download="{escape(path.name)}">{escape(label)}</a>'


def figure(path: Path, kind: str, caption: str) -> str:
    """A picture with a caption and a link that saves it."""
    return (
        f'<figure class="{kind}"><img src="{url(path)}" alt="{escape(caption)}">'
        f"<figcaption>{escape(caption)} {download(path, 'save')}</figcaption></figure>"
    )


def facts(finished: Finished, strength: float | None, careful: bool) -> str:
    """Settings and time of a restoration in one line; `careful`: whether the network has a rule for the strength."""
    restoration = finished.restoration
    samples = len(restoration.samples)
    evaluations = f"{restoration.nfe} evaluation{'' if restoration.nfe == 1 else 's'}"
    parts = [finished.solver, evaluations + (f" × {samples} samples" if samples > 1 else "")]
    parts += [f"seed {restoration.seeds[0]}", f"{finished.seconds:.1f} s"]
    if restoration.tile is not None:
        parts.append(f"in tiles of {restoration.tile}")
    if careful or strength is not None:
        parts.append(f"strength {restoration.strength:.2f}" + ("" if strength is not None else " (automatic)"))
    return " · ".join(parts)


def recognised(found: dict[str, float] | None) -> str:
    """The recognised degradations with 5 % or more; empty where nothing recognises them."""
    shares = {} if found is None else {name: share for name, share in found.items() if share >= 0.05}
    items = "".join(
        f"<li><span>{escape('no degradation' if name == 'none' else name)}</span>"
        f'<meter value="{share:.3f}"></meter>{100 * share:.0f} %</li>'
        for name, share in sorted(shares.items(), key=lambda item: -item[1])[:4]
    )
    return f'<div class="recognised">Recognised<ul>{items}</ul></div>' if items else ""


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
    known = [("input", compared.degraded)]
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
    heads = ["input", *(f"NFE {nfe}" for nfe in compared.nfes)]
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
