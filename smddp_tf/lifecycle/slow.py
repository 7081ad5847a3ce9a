"""Tells who waits at a terminal that something long goes on."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_SECONDS = 5.0


@contextmanager
def told_if_slow(what: str) -> Iterator[None]:
    """Within it, after 5 s, a line on standard error says that `what` ("saving m.keras") has taken 5 s so far."""
    line = f"smddp_tf: {what} has taken {_SECONDS:.0f} s so far."
    timer = threading.Timer(_SECONDS, lambda: print(line, file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
