"""`allgather`, `broadcast` and `barrier` on TensorFlow tensors, and what the ranks disagree about."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tensorflow as tf

from tests.reasons import raises
from tests.support.contributions import MOVABLE, contribution

pytestmark = pytest.mark.ranks("1", "2", "2+2", "2+1")

# --- allgather, broadcast, barrier ---


@pytest.mark.parametrize("dtype", MOVABLE)
def test_allgather(hvd, rank, size, run, dtype):
    """Rank r brings r rows, so rank 0 brings none."""
    parts = [contribution(r, (r, 3), dtype) for r in range(size)]
    result = run(hvd.allgather, parts[rank])
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, np.concatenate(parts))


def test_allgather_shape_in_a_graph(hvd):
    concrete = tf.function(hvd.allgather).get_concrete_function(tf.TensorSpec([4, 3, 2]))
    assert concrete.output_shapes.as_list() == [None, 3, 2]
    concrete = tf.function(hvd.allgather).get_concrete_function(tf.TensorSpec(None))
    assert concrete.output_shapes.rank is None


def test_allgather_of_a_scalar(hvd, run):
    with pytest.raises(ValueError, match="scalar"):
        run(hvd.allgather, tf.constant(1.0))


def test_allgather_of_a_scalar_known_only_at_run_time(hvd):
    gather = tf.function(hvd.allgather, input_signature=[tf.TensorSpec(None)])
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least one dimension"):
        gather(tf.constant(1.0))


@pytest.mark.parametrize("dtype", MOVABLE)
def test_broadcast(hvd, rank, size, run, dtype):
    for root in range(size):
        tensor = contribution(rank, dtype=dtype)
        result = run(lambda x, root=root: hvd.broadcast(x, root), tensor)
        np.testing.assert_array_equal(result, contribution(root, dtype=dtype))
        np.testing.assert_array_equal(tensor, contribution(rank, dtype=dtype))


def test_barrier(hvd, rank, size, run):
    """Nobody leaves before the last has come. All ranks run on one machine, so they share a clock."""

    def body():
        op = hvd.barrier()
        with tf.control_dependencies([op] if op is not None else []):
            return tf.constant(1.0)

    hvd.barrier()
    time.sleep(0.05 * rank)
    come = time.monotonic()
    run(body)
    left = time.monotonic()
    assert min(hvd.allgather_object(left)) >= max(hvd.allgather_object(come))


# --- what the ranks disagree about ---


@pytest.mark.parametrize("case", ["shape", "dtype", "op", "scale", "compression", "root", "kind"])
def test_disagreement_is_an_error_on_every_rank(hvd, rank, size, run, case):
    if size == 1:
        pytest.skip("one rank cannot disagree")
    odd = rank == size - 1
    none, fp16 = hvd.Compression.none, hvd.Compression.fp16
    body = {
        "shape": lambda: hvd.allreduce(tf.ones([3 if odd else 2]), name="x"),
        "dtype": lambda: hvd.allreduce(tf.ones([2], tf.float64 if odd else tf.float32), name="x"),
        "op": lambda: hvd.allreduce(tf.ones([2]), op=hvd.Max if odd else hvd.Sum, name="x"),
        "scale": lambda: hvd.allreduce(tf.ones([2]), prescale_factor=2.0 if odd else 1.0, name="x"),
        "compression": lambda: hvd.allreduce(tf.ones([2]), compression=fp16 if odd else none, name="x"),
        "root": lambda: hvd.broadcast(tf.ones([2]), 1 if odd else 0, name="x"),
        "kind": lambda: (hvd.allgather if odd else hvd.allreduce)(tf.ones([2]), name="x"),
    }[case]
    reason = "tensors_differ" if case in ("shape", "dtype") else "disagreement"
    with raises(tf.errors.FailedPreconditionError, reason, match=f"'x'.*rank {size - 1}|rank {size - 1}.*'x'"):
        run(body)
    assert hvd.allreduce(tf.constant(1.0)) == 1.0  # the session goes on
