"""Batches for one training process, read ahead by processes of their own."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Generator
from multiprocessing.context import ForkServerContext

from torch.utils.data import DataLoader

from ..data.pairs import DataError
from .data import Batch, DataPlan, Sample, TrainingSet, collate


def batches(
    plan: DataPlan, first: int, last: int, *, rank: int = 0, world: int = 1, workers: int = 0, pin: bool = False
) -> Generator[Batch]:
    """This process's share of the steps first..last-1, read ahead by `workers` processes; raises DataError.

    pin  keep them in pinned memory, from which copies to a GPU do not wait
    """
    share = plan.batch // world
    starts = (step * plan.batch + rank * share for step in range(first, last))
    loader: DataLoader[Sample] = DataLoader(
        TrainingSet(plan),
        batch_sampler=(list(range(start, start + share)) for start in starts),
        num_workers=workers,
        collate_fn=collate,
        worker_init_fn=_start_worker,
        pin_memory=pin,
        prefetch_factor=4 if workers else None,
        multiprocessing_context=_processes() if workers else None,
    )
    for batch in loader:
        if isinstance(batch, str):
            raise DataError(batch)
        yield batch


def _processes() -> ForkServerContext:
    """A server that reading processes are forked from.

    Forking this process would deadlock: its threads do not survive a fork.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _start_worker(number: int) -> None:
    """Prepare a reading process: one thread, and only the main process decides when to stop."""
    import cv2

    cv2.setNumThreads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # SIGTERM reaches all processes at once, or comes from an ending main process: exit cleanly, or DataLoader reports a
    # crashed worker.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))


def _end_with_parent() -> None:
    """Exit when the main process is killed: otherwise reading processes would stay, with all their images."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(0)
