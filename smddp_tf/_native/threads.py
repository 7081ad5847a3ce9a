"""Which of several Python threads a collective belongs to. Needs no TensorFlow."""

from __future__ import annotations

import re
import sys
import threading
import weakref

_FOREIGN = "Dummy-"  # a thread that Python has not started, as one of TensorFlow's: which one runs is chance

_UNNAMED = "Thread-#"

# By kind: the threads that have asked for their label, and those that were alive at that time.
_callers: dict[str, weakref.WeakSet[threading.Thread]] = {}
_beside: dict[str, weakref.WeakSet[threading.Thread]] = {}
_lock = threading.Lock()


def label() -> str:
    """The label that distinguishes the calling thread from others that reduce at the same time: "" for the main thread.

    Threads begin in another order on each rank, and Python numbers those without a name as they begin. So the label is
    made of the thread's name alone, without its numbers: the same on all ranks, whatever other threads exist there.

    Raises:
        ValueError: another thread that lives at the same time asks for the same label; or may do so, being without a
            name too.
    """
    me = threading.current_thread()
    if me is threading.main_thread() or me.name.startswith(_FOREIGN):
        return ""
    kind = _kind_of(me)
    others = [other for other in threading.enumerate() if other is not me and _kind_of(other) == kind]
    with _lock:
        callers, beside = _callers.setdefault(kind, weakref.WeakSet()), _beside.setdefault(kind, weakref.WeakSet())
        callers.add(me)
        beside.update(others)
        # Unnamed threads are refused before a request of one can match that of another thread of other ranks.
        clash = me in beside or any(other in callers or kind.startswith(_UNNAMED) for other in others)
    if clash:
        raise ValueError(
            "Threads that may reduce at the same time need names, because they begin in another order on each rank. "
            f"Received: {len(others) + 1} living threads named like '{me.name}' (numbers do not count). Give each "
            "a name that differs from the others' in more than digits and is the same on all ranks, such as "
            "threading.Thread(target=train, name='actor'), or do their work in one thread."
        )
    return kind


def of_thread(name: str) -> str:
    """A name made by the library, extended by the thread's label: requests of two threads do not match."""
    thread = label()
    return f"{name} [{thread}]" if thread else name


def _kind_of(thread: threading.Thread) -> str:
    """The thread's name without its numbers; of one without a name with its function, as Python has it since 3.10."""
    kind = re.sub(r"\d+", "#", thread.name)
    if sys.version_info < (3, 10) and kind == _UNNAMED:
        function = getattr(getattr(thread, "_target", None), "__name__", "")  # no target: it ends, or is a subclass
        return f"{kind} ({function})" if function else kind
    return kind
