"""Reduction runs beside the backward pass: a bucket is through while another gradient is still being computed."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from smddp_tf.gradients.reducer import GradientReducer
from tests.support.overlapping import AfterABucket, check_early_bucket_is_done_first

pytestmark = pytest.mark.ranks("2")


def test_a_bucket_is_reduced_before_a_late_gradient_is_ready(hvd, rank, size):
    if size == 1:
        pytest.skip("one rank reduces nothing, so nothing can overlap")
    reducer = GradientReducer("test_overlap")
    # Two dtypes make two buckets. The late one is first in the list and in the trace: were the ops chained in that
    # order, or did the engine wait for the whole plan, the early one would come after it.
    late, early = tf.Variable(tf.zeros(8, tf.float64)), tf.Variable(tf.zeros(1 << 18))
    after_a_bucket = AfterABucket()

    @tf.function
    def step():
        slow = tf.numpy_function(after_a_bucket, [tf.fill([8], tf.cast(rank, tf.float64))], tf.float64)
        return reducer([slow, tf.range(1 << 18, dtype=tf.float32) + rank], [late, early])

    mean = (size - 1) / 2

    def begun_step():
        after_a_bucket.begin()
        return step()

    check_early_bucket_is_done_first(begun_step, late=np.full(8, mean), early=np.arange(1 << 18) + mean)
