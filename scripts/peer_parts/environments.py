"""Where peers live: an environment and an unpacked archive each, in a cache outside the repository."""

import json
import subprocess
import sys
from pathlib import Path

from codes.data.photos import PhotoError, fetch_npm, fetch_wheel
from codes.runtime.files import digest, write_atomically

from .rows import Peer

_FETCH = {"npm": fetch_npm, "pypi": fetch_wheel}


class Unavailable(Exception):
    """A peer that cannot be had, with the reason in one line."""


def python_of(peer: Peer, cache: Path) -> Path:
    """The interpreter that runs a peer; its environment is made if it is not there. Equal packages share one."""
    if not peer.installs:
        return Path(sys.executable)
    folder = cache / "environments" / digest(json.dumps(peer.installs).encode())[:12]
    python, mark = folder / "bin" / "python", folder / "installed.json"
    if not mark.is_file():
        print(f"{peer.title}: installing {', '.join(peer.installs)} into {folder}", flush=True)
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.installs])
        write_atomically(mark, (json.dumps(peer.installs) + "\n").encode())  # last: it marks a complete environment
    return python


def files_of(peer: Peer, cache: Path) -> Path:
    """The folder of a peer's unpacked archive, which is fetched if it is not there."""
    folder = cache / "files" / peer.name
    mark = folder / "fetched.json"
    if peer.archive and not mark.is_file():
        registry, _, package = peer.archive.partition(":")
        print(f"{peer.title}: fetching {package} ({registry}) into {folder}", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        for left in (*folder.glob("*.tgz"), *folder.glob("*.whl")):
            left.unlink()
        try:
            _FETCH[registry](package, peer.sha256, folder)
        except (PhotoError, OSError) as error:
            raise Unavailable(str(error)) from error
        write_atomically(mark, (json.dumps([peer.archive, peer.sha256]) + "\n").encode())
    return folder


def _run(command: list[str]) -> None:
    try:
        result = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise Unavailable(f"{command[0]}: {error.strerror}") from error
    if result.returncode:
        raise Unavailable(last_line(result.stderr) or f"{' '.join(command)} failed")


def last_line(text: str) -> str:
    """The line that says what went wrong: pip's error, else the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or [""])[-1]
