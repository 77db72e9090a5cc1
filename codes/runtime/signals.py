"""Stopping on Ctrl-C and SIGTERM without losing work."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tqdm import tqdm

# Seconds within which a second signal to stop is the same one, come another way.
ECHO = 1.0


@contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; a second one interrupts at once.

    One that comes with the first does not: Ctrl-C reaches all processes, and torchrun passes on what it got itself.
    """
    stop = threading.Event()
    told = 0.0
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal told
        if stop.is_set():
            if time.monotonic() - told < ECHO:
                return
            raise KeyboardInterrupt
        told = time.monotonic()
        stop.set()
        tqdm.write("stopping after the current batch (again to stop at once) ...")

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
