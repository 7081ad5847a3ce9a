"""Public programs that use Horovod, in the environment of `make clients`: a few steps of each."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

import pytest

from tests.clients import deepmd, deepxde
from tests.clients.jobs import FOLDER

pytestmark = [
    pytest.mark.launches,
    pytest.mark.skipif(os.environ.get("SMDDP_TEST_FULL") != "1", reason="takes minutes: SMDDP_TEST_FULL=1"),
    pytest.mark.skipif(not (FOLDER / "bin" / "horovodrun").exists(), reason="needs .clients/, from `make clients`"),
]


@pytest.mark.parametrize("client", [deepmd, deepxde], ids=lambda client: client.CLIENT)
def test_two_ranks_equal_one_process(client: ModuleType, tmp_path: Path) -> None:
    rows = list(client.check(tmp_path, 8))
    assert rows
    for row in rows:
        assert row.ok, row
