"""The environment of a run: versions, device, commit, command line."""

import logging
import platform
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from .files import read_json, set_aside, write_json
from .locks import claim
from .paths import PROJECT
from .problems import Damaged
from .processor import described

log = logging.getLogger(__name__)


def write_environment(folder: Path, device: torch.device, world: int, precision: str) -> None:
    """Append this start of a run to environment.json: versions, device, commit, command line."""
    start = {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": sys.argv,
        "commit": commit(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": {name: _version(name) for name in ("torch", "torchvision", "numpy", "scipy", "opencv-python")},
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else described(),
        "precision": precision,
        "threads": torch.get_num_threads(),
        "processes": world,
    }
    path = folder / "environment.json"
    with claim(path, wait=None):  # several runs may start in one folder at once
        write_json(path, [*_starts(path), start])


def _starts(path: Path) -> list[dict[str, Any]]:
    """The starts before this one; a damaged file is set aside."""
    try:
        found = read_json(path)
        if not isinstance(found, list | None):
            raise Damaged(f"{path}: damaged, not a list of starts")
        return found or []
    except Damaged as error:
        log.warning("%s; kept as %s, and a new one begun", error, set_aside(path).name)
        return []


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def commit() -> str | None:
    """The project's commit, with a + if files have been modified; None outside a repository."""
    if not (PROJECT / ".git").exists():
        return None  # installed, maybe into a folder of somebody else's repository
    try:
        git = ["git", "-C", str(PROJECT)]
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + ("+" if changed.strip() else "")
