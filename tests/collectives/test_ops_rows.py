"""alltoall, reducescatter and grouped allgather on TensorFlow tensors; their gradients and errors."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from smddp_tf.exceptions import reason_of
from tests.reasons import raises
from tests.support.contributions import contribution, everybody
from tests.support.rows_oracle import rows_of

pytestmark = pytest.mark.ranks("2", "2+2", "2+1")


# --- grouped allgather ---


def test_grouped_allgather(hvd, rank, size, run):
    """Several dtypes, other numbers of rows on every rank and in every tensor."""
    shapes = [lambda r: (r, 3), lambda r: (2, 2), lambda r: (size - r,)]
    dtypes = ("float32", "int16", "bool")
    results = run(lambda: hvd.grouped_allgather([contribution(rank, s(rank), d) for s, d in zip(shapes, dtypes)]))
    for shape, dtype, result in zip(shapes, dtypes, results):
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, np.concatenate([contribution(r, shape(r), dtype) for r in range(size)]))
    assert hvd.grouped_allgather([]) == []


def test_gradient_of_grouped_allgather(hvd, rank, size, run):
    """Row i of the results weighs i + 1 on every rank; of the second tensor there is no gradient."""
    rows = [r + 1 for r in range(size)]

    def body(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y, _, z = hvd.grouped_allgather([x, tf.range(rank), 2.0 * x[:1]])
            loss = tf.reduce_sum(y * tf.range(1.0, sum(rows) + 1.0)) + tf.reduce_sum(z * tf.range(1.0, size + 1.0))
        return tape.gradient(loss, x)

    expected = np.arange(rows[rank]) + sum(rows[:rank]) + 1.0
    expected[0] += 2.0 * (rank + 1)
    np.testing.assert_allclose(run(body, tf.ones([rows[rank]])), expected, rtol=1e-6)


# --- what the ranks disagree about ---


def test_disagreement_is_an_error_on_every_rank(hvd, rank, size):
    if size == 1:
        pytest.skip("one rank cannot disagree")
    odd = rank == size - 1
    pick = lambda usual, other: other if odd else usual  # noqa: E731
    cases = {
        "ALLTOALL tensor shapes": lambda: hvd.alltoall(tf.ones([size, pick(2, 3)]), name="x"),
        "REDUCESCATTER tensor shapes": lambda: hvd.reducescatter(tf.ones([pick(2, 3)]), name="x"),
        "ALLGATHER tensor shapes": lambda: hvd.grouped_allgather([tf.ones([1, pick(2, 3)])], name="x"),
        "tensors": lambda: hvd.grouped_allgather([tf.ones([1])] * pick(1, 2), name="x"),
        "float32.*int32": lambda: hvd.alltoall(tf.ones([size], pick(tf.float32, tf.int32)), name="x"),
        "Average": lambda: hvd.reducescatter(tf.ones([2]), op=pick(hvd.Sum, hvd.Average), name="x"),
        "postscale": lambda: hvd.reducescatter(tf.ones([2]), postscale_factor=pick(1.0, 2.0), name="x"),
        "rank 0 .*rank": lambda: pick(hvd.reducescatter, hvd.alltoall)(tf.ones([size]), name="x"),
    }
    for what, body in cases.items():
        reason = "tensors_differ" if what.endswith(("tensor shapes", "tensors", "int32")) else "disagreement"
        with raises(tf.errors.FailedPreconditionError, reason, match=what):
            body()
    assert hvd.allreduce(tf.constant(1.0)) == 1.0  # the session goes on


def test_same_name_twice_in_flight(hvd, size):
    """In one graph names are made unique; two threads of eager operations can collide."""
    import threading

    reasons: list[str | None] = []

    def scatter() -> None:
        try:
            hvd.reducescatter(tf.ones([size * 100_000]), name="twice")
        except tf.errors.OpError as error:
            reasons.append(reason_of(error))

    # Rank 0's two requests are in flight together; the others make theirs one after the other.
    if hvd.rank() == 0:
        threads = [threading.Thread(target=scatter) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        scatter()
        scatter()
    seen = hvd.allgather_object(reasons)
    assert seen == [seen[0]] * size
    assert set(seen[0]) <= {"bad_argument"}


# --- XLA ---


def test_in_functions_compiled_by_xla(hvd, rank, size):
    """reducescatter works, with its gradient; alltoall is refused while the function is traced."""

    @tf.function(jit_compile=True)
    def scatter(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = hvd.reducescatter(x, op=hvd.Sum, name="compiled")
            loss = tf.reduce_sum(y) * float(rank + 1)
        return y, tape.gradient(loss, x), hvd.grouped_allgather([y[:1], x], name="compiled gather")

    rows = 2 * size
    y, gradient, (head, rest) = scatter(contribution(rank, (rows, 2)))
    total = everybody(size, (rows, 2)).sum(axis=0)
    np.testing.assert_array_equal(y, total[rows_of(rows, size)[rank]])
    np.testing.assert_allclose(gradient, np.repeat(np.arange(size) + 1.0, 2)[:, None] * np.full([1, 2], float(size)))
    np.testing.assert_array_equal(head, total[::2])
    np.testing.assert_array_equal(rest, everybody(size, (rows, 2)).reshape(-1, 2))
    with pytest.raises(NotImplementedError, match="hvd.alltoall"):
        tf.function(hvd.alltoall, jit_compile=True)(tf.ones([size]))
