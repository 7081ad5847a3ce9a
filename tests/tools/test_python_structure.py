"""The way of a gradient through Python is the one that tools/structure.py prints.

In processes of their own: the way depends on what a program has imported, such as `smddp_tf.keras.distribution`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.mpirun import launch

pytestmark = pytest.mark.launches

TOOL = Path(__file__).resolve().parents[2] / "tools" / "python_structure.py"
RANKS = 2


def test_a_gradient_goes_the_way_that_is_listed() -> None:
    job = launch([Path(__file__).with_name("gradient_path.py"), TOOL], RANKS, timeout=120).check()
    for rank in range(RANKS):
        (line,) = (each for each in job.output.splitlines() if each.startswith(f"rank {rank}: "))
        traces, listed = json.loads(line.partition(": ")[2])
        assert traces == [listed]
