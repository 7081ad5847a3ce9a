"""`Compression.auto` on links of several speeds."""

from __future__ import annotations

import re

import pytest

from tests.support.mpirun import launch

pytestmark = pytest.mark.launches


@pytest.mark.parametrize("megabits", [200, 10_000, 100_000])
def test_the_link_decides(megabits: int) -> None:
    arguments = ["-m", "pytest", "tests/test_compression_auto.py", "-p", "tests.mpi_plugin"]
    arguments += ["-p", "no:cacheprovider", "-q", "--color=no", "--pretend-nodes", "1,1"]
    job = launch(arguments, 2, 120.0, env={"SMDDP_RAIL_BANDWIDTH_MBPS": str(megabits)}).check()
    assert re.search(r"\b3 passed", job.output), job.output
