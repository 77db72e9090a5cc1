"""Stopping on Ctrl-C and SIGTERM without losing work."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tqdm import tqdm

# Within this many seconds a second signal is an echo of the first (terminal and torchrun both forward Ctrl-C).
ECHO = 1.0
STOPPING = "stopping after the current batch (again to stop at once) ..."


@contextmanager
def stop_on_signal(text: str = STOPPING) -> Iterator[threading.Event]:
    """An event that Ctrl-C or SIGTERM sets; a second signal interrupts at once. `text` is printed at the first.

    An echo of the first signal does not count as a second one: see ECHO.
    """
    stop = threading.Event()
    first = 0.0  # time of the first signal
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal first
        if stop.is_set():
            if time.monotonic() - first < ECHO:
                return
            raise KeyboardInterrupt
        first = time.monotonic()
        stop.set()
        tqdm.write(text)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
