"""The numbers of the paper's tables, as printed, from options/paper/tables.yml."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from ..runtime.paths import PROJECT

FILE = PROJECT / "options" / "paper" / "tables.yml"


@dataclass(frozen=True, kw_only=True)
class Remark:
    """A printed number that is, or may be, a misprint."""

    table: str
    nfe: int
    method: str
    metric: str
    printed: float
    why: str
    certain: bool


@dataclass(frozen=True, kw_only=True)
class PublishedTable:
    """One table of the paper; a row has a value for each column."""

    name: str
    title: str
    place: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    def records(self) -> list[dict[str, Any]]:
        """The rows by column name."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def values(self, method: str, nfe: int) -> dict[str, float]:
        """The metrics of a method at a number of evaluations, by our names; empty where the paper has none."""
        for record in self.records():
            if (record.get("method"), record.get("nfe")) == (method, nfe):
                return {key.lower(): value for key, value in record.items() if key not in ("nfe", "method")}
        return {}


@cache
def published() -> Mapping[str, PublishedTable]:
    """All tables by name."""
    return {
        name: PublishedTable(
            name=name,
            title=table["title"],
            place=table["place"],
            columns=tuple(table["columns"]),
            rows=tuple(tuple(row) for row in table["rows"]),
        )
        for name, table in _content()["tables"].items()
    }


@cache
def remarks() -> tuple[Remark, ...]:
    """What is probably misprinted, obvious cases first."""
    content = _content()
    return tuple(
        Remark(**entry, certain=kind == "misprints") for kind in ("misprints", "doubtful") for entry in content[kind]
    )


def remark_on(table: str, method: str, nfe: int, metric: str) -> Remark | None:
    """The remark on one number, if there is one; `metric` by our name."""
    wanted = (table, method, nfe, metric)
    found = (one for one in remarks() if (one.table, one.method, one.nfe, one.metric.lower()) == wanted)
    return next(found, None)


@cache
def _content() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return content
