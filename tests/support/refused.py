"""Calls that must be refused."""

from __future__ import annotations

import pytest


def refused(name: str, words: str, call) -> None:
    with pytest.raises(ValueError, match=words):
        pytest.fail(f"{name} returned {call()}")
