"""Ctrl-C that lets a run save its state first."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


class Interrupted(Exception):
    """Ctrl-C or SIGTERM; the run's state is saved."""


@contextlib.contextmanager
def remembered() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM are only remembered; the second one stops at once.

    Yields:
      A function that tells whether one came.
    """
    seen = []

    def remember(number, frame):
        del frame
        if seen:
            raise KeyboardInterrupt
        seen.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # Python gives signals to the main thread only
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, remember) for number in numbers}
    try:
        yield lambda: bool(seen)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
