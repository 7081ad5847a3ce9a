"""In a compiled step too, gradients are reduced while others are computed, and the results are the same bits."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from smddp_tf.gradients.reducer import GradientReducer
from tests.reasons import BEFORE_INIT, raises
from tests.support.compiled_functions import compiled
from tests.support.overlapping import check_early_bucket_is_done_first

pytestmark = pytest.mark.ranks("2")

# The first run of a compiled step reduces at its end, and looks where XLA keeps the gradients.
RUNS = 4
SHAPES = [(257, 33), (), (5,), (64, 64)]
DTYPES = ["float32", "float64", "float16", "bfloat16"]


@pytest.fixture(autouse=True)
def several_ranks(size):
    if size == 1:
        pytest.skip("one rank reduces nothing, so nothing can overlap")


def after_a_while(x: tf.Tensor) -> tf.Tensor:
    """Zero, after some tenths of a second of computing."""
    matrix = tf.eye(500) * x
    for _ in range(30):
        matrix = tf.tanh(matrix @ matrix)
    return 0.0 * tf.reduce_sum(matrix)


def values(rank: int) -> list[np.ndarray]:
    """Gradients whose sums round."""
    random = np.random.default_rng(rank)
    return [random.standard_normal(s).astype(tf.as_dtype(d).as_numpy_dtype) for s, d in zip(SHAPES, DTYPES)]


def zeros() -> list[tf.Variable]:
    return [tf.Variable(tf.zeros(shape, dtype)) for shape, dtype in zip(SHAPES, DTYPES)]


def bits(tensors) -> list[bytes]:
    return [np.asarray(tensor).tobytes() for tensor in tensors]


def test_a_bucket_is_reduced_before_a_late_gradient_is_ready(hvd, rank, size):
    if tf.__version__.startswith("2.16."):
        pytest.skip("its XLA computes the gradients one after the other, the late one first")
    reducer = GradientReducer("test_xla_overlap")
    late, early = tf.Variable(tf.zeros(8, tf.float64)), tf.Variable(tf.zeros(1 << 18))  # two buckets

    @compiled
    def step(x):
        slow = tf.fill([8], tf.cast(rank + after_a_while(x), tf.float64))
        return reducer([slow, tf.range(1 << 18, dtype=tf.float32) * x + rank], [late, early])

    mean = (size - 1) / 2
    check_early_bucket_is_done_first(
        lambda: step(tf.constant(1.0)), late=np.full(8, mean), early=np.arange(1 << 18) + mean
    )


def straight(reduce, xs):
    return reduce(xs)


def computed(reduce, xs):
    """Gradients that XLA computes, and whose values before the reduction are needed too."""
    mine = [x * 3 for x in xs]
    return [*reduce(mine), *mine]


def in_a_branch(reduce, xs):
    return tf.cond(tf.cast(xs[0][0, 0] < 1000, tf.bool), lambda: reduce(xs), lambda: xs)


def in_a_loop(reduce, xs):
    def body(i, *xs):
        return [i + 1, *reduce([x * 3 for x in xs])]

    return tf.while_loop(lambda i, *_: i < 3, body, [0, *xs])[1:]


def in_a_function(reduce, xs):
    """That is called twice."""
    inner = tf.function(reduce, autograph=False)
    return inner(inner(xs))


@pytest.mark.parametrize("where", [straight, computed, in_a_branch, in_a_loop, in_a_function])
def test_results_are_the_bits_of_a_plain_step(hvd, rank, where):
    variables = zeros()
    reducer = GradientReducer(f"test_xla_bits.{where.__name__}")

    def step(xs):
        return where(lambda xs: reducer(xs, variables), xs)

    with_xla, plain = compiled(step), tf.function(step, autograph=False)
    for run in range(RUNS):
        xs = [tf.constant(value) for value in values(10 * run + rank)]
        assert bits(with_xla(xs)) == bits(plain(xs))


def test_the_same_gradient_for_several_variables(hvd, rank, size):
    variables = [tf.Variable(tf.zeros([100])) for _ in range(3)]
    reducer = GradientReducer("test_xla_tied")
    step = compiled(lambda x: reducer([x * 2, x * 2, tf.zeros([100])], variables))
    x = np.arange(100, dtype=np.float32)
    for _ in range(RUNS):
        first, second, third = step(tf.constant(x * (rank + 1)))
        np.testing.assert_array_equal(first, x * (size + 1))
        np.testing.assert_array_equal(second, x * (size + 1))
        np.testing.assert_array_equal(third, 0 * x)


def test_a_rank_gives_up_between_the_gradients(hvd, rank, size):
    """Of the ranks that compile each gets the error at the end of its step, and the next step is right."""
    variables = [tf.Variable(tf.zeros([4])), tf.Variable(tf.zeros([1 << 12]))]
    reducer = GradientReducer("test_xla_given_up")

    def step(x, fails):
        first = x * tf.ones([4])
        if rank == 0:
            first = tf.debugging.check_numerics(tf.where(fails, np.nan, 1.0) * first, "deliberate")
        else:
            first += after_a_while(x)
        return reducer([first, x * tf.ones([1 << 12])], variables)

    step = tf.function(step, jit_compile=rank != 0, autograph=False)
    for run in range(2 * RUNS):
        fails, x = run % 3 == 2, tf.constant(rank + 1.0)
        if not fails:
            for got in step(x, tf.constant(fails)):
                np.testing.assert_array_equal(got, np.full(got.shape, (size + 1) / 2))
        elif rank == 0:
            with pytest.raises(tf.errors.InvalidArgumentError, match="deliberate"):
                step(x, tf.constant(fails))
        else:
            with raises(tf.errors.OpError, "step_given_up", match="Rank 0 "):
                step(x, tf.constant(fails))


def test_sessions_end_between_the_steps(hvd, rank, size):
    variables = zeros()
    reducer = GradientReducer("test_xla_sessions")
    step = compiled(lambda xs: reducer([x * 2 for x in xs], variables))
    expected = None
    for _ in range(2):
        for _ in range(RUNS):
            got = bits(step(values(rank)))
            expected = expected or got
            assert got == expected
        hvd.shutdown()
        with raises(tf.errors.OpError, "bad_state", match=BEFORE_INIT):
            step(values(rank))
        hvd.init()
