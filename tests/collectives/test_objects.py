"""What a rank says about an object it sends is not believed."""

from __future__ import annotations

import numpy as np
import pytest

from smddp_tf.collectives import objects


@pytest.mark.parametrize("length", [-1, 0, (1 << 40) + 1, np.iinfo(np.int64).max])
def test_a_length_that_no_object_has(length: int) -> None:
    with pytest.raises(RuntimeError, match=f"Rank 3 announced an object of {length} bytes"):
        objects._checked(length, 3)


@pytest.mark.parametrize(
    ("payload", "what"),
    [
        ([], "Rank 1 announced an object of 0 bytes"),
        ([7, 1, 2], "Rank 1 sent an object of unknown kind 7"),
        ([1, 0xFF, 0xFE], "Rank 1 could not pickle its object"),  # its text is no UTF-8
    ],
)
def test_a_payload_that_holds_none(payload: list[int], what: str) -> None:
    with pytest.raises(RuntimeError, match=what):
        objects._unpacked(np.array(payload, np.uint8), 1)
