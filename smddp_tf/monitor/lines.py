"""Bounded files of JSON lines."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from smddp_tf.monitor.files import MAX_BYTES


class Lines(RotatingFileHandler):
    """A file that begins anew, as the old one becomes `NAME.1`, before it is too long. Whatever fails is raised."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=MAX_BYTES, backupCount=1, encoding="utf-8", delay=True)

    def write(self, lines: Sequence[Any]) -> None:
        """Appends them, and hands them to the system at once: what is written survives the process."""
        if lines:
            self.emit(logging.makeLogRecord({"msg": "\n".join(map(json.dumps, lines))}))

    def handleError(self, record: logging.LogRecord) -> None:
        raise
