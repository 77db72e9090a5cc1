"""The files that restore.py reads and writes.

Results keep the names of the photos. Before a result is written, `restored.jsonl` in the results folder records its
settings and content (SHA-256), and files are written atomically. So an interrupted run resumes where it stopped,
results made with other settings are not reused, and files not written by restore.py are never overwritten.
"""

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config import difference
from ..data.images import LOOK_LIKE_IMAGES, SUFFIXES
from ..names import is_file_name
from ..runtime.files import JsonLines, digest, read_lines, remove_leftovers, write_atomically
from ..runtime.locks import claim
from ..runtime.problems import FileError, check_regular, explain, refuse_link

RECORDS = "restored.jsonl"


@dataclass(frozen=True)
class Photo:
    """A file to restore, and the name of its result in the results folder."""

    path: Path
    name: str


# ---- which files


def find_photos(
    inputs: Sequence[str], output: Path, names: Callable[[str], Iterable[str]], made: frozenset[Path]
) -> tuple[list[Photo], list[str]]:
    """The photos that match files, folders (searched recursively) and patterns, and a message for each problem.

    Results keep their subfolders relative to the folder or to the fixed part of the pattern.

    names   gives the names of a photo's results
    made    results of earlier runs; skipped unless named explicitly
    """
    photos: dict[Path, Photo] = {}
    problems: list[str] = []
    taken: dict[str, Path] = {}
    for given in inputs:
        matches, wrong = _matches(given)
        problems += wrong
        found = [(path, name) for path, name in matches if path == Path(given) or path.absolute() not in made]
        if not found and not wrong:
            problems.append(_nothing_found(given))
        for path, name in found:
            if path.absolute() in photos:
                continue
            # Some file systems do not distinguish A from a.
            results = [result.lower() for result in names(name)]
            other = next((taken[result] for result in results if result in taken), None)
            if other is not None:
                problems.append(f"left out: {path}: its result {name} would have the same name as one of {other}")
            elif os.path.realpath(path) == os.path.realpath(output / name):  # Path.resolve raises for circles
                problems.append(f"left out: {path}: its result would replace it; choose another folder with -o")
            else:
                photos[path.absolute()] = Photo(path, name)
                taken |= dict.fromkeys(results, path)
    return list(photos.values()), problems


Matches = tuple[list[tuple[Path, str]], list[str]]


def _matches(given: str) -> Matches:
    """The photos that an argument stands for, with the names of their results, and what is wrong with others."""
    path = _expanded(given)
    try:
        if path.is_dir():
            return _sorted_out(*_below(path), path)
        if path.exists():
            return [(path, path.name)], []
    except OSError as error:  # a folder on the way that may not be entered, or a name that is too long
        return [], [f"left out: {explain(error, path, 'cannot be read')}"]
    if not glob.has_magic(given):
        return [], []
    fixed = _without_magic(path.parts)
    base = Path(*fixed)
    found = _globbed(base, path.parts[len(fixed) :])
    return _sorted_out(found, [], base)


def _globbed(base: Path, pattern: Sequence[str]) -> list[Path]:
    """What matches, as glob.glob finds it, but ** does not follow links: they may lead in circles."""
    parts = [part if part == "**" else re.sub(r"\*{2,}", "*", part) for part in pattern]
    if parts[-1] == "**":
        parts.append("*")
    hidden = any(part.startswith(".") for part in parts)
    found = base.glob("/".join(parts))
    return [
        path
        for path in dict.fromkeys(found)
        if hidden or not any(part.startswith(".") for part in path.parts[len(base.parts) :])
    ]


def _expanded(given: str) -> Path:
    """The path with ~ replaced, unless that names nobody."""
    try:
        return Path(given).expanduser()
    except RuntimeError:
        return Path(given)


def _below(folder: Path) -> tuple[list[Path], list[str]]:
    """All files below a folder except hidden ones, and a message for each folder that cannot be read."""
    files: list[Path] = []
    problems: list[str] = []

    def unreadable(error: OSError) -> None:
        problems.append(f"left out: {explain(error, harm='cannot be read')}")

    for place, folders, names in os.walk(folder, onerror=unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += [Path(place, name) for name in names if not name.startswith(".")]
    return files, problems


def _sorted_out(files: list[Path], problems: list[str], base: Path) -> Matches:
    """The photos among some files, named relative to `base`; what looks like one and is none gets a message."""
    photos = []
    for path in sorted(files):
        suffix = path.suffix.lower()
        if suffix in LOOK_LIKE_IMAGES and path.is_file():
            problems.append(f"left out: {path}: {suffix} files are not supported; save it as PNG")
        elif suffix in SUFFIXES and not path.is_dir():
            try:
                check_regular(path)
                relative = os.path.relpath(path, base)
                # A pattern such as */../../x.png leads out of its own base, as its result must not.
                photos.append((path, path.name if Path(relative).parts[0] == os.pardir else relative))
            except FileNotFoundError:
                problems.append(f"left out: {path}: a link to a file that does not exist")
            except FileError as error:
                problems.append(f"left out: {error}")
    return photos, problems


def _without_magic(parts: Iterable[str]) -> list[str]:
    fixed = []
    for part in parts:
        if glob.has_magic(part):
            break
        fixed.append(part)
    return fixed


def _nothing_found(given: str) -> str:
    if _expanded(given).is_dir():
        return f"{given}: no images in this folder ({', '.join(SUFFIXES)})"
    return f"{given}: no image matches this pattern" if glob.has_magic(given) else f"{given}: no such file or folder"


# ---- finished results


class Results:
    """The results folder and its records: which results exist, and with which settings they were made.

    Several processes may work in one folder. Each photo is claimed before its state is asked for, and until its
    results are written; so one of them restores it, and the others find it done.
    """

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.folder, self.settings = folder, settings
        self._records: dict[str, dict[str, Any]] = {}  # the latest one of each photo
        self._seen: tuple[int, int] | None = None
        self.damaged: list[int] = []
        self.made: frozenset[Path] = frozenset()
        refuse_link(folder / RECORDS)
        self._refresh()

    def _refresh(self) -> None:
        """Read the records again if they have changed."""
        path = self.folder / RECORDS
        seen = _version(path)
        if seen == self._seen:
            return
        lines = read_lines(path)
        self._seen = seen
        self.damaged = lines.damaged if lines else []
        made = set()
        for record in lines.values if lines else []:
            if _is_record(record):
                record["settings"] = {"strength": 1.0, **record["settings"]}  # earlier versions knew no other
                made |= {self.folder.absolute() / file for file in record["files"]}
                self._records[record["name"]] = record
        self.made = frozenset(made)

    @contextmanager
    def claimed(self, name: str, wait: float) -> Iterator[None]:
        """Hold a photo's results, with the newest records; raises Busy if another process has them for too long."""
        with claim(self.folder / name, wait=wait, say=lambda text: None):
            self._refresh()
            yield

    def tidy(self, names: Iterable[str]) -> None:
        """Remove what killed processes left behind in the folders of some results."""
        for folder in {(self.folder / name).parent for name in names}:
            remove_leftovers(folder, deep=False)

    def state(self, name: str, source: str, wanted: Iterable[str]) -> tuple[bool, str]:
        """Whether a photo is done; if not, why its results may not be written, empty if they may.

        source   digest of the photo
        wanted   names of its results
        """
        record = self._records.get(name, {})
        ours = record.get("files", {})
        same = record.get("source") == source and record.get("settings") == self.settings
        there = [file for file in wanted if os.path.lexists(self.folder / file)]
        foreign = [file for file in there if _content(self.folder / file) != ours.get(file)]
        if same and not foreign:
            return set(wanted) == set(there), ""
        if not there:
            return False, ""
        return (
            False,
            f"{self.folder / (foreign or there)[0]}: {self._reason(record, source, foreign)}; --overwrite replaces it",
        )

    def _reason(self, record: dict[str, Any], source: str, foreign: list[str]) -> str:
        if foreign or not record:
            return (
                "exists but was modified since restore.py wrote it"
                if record
                else "exists but is not a result of restore.py"
            )
        if record["source"] != source:
            return "was made from another photo with the same name"
        return "was made with other settings (" + ", ".join(difference(record["settings"], self.settings)) + ")"

    def write(self, name: str, source: str, files: dict[str, bytes], facts: dict[str, Any]) -> None:
        """Record and write the results of a photo. The record comes first, so that every result is known to be ours."""
        digests = {file: digest(content) for file, content in files.items()}
        record = {"name": name, "source": source, "settings": self.settings, **facts, "files": digests}
        path = self.folder / RECORDS
        with closing(JsonLines(path)) as lines:
            before, after = lines.append(record)
        self._records[name] = record
        if before == (
            self._seen[0] if self._seen else 0
        ):  # else other processes wrote records that are still to be read
            self._seen = after.st_size, after.st_mtime_ns
        for file, content in files.items():
            write_atomically(self.folder / file, content)


def _content(path: Path) -> str | None:
    """The digest of a file; None for a link to nowhere. Raises FileError for what a result cannot replace."""
    try:
        return digest(path)
    except FileNotFoundError:
        return None


def _version(path: Path) -> tuple[int, int] | None:
    """Size and time of a file, which tell whether it was changed; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns


def _is_record(value: dict[str, Any]) -> bool:
    """Whether a line has what a record has: others may have been written by hand."""
    files = value.get("files")
    return (
        all(isinstance(value.get(key), str) for key in ("name", "source"))
        and isinstance(value.get("settings"), dict)
        and isinstance(files, dict)
        and all(is_file_name(file) and isinstance(item, str) for file, item in files.items())
    )
