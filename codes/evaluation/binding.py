"""What binds the results folder of a test: all of its images come from the same weights, settings and files.

Solvers do not bind it: a later run adds its own, computes what is new and shows all of them. `made-with.json` holds the
settings, the checksums of the weights, and the solvers by label; every record holds a fingerprint of these, the options
of its solver and the checksums of its files, so that nothing is taken on trust and a damaged file can be written again.
"""

import functools
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from ..config import Options, OptionsError, difference, load_options, resolved, second_label, stem_of
from ..config.errors import show
from ..config.reading import parse
from ..data.sets import Sources, Task, sources_of
from ..names import FOLDER_NAME, is_folder_name
from ..networks.checkpoints import find_file
from ..networks.predictor import resolve_precision
from ..restoration.restorer import Restorer
from ..runtime.distributed import Process
from ..runtime.environment import write_environment
from ..runtime.files import digest, read_json, read_text, remove_leftovers, set_aside, write_json, write_text
from ..runtime.locks import claim
from ..runtime.paths import locate
from ..runtime.problems import Damaged, FileError
from ..solvers import Solver
from .folder import made_otherwise, make_folder
from .records import Record, is_label, read_records, read_scores, with_scores

log = logging.getLogger(__name__)

FILE = "made-with.json"
_SHOWN = 8  # changed images that a message names

Solvers = dict[str, dict[str, Any]]  # options by label


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A results folder that may be written to.

    made      fingerprint of the weights and settings
    labels    for each label of this run, the one that the solver has in this folder
    solvers   the options of all solvers of the folder by label, in the order in which they came
    """

    folder: Path
    made: str
    labels: dict[str, str]
    solvers: Solvers


@contextmanager
def opened(
    options: Options,
    tasks: Sequence[Task],
    restorer: Restorer,
    process: Process,
    *,
    fresh: bool = False,
    score_only: bool = False,
    relabel: bool = False,
) -> Iterator[Opened]:
    """Open the folder of a test and hold it until the block ends; another run waits. Every process calls this.

    Raises OptionsError if the folder was made with other weights, settings or files.

    fresh        take a new, numbered folder
    score_only   all images are scored again, so that the metrics' border may differ
    relabel      give a second label to a solver whose label another one has; else that is an error
    """
    check_names(options, tasks)
    with ExitStack() as stack:
        found = None
        if process.is_main:
            folder = make_folder(options, fresh)
            stack.enter_context(claim(folder, wait=None))
            remove_leftovers(folder)
            found = _bind(folder, options, tasks, restorer, score_only=score_only, relabel=relabel)
            write_environment(folder, restorer.device, process.world, restorer.precision)
        shared = process.gather(found)[0]
        assert shared is not None
        yield shared


# What a results folder has besides the folders of tasks.
_RESERVED = ("features", "options.yml", "environment.json", "inputs.jsonl", "scores.jsonl", FILE)


def check_names(options: Options, tasks: Sequence[Task]) -> None:
    """Raise OptionsError for a task whose name would lead out of the results folder, or to a file of its own."""
    sheets = {f"{task.name}.png" for task in tasks}
    for name in (task.name for task in tasks):
        own = name in _RESERVED or name in sheets or name.startswith(("records.", "summary."))
        if own or not is_folder_name(name):
            why = "results folders have a file of that name" if own else f"expected {FOLDER_NAME}"
            raise options.error(("datasets",), f"{show(name)} cannot be the name of a set of images: {why}")


def _bind(
    folder: Path, options: Options, tasks: Sequence[Task], restorer: Restorer, *, score_only: bool, relabel: bool
) -> Opened:
    now = made_with(options, restorer)
    made = fingerprint(now)
    records = with_scores(read_records(folder).values(), read_scores(folder))
    before, solvers = _known(folder, options, now, records)
    for record in records:
        if record.options:
            solvers.setdefault(record.solver, record.options)
    files = list(changed_files(tasks, records))
    changes = {
        "options": list(_changed_settings(before, now, records, None if score_only else options.metrics.crop_border)),
        "weights": list(_changed_weights(before, now, options)),
        "images": files[:_SHOWN] + ([f"and {len(files) - _SHOWN} more files"] if len(files) > _SHOWN else []),
    }
    if not any(changes.values()) and any(record.made not in ("", made) for record in records):
        changes["options"] = [f"which ones cannot be told: {FILE} was damaged or lost"]
    if any(changes.values()):
        what = " and ".join(kind for kind, lines in changes.items() if lines)
        raise made_otherwise(folder, what, (line for lines in changes.values() for line in lines))
    labels = choose_labels({label: solver_options(solver) for label, solver, _ in restorer.solvers}, solvers, relabel)
    for own, label in labels.items():
        if own != label:
            log.info(f"{own} is called {label} in {folder}, beside the solvers of earlier runs")
    write_json(folder / FILE, {**now, "solvers": solvers})
    write_text(folder / "options.yml", yaml.safe_dump(resolved(options), sort_keys=False, allow_unicode=True))
    return Opened(folder=folder, made=made, labels=labels, solvers=solvers)


# ---- what a folder is made with


def made_with(options: Options, restorer: Restorer) -> dict[str, Any]:
    """What all images of a folder have in common, as plain JSON."""
    try:
        dtype = resolve_precision(restorer.precision, restorer.device)
    except ValueError as error:
        raise OptionsError(f"{options.file}: {error}") from error
    given = {key: getattr(options.path, key) for key in ("pretrain_model_G", "pretrain_model_L", "daclip")}
    made: dict[str, Any] = {
        "seed": options.seed,
        "precision": "float32" if dtype is None else str(dtype).removeprefix("torch."),
        "tile": restorer.tile,
        "model": options.model,
        "fit_target": restorer.fit_target,
        "sde": {field.name: getattr(restorer.sde, field.name) for field in fields(restorer.sde) if field.init},
        "weights": {key: _content(find_file(locate(path))) for key, path in given.items() if path is not None},
    }
    if restorer.compile:  # left out otherwise, as in the folders of earlier versions
        made["compile"] = True
    plain: dict[str, Any] = json.loads(json.dumps(made, default=str))
    return plain


def _content(file: Path) -> str:
    """SHA-256 of a file of weights, computed once in a process that opens many folders with it."""
    state = file.stat()
    return _digest(file, state.st_size, state.st_mtime_ns, state.st_ctime_ns)


@functools.lru_cache
def _digest(file: Path, *state: int) -> str:
    return digest(file)


def fingerprint(made_with: Mapping[str, Any]) -> str:
    """Changes with anything in `made_with`."""
    return digest(json.dumps(made_with, sort_keys=True).encode())[:16]


def solver_options(solver: Solver) -> dict[str, Any]:
    """The options that make a solver, without those that are left to their defaults, as plain JSON.

    Without `fit_target`, which belongs to the network.
    """
    plain = asdict(Solver(solver.algorithm))
    chosen = {key: value for key, value in asdict(solver).items() if value != plain[key] and key != "fit_target"}
    found: dict[str, Any] = json.loads(
        json.dumps({"algorithm": solver.algorithm, "num_sample_steps": solver.nfe} | chosen)
    )
    return found


def _known(
    folder: Path, options: Options, now: dict[str, Any], records: Sequence[Record]
) -> tuple[dict[str, Any], Solvers]:
    """The settings and solvers of a folder, as far as it knows them."""
    path = folder / FILE
    try:
        found = read_json(path)
        if found is not None and not _binds(found):
            raise Damaged(f"{path}: damaged, not what binds a results folder")
    except Damaged as error:
        log.warning("%s; kept as %s, and written again from the records", error, set_aside(path).name)
        return {}, {}
    if found is not None:
        solvers = found.pop("solvers")
        return found, solvers
    try:
        written = None if any(record.made for record in records) else read_text(folder / "options.yml")
    except Damaged as error:
        if records:
            raise OptionsError(f"{error}; what the images there were made with is lost: --fresh") from None
        written = None
    return ({}, {}) if written is None else _earlier(folder, written, options, now)


def _binds(found: Any) -> bool:
    """Whether the content of `made-with.json` is what `_bind` writes there."""
    sections = (found.get("solvers"), found.get("weights", {})) if isinstance(found, dict) else (None,)
    return all(isinstance(section, dict) for section in sections) and all(
        is_label(label) and isinstance(options, dict) for label, options in found["solvers"].items()
    )


def _earlier(folder: Path, written: str, options: Options, now: dict[str, Any]) -> tuple[dict[str, Any], Solvers]:
    """The settings and solvers of a folder of an earlier version, which wrote its options alone."""
    content, _ = parse(str(folder / "options.yml"), written)
    if not isinstance(content, dict) or "train" in content:
        raise OptionsError(f"{folder}: is the folder of a training; give this run another name")
    log.info(f"{folder}: is of an earlier version; weights and images are taken for those that it was made with")
    solvers = {
        label: solver_options(Solver(**arguments))
        for label, arguments in load_options(folder / "options.yml").solvers()
    }
    own = resolved(options)
    before = {key: content[key] for key in ("seed", "tile") if key in content}
    same = content.get("precision") == own["precision"]
    return {**now, **before, "precision": now["precision"] if same else content.get("precision")}, solvers


# ---- what changed


def _changed_settings(
    before: Mapping[str, Any], now: Mapping[str, Any], records: Iterable[Record], border: int | None
) -> Iterator[str]:
    if before:
        before, now = ({"compile": False, **made} for made in (before, now))
        yield from difference(
            *({key: made[key] for key in now if key != "weights" and key in made} for made in (before, now))
        )
    if border is not None:
        for other in sorted({record.border for record in records if record.metrics} - {border}):
            yield f"metrics.crop_border: {other} -> {border} (--score-only scores all images again)"


def _changed_weights(before: Mapping[str, Any], now: Mapping[str, Any], options: Options) -> Iterator[str]:
    old, new = before.get("weights", now["weights"]), now["weights"]
    for key in {**old, **new}:
        if key not in new:
            yield f"path.{key}: not given"
        elif key not in old:
            yield f"path.{key}: was not given"
        elif old[key] != new[key]:
            yield f"path.{key}: {getattr(options.path, key)} has other content than before"


def changed_files(tasks: Sequence[Task], records: Iterable[Record]) -> Iterator[str]:
    """A line for each degraded or clean image that is not what an image on record was made from."""
    found: dict[tuple[str, str], set[Sources]] = {}
    for record in records:
        if record.lq or record.gt:
            found.setdefault((record.task, record.name), set()).add(Sources(record.lq, record.gt))
    items = [(task, item) for task in tasks for item in task.items if (task.name, item.name) in found]
    paths = {path for _, item in items for path in (item.lq, item.gt) if path is not None}
    with ThreadPoolExecutor(4, "check") as threads:
        contents = dict(zip(paths, threads.map(_content_or_none, paths), strict=True))
    told: set[str] = set()
    for task, item in items:
        lq, gt = (None if path is None else contents[path] for path in (item.lq, item.gt))
        if (item.lq is not None and lq is None) or (item.gt is not None and gt is None):
            continue  # reading it is going to say why
        present = sources_of(task, lq, gt)
        for before in found[task.name, item.name]:
            if before.lq != present.lq:
                made = f"{task.name}: its degraded images are made in another way: {before.lq} -> {present.lq}"
                told.add(made if item.lq is None else f"{item.lq}: has other content than before")
            if before.gt and present.gt and before.gt != present.gt:
                told.add(f"{item.gt}: has other content than before")
    yield from sorted(told)


def _content_or_none(path: Path) -> str | None:
    try:
        return digest(path)
    except (OSError, FileError):
        return None


# ---- labels


def choose_labels(wanted: Mapping[str, dict[str, Any]], solvers: Solvers, relabel: bool) -> dict[str, str]:
    """The labels in a folder of the solvers of a run; `solvers` are those of the folder, and get the new ones.

    A solver that the folder has keeps its label there. With `relabel`, one that differs from a solver of the folder in
    more than the number of evaluations gets a label that says so, even if its own would be free.
    """
    labels = {}
    before = dict(solvers)
    for label, options in wanted.items():
        same = [known for known, other in solvers.items() if other == options]
        if same:
            labels[label] = label if label in same else same[0]
            continue
        taken = {known.lower(): known for known in solvers}
        owner = taken.get(label.lower())
        if owner is not None and not relabel:
            changes = ", ".join(difference(solvers[owner], options))
            raise OptionsError(f"{label}: is the label of another solver in this folder ({changes})")
        alike = (
            known for known, other in before.items() if stem_of(known) == stem_of(label) and _differ(other, options)
        )
        other = owner or (next(alike, None) if relabel else None)
        labels[label] = label if other is None else second_label(label, options, solvers[other], set(taken))
        solvers[labels[label]] = options
    return labels


def _differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two solvers differ in more than their number of evaluations."""
    return {**one, "num_sample_steps": 0} != {**other, "num_sample_steps": 0}
