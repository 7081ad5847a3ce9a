"""Which of several Python threads a collective belongs to."""

from __future__ import annotations

import re
import threading

__all__ = ["label"]

# What Python calls threads that nobody has named: the numbers count threads of the whole process.
_UNNAMED = re.compile(r"(Thread|ThreadPoolExecutor|Dummy|asyncio)-\d+.*|asyncio_\d+|MainThread")
_FOREIGN = "Dummy-"  # a thread that Python has not started, as one of TensorFlow's

# Kinds of threads of which several were alive: the last one that lives is no better known than the others were.
_several: set[str] = set()


def label() -> str:
    """What tells the calling thread from others that reduce at the same time; the same on all ranks, mostly "".

    Threads begin in another order on each rank, so ranks match those of several threads by the threads' names.

    Raises:
        ValueError: several threads of one kind are alive, and this one has no name.
    """
    me = threading.current_thread()
    if me is threading.main_thread() or me.name.startswith(_FOREIGN):
        return ""
    others = [other for other in threading.enumerate() if other not in (me, threading.main_thread())]
    if not _UNNAMED.fullmatch(me.name):
        return me.name if any(not _UNNAMED.fullmatch(other.name) for other in others) else ""
    kind = _kind_of(me.name)
    if any(_kind_of(other.name) == kind for other in others):
        _several.add(kind)
    if kind in _several:
        raise ValueError(
            "Threads that may reduce at the same time need names, because they begin in another order on each rank. "
            f"Received: a call in '{me.name}', one of several threads of that kind. Give each the same name on all "
            "ranks (threading.Thread(target=train, name='critic')), or do their work in one thread."
        )
    return ""


def _kind_of(name: str) -> str:
    return re.sub(r"\d+", "#", name)
