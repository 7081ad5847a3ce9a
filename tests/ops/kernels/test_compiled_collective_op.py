"""SmddpCompiledCollective where nothing compiles it: its kernel does what the other ops do."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from smddp_tf._native import loader
from smddp_tf.collectives.emit import _attributes_of as reduction
from smddp_tf.collectives.reduce_op import Max, ReduceSpec, Sum

pytestmark = pytest.mark.ranks("2", "2+1")


def values(rank: int, length: int) -> np.ndarray:
    return ((np.arange(length) * 11 + 17 * rank) % 509).astype(np.float32)


def call(kind: str, tensors, name: str, **attributes):
    """The results; the op's token is checked."""
    op = loader.xla_library().smddp_compiled_collective
    results, token = op(tensors=tensors, after=[], kind=kind, tensor_name=name, **attributes)
    assert (int(token), token.dtype) == (0, tf.int32)
    return results


@pytest.mark.parametrize("spec", [ReduceSpec(Sum, 0.5), ReduceSpec(Max)], ids=["sum", "max"])
def test_allreduce(hvd, rank, size, spec):
    x, y = values(rank, 900), values(rank, 4)
    results = call("allreduce", [tf.constant(x), tf.constant(y)], f"reduce.{spec.op.name}", **reduction(spec))
    for result, length in zip(results, (900, 4)):
        everybody = np.array([values(other, length) for other in range(size)])
        expected = everybody.max(axis=0) if spec.op == Max else everybody.sum(axis=0) / 2
        np.testing.assert_array_equal(result, expected)


def test_broadcast(hvd, rank, size):
    (result,) = call("broadcast", [tf.constant(values(rank, 700))], "root", root_rank=1)
    np.testing.assert_array_equal(result, values(1, 700))


def test_allgather_of_equal_shapes(hvd, rank, size):
    mine = values(rank, 600).reshape(3, 200)
    (result,) = call("allgather", [tf.constant(mine)], "rows", gathered_ranks=size)
    np.testing.assert_array_equal(result, np.concatenate([values(other, 600).reshape(3, 200) for other in range(size)]))


def test_rows_that_differ_are_the_same_error_on_all(hvd, rank, size):
    mine = values(rank, 200 * (rank + 1)).reshape(rank + 1, 200)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"1 rows on rank 0 and 2 rows on rank 1"):
        call("allgather", [tf.constant(mine)], "unequal", gathered_ranks=size)
    (result,) = call("broadcast", [tf.constant([rank])], "goes on")
    assert int(result[0]) == 0


@pytest.mark.parametrize(
    ("attributes", "words"),
    [({"gathered_ranks": 7}, "compiled by XLA for 7 ranks"), ({"gathered_ranks": 7, "traced_rank": 5}, "as rank 5")],
)
def test_shapes_for_other_ranks(hvd, rank, attributes, words):
    with pytest.raises(tf.errors.FailedPreconditionError, match=words):
        call("allgather", [tf.zeros([2, 2])], "other ranks", **attributes)


def test_gradients_of_a_plan(hvd, rank, size):
    spec, shapes = ReduceSpec(Sum), [[50], [9]]
    plan = loader.core().register_plan("compiled", ["float32"] * 2, shapes, **spec._asdict())
    tensors = [tf.constant(values(rank, length)) for (length,) in shapes]
    for _ in range(3):
        results = call("reduce_gradients", tensors, "compiled", plan=plan, indices=[0, 1], **reduction(spec))
        for result, (length,) in zip(results, shapes):
            np.testing.assert_array_equal(result, sum(values(other, length) for other in range(size)))
    with pytest.raises(tf.errors.InternalError, match="one index for each gradient of 'compiled'"):
        call("reduce_gradients", tensors, "compiled", plan=plan, indices=[0], **reduction(spec))
