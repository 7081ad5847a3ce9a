"""`Model.fit` that other libraries have wrapped, in whatever way and order, is looked after all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.mpirun import launch
from tests.support.recorder import read_records

pytestmark = pytest.mark.launches

RANKS = 2


@pytest.fixture(scope="module")
def wrapped(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("wrapped")
    launch([Path(__file__).with_name("fit_wrapped.py"), folder], RANKS, timeout=120).check()
    return read_records(folder, RANKS)


@pytest.mark.parametrize("case", ["before", "subclass", "after", "replaced"])
def test_wrappers_of_fit(wrapped: list[dict[str, dict[str, Any]]], case: str) -> None:
    for record in wrapped:
        assert record[case]["error"] == "", record[case]
