"""The arithmetic that tests/collectives/test_transfers.py expects, against every member of every algorithm."""

from __future__ import annotations

import numpy as np
import pytest

from tests import native_module
from tests.support.traffic_formulas import ELEMENT_BYTES, FORMULAS

pytestmark = pytest.mark.native

_core = native_module.core()


@pytest.mark.parametrize("members", [2, 3, 4, 6, 7, 8])
@pytest.mark.parametrize("algorithm", _core.algorithms())
def test_bytes_of_every_member(algorithm: str, members: int) -> None:
    for elements in (1, 33, 1000, 32 * members, 5003):
        arrays = [np.zeros(elements * ELEMENT_BYTES, np.uint8) for _ in range(members)]
        counts = _core.rail_run(algorithm, arrays, "float32", 1)
        expected = [FORMULAS[algorithm](elements, members, me) * ELEMENT_BYTES for me in range(members)]
        assert [count["bytes"] for count in counts] == expected, f"{elements} elements"
