"""The stacks of this rank's Python threads, which the engine sends to ranks that wait (SMDDP_STALL_STACKS=1)."""

from __future__ import annotations

import faulthandler
import functools
import signal
import tempfile
from typing import Any

from smddp_tf._native import loader


def offer() -> None:
    """Lets the engine ask for the stacks, if the user wants them; before the session starts.

    The engine raises a signal in its own thread. The handler is faulthandler's: it needs no thread of Python's, so it
    works while a thread holds the GIL and does not release it.
    """
    core = loader.core()
    if core.stall_stacks():
        core.set_stack_dump(*_registered())


@functools.cache
def _registered() -> tuple[int, int]:
    number = signal.SIGRTMAX - 5  # the last ones are taken by some launchers and profilers
    faulthandler.register(number, file=_file(), all_threads=True, chain=False)
    return int(number), _file().fileno()


@functools.cache
def _file() -> Any:
    """Without a name; the handler has it open for as long as the process lives."""
    return tempfile.TemporaryFile()
