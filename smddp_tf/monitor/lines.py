"""Writes a recording: bounded files of JSON lines, and files that are replaced. Symbolic links are not followed."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO, Any

from smddp_tf.monitor.files import MAX_BYTES


def replace(path: Path, content: object) -> None:
    """Replaces a file by JSON atomically: a reader sees the old file or the new one."""
    part = path.with_suffix(".part")
    with opened(part, "w") as file:
        json.dump(content, file)
    os.replace(part, path)


@contextlib.contextmanager
def replacing(path: Path, mode: str) -> Iterator[IO[Any]]:
    """Inside, a new file of this user's alone, which then replaces that at `path`; after an error it is removed."""
    handle, unfinished = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    try:
        with open(handle, mode) as file:
            yield file
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise


def opened(path: str | Path, mode: str, buffering: int = -1) -> IO[Any]:
    """A file of text in UTF-8, or of bytes; OSError where it is a link."""
    encoding = None if "b" in mode else "utf-8"
    return open(path, mode, buffering, encoding, opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o666))


class Lines(RotatingFileHandler):
    """A file that is renamed to `NAME.1`, and started again, before it is too long. Raises every error."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=MAX_BYTES, backupCount=1, encoding="utf-8", delay=True)

    def write(self, lines: Sequence[Any]) -> None:
        """Appends them, and hands them to the system at once: what is written survives the process."""
        if lines:
            self.emit(logging.makeLogRecord({"msg": "\n".join(map(json.dumps, lines))}))

    def _open(self) -> Any:
        return opened(self.baseFilename, self.mode)

    def handleError(self, record: logging.LogRecord) -> None:
        raise
