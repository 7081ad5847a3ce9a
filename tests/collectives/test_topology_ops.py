"""Numbers of ranks as ops, when a graph runs."""

from __future__ import annotations

import pytest
import tensorflow as tf

pytestmark = pytest.mark.ranks("2", "2+2", "2+1")


def test_values_when_a_graph_runs(hvd, rank, size, sets):
    low = sets["low"]
    values = tf.function(
        lambda: [
            hvd.size_op(),
            hvd.size_op(process_set_id=low.process_set_id, name="of_low"),
            hvd.rank_op(name="mine"),
            hvd.local_size_op(),
            hvd.local_rank_op(),
            hvd.process_set_included_op(),
            hvd.process_set_included_op(process_set_id=low.process_set_id),
            hvd.process_set_included_op(999),
        ]
    )
    expected = [size, low.size(), rank, hvd.local_size(), hvd.local_rank(), 1, int(low.included()), -3]
    assert [int(value) for value in values()] == expected
    assert all(value.dtype == tf.int32 for value in values())
    with pytest.raises(ValueError, match="999"):
        hvd.size_op(999)
    with pytest.raises(NotImplementedError, match="jit_compile"):
        tf.function(hvd.rank_op, jit_compile=True)()
