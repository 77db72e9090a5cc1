"""One process or many: `torchrun` starts N processes of a program that share the work and a results folder."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")


@dataclass(frozen=True)
class Process:
    """Rank of this process and size of its group."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this is the process that prints and summarises."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait until all processes have reached this point."""
        if self.world > 1:
            dist.barrier()

    def gather(self, value: T) -> list[T]:
        """The values of all processes, ordered by rank; every process gets the whole list."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value)
        return values


@contextmanager
def processes(device: torch.device) -> Iterator[Process]:
    """Join the process group that torchrun started; without torchrun there is a single process.

    CPU cores are divided among the processes of a machine: two processes with as many threads as cores each slow each
    other down tenfold. The time-out is long because the processes only meet at the end, after unequal amounts of work.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Process()
        return
    process = Process(
        int(os.environ["RANK"]), world, int(os.environ["LOCAL_RANK"]), int(os.environ.get("LOCAL_WORLD_SIZE", world))
    )
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // process.local_world))
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=timedelta(days=7))
    try:
        yield process
    finally:
        # DDP wrappers keep the group alive through reference cycles; collect them before it is destroyed.
        gc.collect()
        dist.destroy_process_group()
