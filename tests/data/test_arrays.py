"""smddp_tf.data.shard of arrays and structures of them."""

from __future__ import annotations

import numpy as np
import pytest

from smddp_tf.data import arrays
from smddp_tf.data.sharding import shard

# --- arrays ---


def test_structures_of_arrays():
    x, y = np.arange(10).reshape(5, 2), np.arange(5)
    first, second = (shard({"x": x, "more": (y, None)}, rank=rank, size=2) for rank in range(2))
    np.testing.assert_array_equal(first["x"], x[[0, 2, 4]])
    np.testing.assert_array_equal(second["x"], x[[1, 3, 0]])
    np.testing.assert_array_equal(second["more"][0], [1, 3, 0])
    assert second["more"][1] is None
    assert isinstance(shard([x, y], rank=0, size=2, even="drop"), list)
    assert arrays.first_dimension((x, None)) == 5
    np.testing.assert_array_equal(shard(y, rank=0, size=2, even="drop"), [0, 2])


def test_shuffled_arrays_share_one_permutation():
    x = np.arange(20)
    of_ranks = [shard((x, -x), shuffle=True, seed=3, rank=rank, size=3, even=None) for rank in range(3)]
    assert sorted(np.concatenate([part for part, _ in of_ranks])) == list(x)
    assert list(np.concatenate([part for part, _ in of_ranks])) != list(x)
    for part, negative in of_ranks:
        np.testing.assert_array_equal(negative, -part)


def test_wrong_data():
    with pytest.raises(TypeError, match="Received: an object of type builtins.list"):
        shard([1, 2, 3], rank=0, size=2)
    with pytest.raises(TypeError, match="from_generator"):
        shard(iter("abc"), rank=0, size=2)
    with pytest.raises(ValueError, match=r"same first dimension.*\[4, 3\]"):
        shard((np.zeros(4), np.zeros((3, 2))), rank=0, size=2)
