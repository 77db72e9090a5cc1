"""What can be reproduced: methods, and the tables with the cells they need.

A cell is one method at one number of evaluations (NFE) on one task. A method on a task is one run with all its NFEs;
tables share their runs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..evaluation.tables import QUALITY
from ..figures import FIGURES
from ..names import TASKS
from ..rows import Column

PAPER_NFES = (100, 50, 20, 10, 5)
FEW = (8, 6, 4, 3, 2)
PC_NFES = (20, 10, 8, 6, 5, 4, 3, 2)
MANY = 20  # evaluations above which a run may take fewer images
# What a run takes by default: images and crops of photographs and of whatever else an option file names (test sets are
# restored in full), images at more than MANY evaluations, and the tasks with FID. None: all, or whole images.
DEFAULTS: dict[str, dict[str, Any]] = {
    "embedded": {"images": 10, "size": 256, "subset": 10, "fid": "figure"},
    "daclip": {"images": None, "size": None, "subset": None, "fid": "all"},
}
RECOMMENDED = "recommended"

_MR = {
    "algorithm": "mrsampler",
    "solver_type": "sde",
    "parameterization": "data",
    "time_schedule": "linear-lambda",
    "compat": "official",  # the paper's tables were made with its order of the last steps and its interpolated schedule
}


@dataclass(frozen=True)
class Method:
    """A solver of the tables: its options as a variant of an option file, and the NFEs it is run at.

    Those of the recommended solver come from the checkpoint.
    """

    title: str
    group: str
    options: dict[str, Any]
    nfes: tuple[int, ...]


METHODS = {
    "posterior-official": Method(
        "Posterior, published stride", "paper", {"algorithm": "posterior", "compat": "official"}, PAPER_NFES
    ),
    "euler-official": Method(
        "Euler, published stride", "paper", {"algorithm": "sde", "compat": "official"}, PAPER_NFES
    ),
    "mr-1": Method("MR Sampler-1", "paper", {**_MR, "order": 1}, PAPER_NFES + FEW),
    "mr-2": Method("MR Sampler-2", "paper", {**_MR, "order": 2}, PAPER_NFES + FEW),
    # At NFE = T = 100 a stride of one step is the published one: those cells are shared (`SAME`).
    "posterior": Method("Posterior, correct stride", "ours", {"algorithm": "posterior"}, PAPER_NFES[1:]),
    "euler": Method("Euler, correct stride", "ours", {"algorithm": "sde"}, PAPER_NFES[1:]),
    "pc": Method("mrsampler-pc", "ours", {"algorithm": "mrsampler-pc"}, PC_NFES),
    RECOMMENDED: Method("Recommended solver", "ours", {}, (*PC_NFES, 1)),
    "mr-2-noise": Method(
        "MR Sampler-2, noise prediction", "ablation", {**_MR, "order": 2, "parameterization": "noise"}, PAPER_NFES[1:]
    ),
    "mr-2-ode": Method("MR Sampler-2, ODE", "ablation", {**_MR, "order": 2, "solver_type": "ode"}, PAPER_NFES[1:]),
}
SAME = {("posterior", 100): "posterior-official", ("euler", 100): "euler-official"}


def known_nfes(method: str) -> tuple[int, ...]:
    """The NFEs of a method that have cells, its own or shared ones."""
    return (*METHODS[method].nfes, *(nfe for other, nfe in SAME if other == method))


STANDARD = tuple(key for key, method in METHODS.items() if method.group != "ablation")

SECONDS = (Column(name="seconds", label="s/image", lower_is_better=True, digits=3),)

# The paper's name of a task where it is not ours.
TABLE_OF_TASK: dict[str, str] = {task: {"uncompleted": "inpainting"}.get(task, task) for task in TASKS}
_PRINTED = {
    "posterior-official": "Posterior",
    "euler-official": "Euler",
    "mr-1": "MR Sampler-1",
    "mr-2": "MR Sampler-2",
}


@dataclass(frozen=True)
class Entry:
    """A row of a table: our method, and what the paper calls it there (None: the paper has no such row)."""

    method: str
    printed: str | None = None
    title: str = ""


@dataclass(frozen=True)
class Part:
    """Rows on the same images: on one task, or the mean over all (`task` None)."""

    title: str
    task: str | None
    entries: tuple[Entry, ...]
    published: str | None = None  # name of the paper's table

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks whose cells it shows."""
        return TASKS if self.task is None else (self.task,)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table to reproduce."""

    name: str
    title: str
    parts: tuple[Part, ...]
    columns: tuple[Column, ...] = QUALITY
    about: str = ""
    nfes: tuple[int, ...] = field(default=(), compare=False)  # shown; default: all that a method is run at

    def runs(self) -> list[tuple[str, str]]:
        """The (task, method) pairs it needs."""
        pairs = [(task, entry.method) for part in self.parts for task in part.tasks for entry in part.entries]
        return list(dict.fromkeys(pairs))


def _entries(methods: Sequence[str]) -> tuple[Entry, ...]:
    return tuple(Entry(method, _PRINTED.get(method)) for method in methods)


def _task_table(task: str) -> Table:
    name = TABLE_OF_TASK[task]
    title = "Inpainting" if task == "uncompleted" else task.capitalize()
    return Table(name=name, title=title, parts=(Part(title, task, _entries(STANDARD), name),))


_OPTIMAL = (Entry("mr-2", "MR Sampler-SDE-2"), Entry("mr-1"), Entry("pc"), Entry(RECOMMENDED))
_TABLES = (
    Table(
        name="overview",
        title="All ten tasks",
        parts=(Part("Mean over the tasks", None, _entries(STANDARD)),),
        about="Means over the ten tasks, ours and the paper's.",
    ),
    *(_task_table(task) for task in TASKS),
    Table(
        name="parameterization",
        title="Ablation: noise against data prediction",
        parts=(
            Part(
                "Rainy, MR Sampler-2, SDE",
                "rainy",
                (
                    Entry("mr-2-noise", "Noise Prediction", "noise prediction"),
                    Entry("mr-2", "Data Prediction", "data prediction"),
                ),
                "parameterization",
            ),
        ),
        nfes=PAPER_NFES[1:],
        about="With noise prediction the second-order SDE scheme is unstable for steps h > 0.536 in lambda: below "
        "19 evaluations on a uniform grid, whatever the network.",
    ),
    Table(
        name="solver-type",
        title="Ablation: ODE against SDE",
        parts=(
            Part(
                "Inpainting, MR Sampler-2, data prediction",
                "uncompleted",
                (Entry("mr-2-ode", "ODE", "ODE"), Entry("mr-2", "SDE", "SDE")),
                "solver-type",
            ),
        ),
        nfes=PAPER_NFES[1:],
    ),
    Table(
        name="wall-clock",
        title="Wall-clock time",
        parts=tuple(
            Part(
                task.capitalize(),
                task,
                (
                    Entry("posterior-official", "Posterior Sampling", "Posterior"),
                    Entry("mr-2", "MR Sampler-2"),
                    Entry("pc"),
                    Entry(RECOMMENDED),
                ),
                f"wall-clock-{task}",
            )
            for task in ("low-light", "motion-blurry")
        ),
        columns=SECONDS,
        about="The paper measured an NVIDIA A800 with DA-CLIP's network. The time is the network's: it goes with "
        "the number of evaluations and hardly depends on the solver. Ours are seconds of a machine with other work and "
        "have no error: only their growth with NFE counts.",
    ),
    Table(
        name="optimal-nfe",
        title="Optimal number of evaluations",
        parts=(Part("Snowy", "snowy", _OPTIMAL, "optimal-nfe"),),
    ),
)
TABLES = {table.name: table for table in _TABLES}


def full_table(task: str, nfes: tuple[int, ...]) -> Table:
    """The recommended solver on the whole test set of a task, beside what the paper printed for few evaluations."""
    name = TABLE_OF_TASK[task]
    printed = tuple(Entry(method, _PRINTED[method]) for method in ("mr-1", "mr-2"))
    part = Part(task, task, (Entry(RECOMMENDED), *printed), name)
    return Table(name=f"full-{name}", title=task, parts=(part,), nfes=nfes)


DATASETS = "datasets"  # has no cells


def all_runs(names: Iterable[str]) -> list[tuple[str, str]]:
    """The (task, method) pairs that some tables and figures need, task by task."""
    # A figure that stores nothing shows the cells of all tables.
    tables = ["overview" if name in FIGURES and not FIGURES[name].stored else name for name in names]
    pairs = {pair for name in tables if name in TABLES for pair in TABLES[name].runs()}
    return [(task, method) for task in TASKS for method in METHODS if (task, method) in pairs]
