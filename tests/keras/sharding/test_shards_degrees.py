"""`partition_state`: the numbers of parts that the ranks of a job allow."""

from __future__ import annotations

import keras
import pytest

import smddp_tf.keras as hvk

pytestmark = pytest.mark.ranks("2")


@pytest.mark.parametrize(
    ("shard", "message"), [(0, "at least 1"), ("nodes", "at least 1"), (True, "at least 1"), (7, "Possible here: 1")]
)
def test_degrees_that_cannot_be(size, shard, message):
    if size == 1 and shard == 7:
        pytest.skip("one rank has all of the state")
    with pytest.raises(ValueError, match=message):
        hvk.DistributedOptimizer(keras.optimizers.Adam(), partition_state=shard)
