"""One process or many: `torchrun` starts N of the same program, which share the work and a results folder."""

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
    """This process among its equals."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    local_world: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this is the process that prints and summarises."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait until all processes are here."""
        if self.world > 1:
            dist.barrier()

    def gather(self, value: T) -> list[T]:
        """The value of every process, in the order of their ranks; all of them get all."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value)
        return values


@contextmanager
def processes(device: torch.device) -> Iterator[Process]:
    """Join the processes that torchrun started; a single one without it.

    CPU cores are divided among the processes of a machine: two processes with as many threads as cores each slow each
    other down tenfold. The time-out is long because processes only meet at the end, with unequal amounts of work.
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
        gc.collect()  # networks shared among the processes hold the group, in cycles: they must not outlive it
        dist.destroy_process_group()
