"""Tables that are sharded over ranks: saved whole, and loaded on other numbers of ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mpirun import launch
from tests.variants import in_full

pytestmark = pytest.mark.launches

SCRIPT = Path(__file__).with_name("embedding_saved.py")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    launch([SCRIPT, "train", folder], 2, timeout=120).check()
    return folder


@pytest.mark.parametrize("ranks", [3, *in_full(None)])
def test_saved_on_2_ranks(saved: Path, ranks: int | None) -> None:
    output = launch([SCRIPT, "load", saved], ranks, timeout=180).check().output
    assert output.count("as it must be") == (ranks or 1)
