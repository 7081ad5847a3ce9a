"""What is done when something takes long: who waits at a terminal is told."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

_SECONDS = 5.0


def told_if_slow(what: str) -> AbstractContextManager[None]:
    """Within it, after 5 s, a line on standard error says that `what` ("saving m.keras") has taken 5 s so far."""
    line = f"smddp_tf: {what} has taken {_SECONDS:.0f} s so far."
    return calls_after(_SECONDS, lambda: print(line, file=sys.stderr, flush=True))


@contextmanager
def calls_after(seconds: float, function: Callable[[], None]) -> Iterator[None]:
    """Within it, after so many seconds, a thread calls the function."""
    timer = threading.Timer(seconds, function)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
