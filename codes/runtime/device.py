"""Devices and their memory."""

import os
import re
from pathlib import Path

import psutil
import torch

from ..names import OptionsError


def choose_device(name: str) -> torch.device:
    """The torch device for a name; `auto` is a GPU if there is one. Raises OptionsError for a missing GPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise OptionsError(f"device: expected one of auto, cpu, cuda, cuda:N, got {name!r}")
    if name.startswith("cuda"):
        if not torch.cuda.is_available():
            raise OptionsError(f"device: {name} needs a GPU, and torch finds none; use cpu or auto")
        local = os.environ.get("LOCAL_RANK")
        if name == "cuda" and local is not None:
            name = f"cuda:{int(local) % torch.cuda.device_count()}"
        index = torch.device(name).index or 0
        if index >= torch.cuda.device_count():
            raise OptionsError(f"device: there is no {name}, torch finds {torch.cuda.device_count()} GPUs")
        torch.cuda.set_device(index)  # for what names none: pinned memory, and objects gathered from processes
    return torch.device(name)


def moved(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor on a device; to a GPU from pinned memory, so that the copy does not wait for the GPU's work."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


GIB = 2**30
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


def memory_budget(device: torch.device) -> float:
    """Bytes that a run may use: on a GPU most of its free memory, on a CPU half of the free memory, at most 5 GiB."""
    if device.type == "cuda":
        return 0.9 * torch.cuda.mem_get_info(device)[0]
    return min(0.5 * available_memory(), 5 * GIB)


def available_memory() -> float:
    """Bytes that this process can still allocate: limited by the machine or by its container, whichever has less."""
    return min(float(psutil.virtual_memory().available), cgroup_memory())


def cgroup_memory(root: Path = CGROUPS, own: Path = OWN_CGROUPS) -> float:
    """Bytes left free by the control groups (v1 and v2) of this process; infinity if there is no limit.

    A limit applies to a group and all groups inside it, so the group with the least free memory decides. Cached files
    count as used and are freed when memory is short.
    """
    free = float("inf")
    for line in _lines(own):
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        base = root / "memory" if controllers else root
        names = (
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            if controllers
            else ("memory.max", "memory.current", "inactive_file")
        )
        # A container may see its own group as the root, while the path is the machine's.
        group = base / path.lstrip("/")
        for folder in {base, *(parent for parent in (group, *group.parents) if parent.is_relative_to(base))}:
            free = min(free, _free(folder, *names))
    return free


def _free(group: Path, limit: str, usage: str, cached: str) -> float:
    """Free bytes of a group; infinity without a limit (`max` in v2, an enormous number in v1)."""
    allowed, used = (next(iter(_lines(group / name)), "") for name in (limit, usage))
    if not (allowed.isdigit() and used.isdigit()):
        return float("inf")
    statistics = dict(line.split(" ", 1) for line in _lines(group / "memory.stat") if " " in line)
    return max(float(int(allowed) - int(used) + int(statistics.get(cached, 0))), 0.0)


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
