"""Two hosts with a network between them, for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.lab import Lab, why_not


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    if reason := why_not():
        pytest.skip(f"no two hosts here: {reason}")
    with Lab(2, 200) as nodes:
        yield nodes
