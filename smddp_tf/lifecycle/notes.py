"""Messages of a rank to its supervisor, through a pipe: samples/s, and why it ends (tf_ops/core/env/launcher.h)."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping

NOTES = "SMDDP_RUN_NOTES"  # the pipe's number and inode
BEGINS, HAS_BEGUN, SPEED = b"I", b"J", b"S"  # `hvd.init` was called, has returned; the speed of all ranks


def tell(note: bytes, environment: Mapping[str, str]) -> None:
    """Sends a note to the supervisor, if there is one."""
    with contextlib.suppress(OSError, ValueError):
        file, inode = map(int, environment.get(NOTES, "").split(":"))
        found = os.fstat(file)  # where the pipe was closed, its number may be another file's
        if stat.S_ISFIFO(found.st_mode) and found.st_ino == inode:
            os.write(file, note + b"\0")
