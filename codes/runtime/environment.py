"""The environment of a run: versions, device, commit, command line."""

import json
import platform
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from .files import write_atomically
from .paths import PROJECT


def write_environment(folder: Path, device: torch.device, world: int) -> None:
    """Append this start of a run to environment.json: versions, device, commit, command line."""
    path = folder / "environment.json"
    starts = json.loads(path.read_text()) if path.is_file() else []
    starts.append(
        {
            "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "command": sys.argv,
            "commit": _commit(),
            "python": platform.python_version(),
            "system": platform.platform(),
            "packages": {name: _version(name) for name in ("torch", "torchvision", "numpy", "scipy", "opencv-python")},
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu",
            "threads": torch.get_num_threads(),
            "processes": world,
        }
    )
    write_atomically(path, (json.dumps(starts, indent=1) + "\n").encode())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The project's commit, with a + if files have been modified; None outside a repository."""
    try:
        git = ["git", "-C", str(PROJECT)]
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + ("+" if changed.strip() else "")
