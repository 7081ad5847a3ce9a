"""Buckets follow the order in which rank 0's gradients came in the first step; the numbers do not depend on it."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tensorflow as tf

from smddp_tf.gradients.reducer import GradientReducer
from tests.native_module import core

pytestmark = pytest.mark.ranks("2")

SHAPES = [(300, 40), (7,), (64, 65), (1,), (2000,)]
DTYPES = ["float32", "float64", "float32", "float64", "float32"]
STEPS = 4


def gradients(rank: int) -> list[np.ndarray]:
    rng = np.random.default_rng(100 + rank)
    return [rng.standard_normal(shape).astype(dtype) for shape, dtype in zip(SHAPES, DTYPES)]


def after(seconds: float):
    def wait(value: np.ndarray) -> np.ndarray:
        time.sleep(seconds)
        return value

    return wait


def make_step(key: str, rank: int, pauses: list[float], order: list[int] | None = None):
    """A step that scales the gradients by its number. Each is ready after a pause of its own, or in `order`."""
    variables = [tf.Variable(tf.zeros(shape, dtype)) for shape, dtype in zip(SHAPES, DTYPES)]
    values = gradients(rank)
    reducer = GradientReducer(key)

    @tf.function
    def step(number):
        grads: list[tf.Tensor | None] = [None] * len(SHAPES)
        before: list[tf.Tensor] = []
        for index in order or range(len(SHAPES)):
            with tf.control_dependencies(before):
                value = tf.identity(values[index]) * tf.cast(number, DTYPES[index])
            [late] = tf.numpy_function(after(pauses[index]), [value], [DTYPES[index]])
            grads[index] = tf.ensure_shape(late, SHAPES[index])
            before = [late] if order else []
        return reducer(grads, variables)

    return step


def bits(results: list[list[tf.Tensor]]) -> bytes:
    return b"".join(tensor.numpy().tobytes() for tensors in results for tensor in tensors)


def test_buckets_follow_rank_0(hvd, rank, size):
    if size == 1:
        pytest.skip("one rank reduces nothing")
    order = [3, 1, 4, 2, 0]  # on rank 0; the other way round elsewhere
    step = make_step("test_order", rank, [0.03] * 5, order if rank == 0 else order[::-1])
    core().trace_start()
    for number in range(STEPS):
        step(tf.constant(number))
    events = [(event["what"], event["index"]) for event in core().trace_stop()]
    adopted = [index for what, index in events if what == "plan_order"]
    came_first = [index for what, index in events if what == "tensor_ready"][: len(SHAPES)]
    everywhere = hvd.allgather_object((adopted, came_first))
    assert [of_rank for of_rank, _ in everywhere] == [everywhere[0][1]] * size
    assert sum(what == "bucket_done" for what, _ in events) == 2 * STEPS
    # One bucket for each dtype; float32 is listed first, and float64 came first.
    assert DTYPES[adopted[0]] == "float64"


@pytest.mark.parametrize("trial", range(2))
def test_the_same_bits_whatever_the_delays(hvd, rank, size, trial):
    """Two runs with other random delays per gradient and rank, so with other orders and other buckets in flight."""
    results = []
    for run in range(2):
        pauses = np.random.default_rng([trial, run, rank]).uniform(0, 0.05, len(SHAPES)).tolist()
        step = make_step(f"test_bits.{trial}.{run}", rank, pauses)
        results.append([step(tf.constant(number)) for number in range(STEPS)])
    assert bits(results[0]) == bits(results[1])
    assert len(set(hvd.allgather_object(bits(results[0])))) == 1
    mean = [np.mean(grads, axis=0) for grads in zip(*map(gradients, range(size)))]
    for number, tensors in enumerate(results[0]):
        for tensor, expected in zip(tensors, mean):
            np.testing.assert_allclose(tensor, expected * number, rtol=1e-4, atol=1e-5)


def test_a_new_session_observes_anew(hvd, rank, size):
    if size == 1:
        pytest.skip("one rank reduces nothing")
    orders = []
    for order in ([0, 1, 2, 3, 4], [3, 4, 2, 1, 0]):
        hvd.shutdown()
        hvd.init()
        step = make_step("test_new_session", rank, [0.03] * 5, order)
        core().trace_start()
        for number in range(STEPS):
            step(tf.constant(number))
        orders.append([event["index"] for event in core().trace_stop() if event["what"] == "plan_order"])
    assert orders[0] == [], "the buckets are those of the list"
    assert orders[1][0] == 3
