"""Memory that changes while it is in use: what SMDDP_VERIFY must find."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

SIGN_OF_FLOAT = 0x80  # in the last byte of an element


def bytes_of(array: np.ndarray) -> memoryview:
    """The memory of an array."""
    return memoryview(array.view(np.uint8)).cast("B")


def shared_segments() -> list[memoryview]:
    """The shared memory of the ranks of this node, as this process maps it (tf_ops/transport/shm/segment.h)."""
    segments = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "/dev/shm/smddp" not in line:
            continue
        begin, end = (int(text, 16) for text in line.split()[0].split("-"))
        segments.append(memoryview((ctypes.c_ubyte * (end - begin)).from_address(begin)).cast("B"))
    return segments


@contextmanager
def flickering(memories: list[memoryview], byte: int, pause: float = 0, bits: int = SIGN_OF_FLOAT) -> Iterator[None]:
    """Flips `bits` of one byte of each memory again and again, every `pause` seconds, until the block ends.

    When a collective reads the byte is chance. The caller repeats the collective until the damage meets it.
    """
    over = threading.Event()

    def flip() -> None:
        while not over.wait(pause):
            for memory in memories:
                memory[byte] ^= bits

    thread = threading.Thread(target=flip, name="damage")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def first_error(call: Any, kind: type[Exception], tries: int = 500, seconds: float = 60.0) -> str:
    """Repeats `call` until it raises; the words of the error. "" when it does not.

    Not before `tries` calls and `seconds`: on a busy machine the thread of the damage may wait for a core while many
    calls begin and end.
    """
    give_up_at = time.monotonic() + seconds
    while tries > 0 or time.monotonic() < give_up_at:
        tries -= 1
        try:
            call()
        except kind as error:
            return str(error)
    return ""
