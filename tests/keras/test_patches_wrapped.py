"""Libraries that replace or wrap parts of Keras's training, before or after this one is imported, change no weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.mpirun import cases_of, launch
from tests.support.recorder import read_records

pytestmark = pytest.mark.launches

RANKS = 2
SCRIPT = Path(__file__).with_name("wrapped_training.py")


@pytest.fixture(scope="module", params=["before", "after"])
def wrapped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder: Path = tmp_path_factory.mktemp("wrapped")
    launch([SCRIPT, folder, request.param], RANKS, timeout=200).check()
    return read_records(folder, RANKS)


@pytest.mark.parametrize("case", cases_of(SCRIPT))
def test_weights_are_those_of_one_process(wrapped: list[dict[str, Any]], case: str) -> None:
    for record in wrapped:
        if case not in record:
            pytest.skip("takes SMDDP_TEST_FULL=1, and mlflow or tensorboard where the name says so")
        assert record[case]["error"] == "", record[case]
