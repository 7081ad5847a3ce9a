"""Bounded files of JSON lines."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO, Any

from smddp_tf.monitor.files import MAX_BYTES


def unlinked(path: str, flags: int) -> int:
    """An opener of files that follows no link: the folder may be one that others can write."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o644)


class Lines(RotatingFileHandler):
    """A file that begins anew, as the old one becomes `NAME.1`, before it is too long. Whatever fails is raised."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=MAX_BYTES, backupCount=1, encoding="utf-8", delay=True)

    def _open(self) -> IO[Any]:
        return open(self.baseFilename, self.mode, encoding=self.encoding, opener=unlinked)

    def write(self, lines: Sequence[Any]) -> None:
        """Appends them, and hands them to the system at once: what is written survives the process."""
        if lines:
            self.emit(logging.makeLogRecord({"msg": "\n".join(map(json.dumps, lines))}))

    def handleError(self, record: logging.LogRecord) -> None:
        raise
