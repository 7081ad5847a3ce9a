"""alltoall and reducescatter on TensorFlow tensors, and their gradients."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.support.contributions import MOVABLE, REDUCIBLE, contribution, everybody
from tests.support.rows_oracle import rows_of

pytestmark = pytest.mark.ranks("2", "2+2", "2+1")


def rows_for(sender: int, receiver: int) -> int:
    """Different for every pair; rank 0 sends nothing to itself."""
    return (2 * sender + receiver) % 3


def sent(rank: int, size: int, dtype="float32") -> tuple[tf.Tensor, list[int]]:
    splits = [rows_for(rank, receiver) for receiver in range(size)]
    return contribution(rank, (sum(splits), 2), dtype), splits


def received(rank: int, size: int, dtype="float32") -> np.ndarray:
    parts = []
    for sender in range(size):
        tensor, splits = sent(sender, size, dtype)
        parts.append(np.split(tensor.numpy(), np.cumsum(splits)[:-1])[rank])
    return np.concatenate(parts)


# --- alltoall ---


def test_alltoall_of_every_dtype(hvd, rank, size, run):
    def body():
        return [hvd.alltoall(sent(rank, size, dtype)[0], sent(rank, size)[1]) for dtype in MOVABLE]

    for dtype, (result, splits) in zip(MOVABLE, run(body)):
        assert result.dtype == dtype
        assert splits.dtype == tf.int32
        np.testing.assert_array_equal(result, received(rank, size, dtype))
        np.testing.assert_array_equal(splits, [rows_for(sender, rank) for sender in range(size)])


def test_alltoall_without_splits_returns_the_tensor_alone(hvd, rank, size, run):
    mine = tf.reshape(tf.range(size * 4), [size * 2, 2]) + 100 * rank
    result = run(hvd.alltoall, mine)
    expected = [np.arange(4).reshape(2, 2) + 4 * rank + 100 * sender for sender in range(size)]
    np.testing.assert_array_equal(result, np.concatenate(expected))


def test_alltoall_takes_splits_of_many_kinds(hvd, rank, size, run):
    """All rows to one rank and none to the others; as a tensor of both dtypes, an array, a tuple; known at run time."""
    splits = [0] * (size - 1) + [3]
    kinds = (tuple(splits), np.array(splits), tf.constant(splits, tf.int32), tf.constant(splits, tf.int64))
    results = run(lambda: [hvd.alltoall(tf.fill([3], rank), kind, name=f"a{i}") for i, kind in enumerate(kinds)])
    results.append(run(hvd.alltoall, tf.fill([3], rank), tf.constant(splits)))
    for result, counts in results:
        np.testing.assert_array_equal(result, np.repeat(np.arange(size), 3) if rank == size - 1 else [])
        np.testing.assert_array_equal(counts, [3 if rank == size - 1 else 0] * size)


def test_bad_splits_are_an_error_on_every_rank(hvd, rank, size, run):
    """Only the last rank's are bad."""
    bad = rank == size - 1
    for splits, message in (
        ([1] * (size + 1), "one entry for each"),
        ([2] + [1] * (size - 1), "first dimension"),
        ([-1] * size, "at least 0"),
        ([], "one entry for each"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            run(lambda s=splits: hvd.alltoall(tf.ones([size]), s if bad else [1] * size))
    if size > 1:
        with pytest.raises(tf.errors.InvalidArgumentError, match="multiple of the number of ranks"):
            run(lambda: hvd.alltoall(tf.ones([size + 1 if bad else size])))
    with pytest.raises(TypeError, match="int32 or int64"):
        hvd.alltoall(tf.ones([size]), tf.ones([size]))
    with pytest.raises(ValueError, match="one dimension"):
        hvd.alltoall(tf.ones([size]), tf.ones([size, 1], tf.int32))


def test_gradient_of_alltoall(hvd, rank, size, run):
    """Each row comes back multiplied with the number of the rank that received it; equal splits come back from all."""
    tensor, splits = sent(rank, size)

    def body(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y, _ = hvd.alltoall(x, splits)
            z = hvd.alltoall(tf.tile(tf.reduce_sum(x, axis=0, keepdims=True), [size, 1]))
            loss = tf.reduce_sum(y) * float(rank + 1) + tf.reduce_sum(z)
        return tape.gradient(loss, x)

    expected = np.repeat(np.arange(size) + 1.0, splits)[:, None] * np.ones([1, 2]) + size
    np.testing.assert_allclose(run(body, tensor), expected)


# --- reducescatter ---


@pytest.mark.parametrize("op", ["Average", "Sum"])
def test_reducescatter_of_every_dtype(hvd, rank, size, run, op):
    """Rows that do not divide; one tensor each, then all together."""
    rows = 2 * size + 1
    tensors = [contribution(rank, (rows, 3), dtype) for dtype in REDUCIBLE]
    chosen = getattr(hvd, op)

    def body():
        return [hvd.reducescatter(x, op=chosen) for x in tensors] + hvd.grouped_reducescatter(tensors, op=chosen)

    for index, result in enumerate(run(body)):
        dtype = REDUCIBLE[index % len(REDUCIBLE)]
        total = everybody(size, (rows, 3), dtype).astype(np.float64).sum(axis=0)
        expected = total if op == "Sum" else total / size
        if op == "Average" and tensors[index % len(REDUCIBLE)].dtype.is_integer:
            expected = np.trunc(expected)
        assert result.dtype == dtype
        tolerance = {"bfloat16": 2**-8, "float16": 2**-11}.get(dtype, 1e-7)
        np.testing.assert_allclose(
            result.numpy().astype(np.float64), expected[rows_of(rows, size)[rank]], rtol=tolerance, err_msg=dtype
        )


def test_reducescatter_options(hvd, rank, size, run):
    """Factors, compression, fewer rows than ranks, a large tensor, nothing at all."""
    large = contribution(rank, (3000 * size + 1, 4))
    results = run(
        lambda: [
            hvd.reducescatter(contribution(rank, (size,)), op=hvd.Sum, prescale_factor=0.5, postscale_factor=6.0),
            hvd.reducescatter(tf.fill([size], 1 + 2**-12), compression=hvd.Compression.fp16),
            hvd.reducescatter(tf.ones([1, 2]), op=hvd.Sum, name="few"),
            hvd.reducescatter(large, op=hvd.Sum),
            hvd.reducescatter(tf.zeros([0, 3])),
        ]
    )
    assert float(results[0][0]) == everybody(size, (size,)).sum(axis=0)[rank] * 3.0
    assert float(results[1][0]) == 1.0
    np.testing.assert_array_equal(results[2], np.full([1 if rank == 0 else 0, 2], float(size)))
    mine = rows_of(3000 * size + 1, size)[rank]
    np.testing.assert_array_equal(results[3], everybody(size, (3000 * size + 1, 4)).sum(axis=0)[mine])
    assert results[4].shape == (0, 3)
    assert hvd.grouped_reducescatter([]) == []


def test_what_reducescatter_refuses(hvd, run):
    for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum, 17):
        with pytest.raises(ValueError, match="`op`.*hvd.Average, hvd.Sum"):
            hvd.reducescatter(tf.ones([4]), op=op)
    scalar = tf.function(hvd.reducescatter, input_signature=[tf.TensorSpec(None)])
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least one dimension"):
        scalar(tf.constant(1.0))
    for collective in (hvd.reducescatter, hvd.alltoall, lambda x: hvd.grouped_allgather([x])):
        with pytest.raises(ValueError, match="scalar"):
            run(collective, tf.constant(1.0))


@pytest.mark.parametrize("op", ["Average", "Sum"])
def test_gradient_of_reducescatter(hvd, rank, size, run, op):
    """Gathered from all ranks, with the factors; of a sum `size` times (Horovod's convention)."""
    rows = 2 * size + 1
    chosen = getattr(hvd, op)

    def body(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = hvd.reducescatter(x, op=chosen, prescale_factor=3.0, postscale_factor=0.5)
            z, _ = hvd.grouped_reducescatter([x, tf.zeros([1], tf.int32)], op=chosen)
            loss = (tf.reduce_sum(y) + tf.reduce_sum(z)) * float(rank + 1)
        return tape.gradient(loss, x)

    each = np.concatenate(
        [np.full(len(range(*part.indices(rows))), r + 1.0) for r, part in enumerate(rows_of(rows, size))]
    )
    expected = each * (1.5 + 1.0) * (size if op == "Sum" else 1)
    np.testing.assert_allclose(run(body, tf.ones([rows])), expected, rtol=1e-6)
