"""The files that restore.py reads and writes.

Results keep the names of the photos. Before a result is written, `restored.jsonl` in the results folder records its
settings and content (SHA-256), and files are written atomically. So an interrupted run resumes where it stopped,
results made with other settings are not reused, and files not written by restore.py are never overwritten.
"""

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config import difference
from ..data.images import SUFFIXES
from ..runtime.files import JsonLines, digest, read_json_lines, write_atomically

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
        found = [(path, name) for path, name in _matches(given) if path == Path(given) or path.absolute() not in made]
        if not found:
            problems.append(_nothing_found(given))
        for path, name in found:
            if path.absolute() in photos:
                continue
            # Some file systems do not distinguish A from a.
            results = [result.lower() for result in names(name)]
            other = next((taken[result] for result in results if result in taken), None)
            if other is not None:
                problems.append(f"left out: {path}: its result {name} would have the same name as one of {other}")
            elif path.resolve() == (output / name).resolve():
                problems.append(f"left out: {path}: its result would replace it; choose another folder with -o")
            else:
                photos[path.absolute()] = Photo(path, name)
                taken |= dict.fromkeys(results, path)
    return list(photos.values()), problems


def _matches(given: str) -> Iterator[tuple[Path, str]]:
    path = Path(given).expanduser()
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            within = file.relative_to(path)
            if _is_photo(file) and not any(part.startswith(".") for part in within.parts):
                yield file, within.as_posix()
    elif path.exists():
        yield path, path.name
    elif glob.has_magic(given):
        fixed = Path(*_without_magic(path.parts))
        for match in sorted(glob.glob(str(path), recursive=True)):  # noqa: PTH207  (Path.glob rejects absolute patterns)
            if _is_photo(Path(match)):
                yield Path(match), os.path.relpath(match, fixed)


def _without_magic(parts: Iterable[str]) -> list[str]:
    fixed = []
    for part in parts:
        if glob.has_magic(part):
            break
        fixed.append(part)
    return fixed


def _is_photo(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and path.is_file()


def _nothing_found(given: str) -> str:
    if Path(given).expanduser().is_dir():
        return f"{given}: no images in this folder ({', '.join(SUFFIXES)})"
    return f"{given}: no image matches this pattern" if glob.has_magic(given) else f"{given}: no such file or folder"


# ---- finished results


class Results:
    """The results folder and its records: which results exist, and with which settings they were made."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.folder, self.settings = folder, settings
        self._records: dict[str, dict[str, Any]] = {}  # the latest one of each photo
        made = set()
        path = folder / RECORDS
        for record in read_json_lines(path):
            try:
                made |= {folder.absolute() / file for file in record["files"]}
                self._records[record["name"]] = record
            except (KeyError, TypeError):
                continue
        self.made = frozenset(made)

    def state(self, name: str, source: str, wanted: Iterable[str]) -> tuple[bool, str]:
        """Whether a photo is done; if not, why its results may not be written, empty if they may.

        source   digest of the photo
        wanted   names of its results
        """
        record = self._records.get(name, {})
        ours = record.get("files", {})
        same = record.get("source") == source and record.get("settings") == self.settings
        there = [file for file in wanted if (self.folder / file).exists()]
        foreign = [file for file in there if digest(self.folder / file) != ours.get(file)]
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

    def write(self, name: str, source: str, files: dict[str, bytes]) -> None:
        """Record and write the results of a photo. The record comes first, so that every result is known to be ours."""
        digests = {file: digest(content) for file, content in files.items()}
        record = {"name": name, "source": source, "settings": self.settings, "files": digests}
        with closing(JsonLines(self.folder / RECORDS)) as lines:
            lines.append(record)
        self._records[name] = record
        for file, content in files.items():
            write_atomically(self.folder / file, content)
