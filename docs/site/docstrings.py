"""Docstrings of this project as Markdown: its aligned lines of names and texts become tables, examples code."""

import re
from typing import Any

import griffe

_ROW = re.compile(r"(?P<name>\S.*?)(?P<gap>\s{2,})(?P<text>\S.*)")


class Docstrings(griffe.Extension):
    """Rewrites every docstring that griffe reads."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text: str) -> str:
    """The docstring with tables and examples.

    >>> print(markdown("Adds.\\n\\na, b   numbers,\\n       both finite\\nc      another"))
    Adds.
    <BLANKLINE>
    | | |
    |---|---|
    | `a`, `b` | numbers, both finite |
    | `c` | another |
    """
    return "\n\n".join(_block(block) for block in re.split(r"\n\n+", text.strip("\n")))


def _block(block: str) -> str:
    lines = block.splitlines()
    if block.startswith(">>>"):
        installed = re.sub(r"\bfrom codes\b", "from mr_sampler", block)
        return f"```pycon\n{installed}\n```"
    if block.startswith("    "):
        return block
    rows = _rows(lines)
    if rows is None:
        return block
    table = [f"| {', '.join(f'`{name}`' for name in names.split(', '))} | {text} |" for names, text in rows]
    return "\n".join(["| | |", "|---|---|", *table])


def _rows(lines: list[str]) -> list[tuple[str, str]] | None:
    """Names and texts of a block in two columns, None for other text."""
    first = _ROW.fullmatch(lines[0])
    if first is None:
        return None
    column, rows = first.start("text"), []
    for line in lines:
        name, text = line[:column].strip(), line[column:].strip().replace("|", "\\|")
        if line[column - 2 : column].strip() or not text:
            return None
        if name:
            rows.append((name, text))
        else:
            rows[-1] = (rows[-1][0], f"{rows[-1][1]} {text}")
    return rows
