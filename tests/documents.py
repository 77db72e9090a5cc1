"""What the README and the documentation show: their commands and their Python blocks."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
_MADE = {ROOT / "docs" / "results"}  # written by commands, and tested with them
PAGES = [
    ROOT / "README.md",
    ROOT / "options" / "README.md",
    ROOT / "pretrained" / "README.md",
    ROOT / ".github" / "SECURITY.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if not _MADE & set(path.parents)),
]
# What a line begins with that is a command.
STARTERS = ("make", "python", ".venv/bin/", "pip", "torchrun", "mr-sampler", "pre-commit", "docker", "cp", "git")

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_VARIABLE = re.compile(r"[A-Z_]+=\S*")


@dataclass(frozen=True)
class Block:
    """A block of code."""

    page: str
    language: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command line, without variables and comments; redirections are names of files."""

    page: str
    words: tuple[str, ...]
    reads: str | None = None
    writes: str | None = None

    @property
    def text(self) -> str:
        """The line, without the folder of the environment's programs."""
        return shlex.join((self.words[0].removeprefix(".venv/bin/"), *self.words[1:]))

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, without their common indentation."""
    found = []
    for indent, language, text in _FENCE.findall(page.read_text()):
        lines = (line.removeprefix(indent) for line in text.splitlines())
        found.append(Block(str(page.relative_to(ROOT)), language, "\n".join(lines) + "\n"))
    return found


def is_command(line: str) -> bool:
    """Whether a line begins like a command and has more than one word."""
    words = [word for word in line.split() if not _VARIABLE.fullmatch(word)]
    first = words[0] if words else ""
    return len(words) > 1 and any(first == each or (each.endswith("/") and first.startswith(each)) for each in STARTERS)


def commands(page: Path) -> list[Command]:
    """The lines of bash blocks, and indented lines and inline code that are commands, each once."""
    lines = [line for block in blocks(page) if block.language == "bash" for line in block.text.splitlines()]
    prose = _FENCE.sub("", page.read_text())
    lines += [line.strip() for line in prose.splitlines() if line.startswith("    ") and is_command(line)]
    lines += [code for code in _INLINE.findall(prose) if is_command(code)]
    name = str(page.relative_to(ROOT))
    return list(dict.fromkeys(command(name, line) for line in lines if shlex.split(line, comments=True)))


def command(page: str, line: str) -> Command:
    """A line of a page, taken apart."""
    words = shlex.split(line, comments=True)
    while words and _VARIABLE.fullmatch(words[0]):
        words.pop(0)
    files = {word: words[i + 1] for i, word in enumerate(words) if word in ("<", ">")}
    end = min([words.index(word) for word in files], default=len(words))
    return Command(page, tuple(words[:end]), files.get("<"), files.get(">"))
