"""Errors of collectives inside functions that XLA compiles."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from smddp_tf.gradients.reducer import GradientReducer
from tests.reasons import BEFORE_INIT, raises
from tests.support.compiled_functions import check_gradients, compiled, make_step

pytestmark = pytest.mark.ranks("2")


def test_a_mismatch_is_an_error_on_every_rank(hvd, rank, size):
    if size == 1:
        pytest.skip("one rank cannot disagree")
    step = compiled(lambda x: hvd.allreduce(x, name="mismatch"))
    with raises(tf.errors.OpError, "tensors_differ", match="rank 0 has"):
        step(tf.ones([3 if rank == size - 1 else 2]))
    np.testing.assert_array_equal(step(tf.ones([2])), [1.0, 1.0])


def test_another_plan_on_one_rank_is_an_error_on_all(hvd, rank, size):
    if size == 1:
        pytest.skip("one rank cannot disagree")
    variable = tf.Variable(tf.ones([3 if rank == size - 1 else 2]))
    reducer = GradientReducer("test.compiled_disagreement")
    with raises(tf.errors.OpError, "disagreement", match="test.compiled_disagreement"):
        compiled(lambda: reducer([variable * 2.0], [variable]))()
    assert hvd.allreduce(tf.constant(1.0)) == 1.0


def test_rows_that_differ_cannot_be_gathered(hvd, rank, size):
    if size == 1:
        pytest.skip("one rank cannot disagree")
    step = compiled(lambda x: hvd.allgather(x, name="rows"))
    with pytest.raises(tf.errors.OpError, match="needs the same shape on all ranks(.|\n)*outside of the compiled"):
        step(tf.ones([3 if rank == size - 1 else 2, 2]))
    assert step(tf.ones([2, 2])).shape == (2 * size, 2)


def test_barrier_is_refused(hvd):
    with pytest.raises(NotImplementedError, match="hvd.barrier is not supported(.|\n)*Call it before or after"):
        compiled(lambda: hvd.barrier(name="b"))()


def test_after_shutdown(hvd, rank, size):
    if size == 1:
        pytest.skip("one rank has no plans")
    step = compiled(make_step(hvd, rank))
    check_gradients(step(tf.constant(1.0)), 1.0, size)
    hvd.shutdown()
    try:
        with raises(tf.errors.OpError, "bad_state", match=BEFORE_INIT):
            step(tf.constant(1.0))
    finally:
        hvd.init()
    check_gradients(step(tf.constant(1.0)), 1.0, size)
