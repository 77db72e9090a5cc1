"""Memory that a process may take: the machine's, or what its control groups leave."""

from types import SimpleNamespace

import psutil
import pytest
import torch

from codes.runtime import device
from codes.runtime.device import GIB, available_memory, cgroup_memory, memory_budget


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n")


def test_version_2_counts_the_tightest_group_and_frees_cached_files(tmp_path):
    root, own = tmp_path / "cgroup", tmp_path / "own"
    own.write_text("0::/user/job\n")
    write(root / "user", memory__max=10 * GIB, memory__current=9 * GIB)
    write(root / "user" / "job", memory__max="max", memory__current=GIB)
    assert cgroup_memory(root, own) == GIB
    write(root / "user", memory__stat=f"anon 5\ninactive_file {2 * GIB}\nfile 7")
    assert cgroup_memory(root, own) == 3 * GIB
    write(root / "user" / "job", memory__max=GIB // 2, memory__current=GIB)
    assert cgroup_memory(root, own) == 0  # never negative


def test_version_1_and_a_container_that_sees_its_group_as_the_root(tmp_path):
    root, own = tmp_path / "cgroup", tmp_path / "own"
    own.write_text("5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/\n")
    write(root / "memory", memory__limit_in_bytes=4 * GIB, memory__usage_in_bytes=GIB)
    write(root / "memory", memory__stat=f"inactive_file 5\ntotal_inactive_file {GIB // 2}")
    assert cgroup_memory(root, own) == 3.5 * GIB
    write(root / "memory" / "docker" / "abc", memory__limit_in_bytes=2 * GIB, memory__usage_in_bytes=GIB)
    assert cgroup_memory(root, own) == GIB


@pytest.mark.parametrize("text", ["0::/\n", ""])
def test_without_limits_nothing_is_limited(tmp_path, text):
    own = tmp_path / "own"
    own.write_text(text)
    assert cgroup_memory(tmp_path / "none", own) == float("inf")
    assert cgroup_memory(tmp_path / "none", tmp_path / "missing") == float("inf")


def test_the_smaller_of_machine_and_container_counts(monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=8 * GIB))
    monkeypatch.setattr(device, "cgroup_memory", lambda: float("inf"))
    assert available_memory() == 8 * GIB and memory_budget(torch.device("cpu")) == 4 * GIB
    monkeypatch.setattr(device, "cgroup_memory", lambda: 2.0 * GIB)
    assert available_memory() == 2 * GIB and memory_budget(torch.device("cpu")) == GIB
