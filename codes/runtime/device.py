"""Devices and their memory."""

import os
import re
from pathlib import Path

import torch

from ..names import OptionsError


def choose_device(name: str) -> torch.device:
    """`auto` is a GPU if there is one; a GPU that is not there is an error."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise OptionsError(f"device: expected one of auto, cpu, cuda, cuda:N, got {name!r}")
    if name.startswith("cuda"):
        if not torch.cuda.is_available():
            raise OptionsError(f"device: {name} was asked for, but this torch sees no GPU; use cpu or auto")
        local = os.environ.get("LOCAL_RANK")
        if name == "cuda" and local is not None:
            name = f"cuda:{int(local) % torch.cuda.device_count()}"
        index = torch.device(name).index or 0
        if index >= torch.cuda.device_count():
            raise OptionsError(f"device: {name} was asked for, but there are only {torch.cuda.device_count()} GPUs")
    return torch.device(name)


GIB = 2**30


def memory_budget(device: torch.device) -> float:
    """What a run may take: most of the free memory of a GPU; on a CPU half of the free memory, 5 GiB at the most."""
    if device.type == "cuda":
        return 0.9 * torch.cuda.mem_get_info(device)[0]
    return min(0.5 * available_memory(), 5 * GIB)


def available_memory() -> float:
    """Free memory of the machine, as far as the system tells."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024.0 * int(line.split()[1])
    except OSError:
        pass
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) / 2
    except (ValueError, OSError, AttributeError):
        return 8.0 * GIB
