"""Several processes that restore photos together, each with its share of the processor's threads.

One network on all cores wastes a part of them: threads wait for each other after every operation, and for whatever is
done by one of them alone, such as reading and writing files. A process for each core has nothing to wait for. Photos
are claimed, restored and recorded as by any other process in the same folder, so the results are the same.
"""

import logging
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.synchronize import Event
from typing import Any, Generic, TypeVar

from .output import accept_any_text

T = TypeVar("T")

# Below this many megapixels a process is busier with starting than with restoring: it needs two seconds, in which the
# embedded network restores about one megapixel with one thread.
LEAST_MEGAPIXELS = 4.0
PROCESS_BYTES = 5e8  # of a process without a network: Python, torch and what they load
_POLL = 0.1  # seconds between two looks at the user's wish to stop
_GRACE = 1.0  # seconds in which a process may end by itself

_own: dict[str, Any] = {}  # in a process of a crew: what `start` made, and the event that ends its work


def crew_size(wanted: int | None, threads: int, device: str, megapixels: list[float]) -> int:
    """How many processes restore some photos; 1 is this process alone.

    wanted   None: one for each thread of a CPU, if there is enough to do for all of them
    """
    most = max(len(megapixels), 1)
    if wanted is not None:
        return min(wanted, most)
    if device != "cpu" or sum(megapixels) < LEAST_MEGAPIXELS * threads:
        return 1
    return min(threads, most)


def crew_within(size: int, available: float, needed: float) -> int:
    """At most `size` processes, and at least 1: as many as can take `needed` bytes each of those that are available."""
    return max(min(size, int(available / needed)), 1)


class Lost(Exception):
    """A process of the crew has ended by itself, perhaps for want of memory."""


@dataclass
class Crew(Generic[T]):
    """Processes in which `start` was called once, and which do one piece of work at a time."""

    pool: ProcessPoolExecutor
    stopped: Event

    def submit(self, work: Callable[..., T], *arguments: object) -> "Future[T]":
        """Have `work(what start made, stop, *arguments)` done; stop() says whether to end early."""
        return self.pool.submit(_do, work, arguments)

    def finished(self, futures: set["Future[T]"], stop: threading.Event) -> set["Future[T]"]:
        """Some of the futures that are done, at least one; tells the processes to stop when the user wishes so."""
        while True:
            if stop.is_set() and not self.stopped.is_set():
                self.stopped.set()
                for future in futures:
                    future.cancel()
            done = wait(futures, _POLL, "FIRST_COMPLETED").done
            for future in done:
                if not future.cancelled() and isinstance(future.exception(), BrokenProcessPool):
                    raise Lost("a restoring process ended unexpectedly; with --workers 1 less memory is needed")
            if done:
                return done


@contextmanager
def crew(size: int, threads: int, start: Callable[[], object]) -> Iterator[Crew[Any]]:
    """`size` processes that share this many threads; they end with the block, and with this process."""
    # Not forked: threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    stopped = context.Event()
    # As bytes: reading them imports torch, and before `_begin` is called Ctrl-C ends a process with a traceback.
    arguments = (pickle.dumps(start), max(threads // size, 1), stopped)
    pool = ProcessPoolExecutor(size, context, _begin, arguments)
    try:
        yield Crew(pool, stopped)
    finally:
        stopped.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(start: bytes, threads: int, stopped: Event) -> None:
    """Prepare a process: its threads, and only the main process decides when to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for end in (_end_with_parent, partial(_end_after, stopped)):
        threading.Thread(target=end, daemon=True).start()
    logging.disable(logging.INFO)  # the main process has said it
    accept_any_text()  # a process of its own has streams of its own
    import cv2
    import torch

    torch.set_num_threads(threads)
    cv2.setNumThreads(threads)
    _own.update(made=pickle.loads(start)(), stopped=stopped)


def _do(work: Callable[..., T], arguments: tuple[object, ...]) -> T:
    return work(_own["made"], _own["stopped"].is_set, *arguments)


def _end_with_parent() -> None:
    """Exit when the main process is killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _end_after(stopped: Event) -> None:
    """Exit soon after the main process wants to stop, even while a network is loaded: results are whole or absent."""
    stopped.wait()
    time.sleep(_GRACE)
    os._exit(1)
