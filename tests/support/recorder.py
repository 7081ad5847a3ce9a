"""Writes down what a rank saw, so that the test need not take apart the mixed output of all ranks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from smddp_tf.exceptions import reason_of


class Recorder:
    """Calls functions that should fail and keeps the errors. One file per rank: `FOLDER/rank-N.json`."""

    def __init__(self, folder: str, rank: int):
        self._file = Path(folder) / f"rank-{rank}.json"
        self._records: dict[str, dict[str, Any]] = {}

    def call(self, name: str, function: Callable[[], Any]) -> None:
        """Records how `function` ended: the error's type, message and reason ("" for none) and the seconds."""
        begin = time.monotonic()
        kind, message, reason = "", "", ""
        try:
            function()
        except Exception as error:  # whatever comes is what we want to know
            kind, message, reason = type(error).__name__, str(error), reason_of(error)
        self._records[name] = {
            "error": kind,
            "message": message,
            "reason": reason,
            "seconds": time.monotonic() - begin,
        }
        whole = self._file.with_suffix(".new")  # the process may be killed while it writes, or another one may read
        whole.write_text(json.dumps(self._records))
        whole.rename(self._file)


def read_records(folder: Path, ranks: int) -> list[dict[str, dict[str, Any]]]:
    """What every rank recorded; nothing for a rank that wrote no file."""
    files = [folder / f"rank-{rank}.json" for rank in range(ranks)]
    return [json.loads(file.read_text()) if file.exists() else {} for file in files]
