"""Which of several Python threads a collective belongs to. Needs no TensorFlow."""

from __future__ import annotations

import re
import threading
import weakref

__all__ = ["label", "of_thread"]

_FOREIGN = "Dummy-"  # a thread that Python has not started, as one of TensorFlow's: which one runs is chance

# The threads that have asked for their label, by kind.
_callers: dict[str, weakref.WeakSet[threading.Thread]] = {}
_lock = threading.Lock()


def label() -> str:
    """What tells the calling thread from others that reduce at the same time: "" for the main thread.

    Threads begin in another order on each rank, and Python numbers those without a name as they begin. So the label is
    made of the thread's name alone, without its numbers: the same on all ranks, whatever other threads live there.

    Raises:
        ValueError: another thread that is alive has the same label.
    """
    me = threading.current_thread()
    if me is threading.main_thread() or me.name.startswith(_FOREIGN):
        return ""
    kind = re.sub(r"\d+", "#", me.name)
    with _lock:
        alive = weakref.WeakSet(caller for caller in _callers.get(kind, ()) if caller.is_alive())
        alive.add(me)
        _callers[kind] = alive
    if len(alive) > 1:
        raise ValueError(
            "Threads that may reduce at the same time need names, because they begin in another order on each rank. "
            f"Received: calls in {len(alive)} living threads named like '{me.name}' (numbers do not count). Give each "
            "a name that differs from the others' in more than digits and is the same on all ranks, such as "
            "threading.Thread(target=train, name='actor'), or do their work in one thread."
        )
    return kind


def of_thread(name: str) -> str:
    """A name that the library has made, and that of the thread: requests of two threads do not meet each other."""
    thread = label()
    return f"{name} [{thread}]" if thread else name
