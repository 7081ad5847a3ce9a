"""Adasum of TensorFlow tensors, its use on the tape and its gradient."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.support.rows_oracle import adasum_tree

pytestmark = pytest.mark.ranks("2", "2+2", "2+1")


def gradients_of(rank: int) -> list[np.ndarray]:
    random = np.random.default_rng(rank)
    return [random.standard_normal(7), random.standard_normal((3, 400)) + 0.3, np.zeros(5) + (rank == 0)]


def test_adasum(hvd, rank, size, run):
    """Each tensor of a group has dot products of its own; zeros divide nothing."""
    mine = [tf.constant(array, tf.float32) for array in gradients_of(rank)]
    results = run(lambda: [hvd.allreduce(mine[0], op=hvd.Adasum), *hvd.grouped_allreduce(mine, op=hvd.Adasum)])
    for index, result in zip([0, 0, 1, 2], results):
        of_ranks = [gradients_of(r)[index].reshape(-1) for r in range(size)]
        np.testing.assert_allclose(tf.reshape(result, [-1]), adasum_tree(of_ranks), rtol=1e-4, atol=1e-5)
    bits = hvd.allgather_object([result.numpy().tobytes() for result in results])
    assert all(other == bits[0] for other in bits)
    with pytest.raises(TypeError, match="allreduce.*int32"):
        hvd.allreduce(tf.constant([1, 2]), op=hvd.Adasum)


def test_large_tensors_are_added_in_steps(hvd, rank, size):
    """In several steps, whose borders lie inside tensors; a tensor has the same bits alone and among others."""
    random = np.random.default_rng(100 + rank)
    arrays = [(random.standard_normal(count) + 0.2).astype(np.float32) for count in (65_600, 3, 150_001, 1_024)]
    names = [f"large adasum {place}" for place in range(len(arrays))]
    together = hvd.grouped_allreduce([tf.constant(array) for array in arrays], op=hvd.Adasum, name="large adasum")
    for array, name, result in zip(arrays, names, together):
        of_ranks = np.reshape(hvd.allgather(tf.constant(array), name=f"{name} of ranks"), [size, -1])
        np.testing.assert_allclose(
            result, adasum_tree([one.astype(np.float64) for one in of_ranks]), rtol=1e-4, atol=1e-5
        )
        alone = hvd.allreduce(tf.constant(array), op=hvd.Adasum, name=name)
        np.testing.assert_array_equal(alone, result)


def test_adasum_on_the_tape(hvd, rank, size, run):
    variables = [tf.Variable(tf.zeros([7])), tf.Variable(tf.zeros([3, 400])), tf.Variable(tf.zeros([4, 2]))]
    first, second, _ = (tf.constant(array, tf.float32) for array in gradients_of(rank))

    def body(lookup):
        with hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Adasum) as tape:
            loss = tf.reduce_sum(variables[0] * first) + tf.reduce_sum(variables[1] * second)
            if lookup:
                loss += tf.reduce_sum(tf.gather(variables[2], [rank]))
        return tape.gradient(loss, variables if lookup else variables[:2])

    for index, result in enumerate(run(lambda: body(False))):
        of_ranks = [gradients_of(r)[index].reshape(-1) for r in range(size)]
        np.testing.assert_allclose(tf.reshape(result, [-1]), adasum_tree(of_ranks), rtol=1e-4, atol=1e-5)
    with pytest.raises(NotImplementedError, match="IndexedSlices"):
        run(lambda: body(True))


def test_gradient_of_adasum(hvd, rank, size, run):
    """Horovod's convention: the gradients are combined by Adasum too."""
    weights = tf.constant(gradients_of(rank)[0], tf.float32)

    def body(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(hvd.allreduce(x, op=hvd.Adasum) * weights)
        return tape.gradient(y, x)

    expected = adasum_tree([gradients_of(r)[0] for r in range(size)])
    np.testing.assert_allclose(run(body, tf.ones([7])), expected, rtol=1e-4, atol=1e-5)
