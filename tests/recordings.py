"""Reads the files of a recording, as tests compare them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def lines_of(path: Path) -> list[dict[str, Any]]:
    """All lines, the older file's first. None may be torn: the rank has ended its recording."""
    older = path.with_name(path.name + ".1")
    return [json.loads(line) for file in (older, path) if file.exists() for line in file.read_text().splitlines()]


def facts_of(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))
