"""What a rank tells the harness: small JSON files FOLDER/RANK.NAME, each there at once and whole."""

from __future__ import annotations

import json
import os

__all__ = ["Notes"]


class Notes:
    """Of one rank."""

    def __init__(self, folder: str, rank: int) -> None:
        self._stem = f"{folder}/{rank}"

    def write(self, name: str, value: object) -> None:
        path = f"{self._stem}.{name}"
        with open(f"{path}.part", "w", encoding="utf-8") as file:
            json.dump(value, file)
        os.rename(f"{path}.part", path)
