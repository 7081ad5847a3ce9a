"""What was traced goes on working in a later session with more ranks, or with fewer (elastic training)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from smddp_tf import sdp
from smddp_tf.collectives import sparse
from tests.support.keras_training import skip_jit
from tests.variants import in_full

pytestmark = pytest.mark.ranks("2")

v1 = tf.compat.v1
ROWS = 6


class Sessions:
    """Sessions of all ranks and of each rank alone, one after the other."""

    def __init__(self, hvd: ModuleType, rank: int, size: int):
        self.hvd, self._rank, self._size = hvd, rank, size

    def begin(self, which: str) -> list[float]:
        """Begins a session; returns what `weight` is on each rank of it."""
        self.hvd.shutdown()
        self.hvd.init(*([[self._rank]] if which == "alone" else []))
        return [self._rank + 1.0] if which == "alone" else [rank + 1.0 for rank in range(self._size)]


@pytest.fixture
def sessions(hvd, rank, size) -> Iterator[Sessions]:
    if os.environ.get("SMDDP_MPI") == "off":
        pytest.skip("sessions of some ranks need MPI; these meet over TCP")
    if size == 1:
        pytest.skip("one rank is alone in any session")
    sessions = Sessions(hvd, rank, size)
    yield sessions
    sessions.begin("all")


@pytest.fixture(params=["all, alone, all", "alone, all, alone"])
def each(request, sessions) -> Callable[[], Iterator[list[float]]]:
    """Goes through three sessions; the graph is traced in the first. Gives the weights of their ranks."""
    return lambda: (sessions.begin(which) for which in request.param.split(", "))


def once(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """A `tf.function` that refuses to be traced twice."""
    traces = []

    def body(*args):
        traces.append(None)
        assert len(traces) == 1, "traced again"
        return function(*args)

    return tf.function(body, **options)


@pytest.mark.parametrize("way", ["gathered", "whole table", "small table", "compiled"])
def test_gradients_of_a_tape(hvd, rank, size, each, way, monkeypatch):
    """Dense ones, rows in each way they may travel, and one that stays."""
    skip_jit(way == "compiled", size)
    monkeypatch.setattr(sparse, "SMALL_TABLE_BYTES", 1e9 if way == "small table" else -1)
    monkeypatch.setattr(sparse, "GATHER_AT_MOST", 1e9 if way == "gathered" else -1.0)
    dense, table, local = tf.Variable([1.0, 2.0]), tf.Variable(tf.ones([ROWS, 2])), tf.Variable([3.0])

    def body(weight, ids):
        with tf.GradientTape() as tape:
            loss = weight * (tf.reduce_sum(dense) + tf.reduce_sum(local) + tf.reduce_sum(tf.gather(table, ids)))
        tape = hvd.DistributedGradientTape(tape)
        tape.register_local_source(local)
        grads = tape.gradient(loss, [dense, table, local])
        assert isinstance(grads[1], tf.Tensor if way == "compiled" else tf.IndexedSlices)
        return [tf.convert_to_tensor(grad) for grad in grads]

    step = once(body, jit_compile=way == "compiled")
    for weights in each():
        for _ in range(2):
            of_dense, of_table, of_local = step(tf.constant(rank + 1.0), tf.constant([rank, rank, 5]))
            np.testing.assert_allclose(of_dense, [np.mean(weights)] * 2, rtol=1e-6)
            np.testing.assert_allclose(of_local, [(rank + 1.0) / len(weights)], rtol=1e-6)
            expected = np.zeros((ROWS, 2))
            for weight in weights:
                np.add.at(expected, [int(weight) - 1, int(weight) - 1, 5], weight / len(weights))
            np.testing.assert_allclose(of_table, expected, rtol=1e-6)


def test_slices_and_gradients_of_collectives(hvd, rank, size, each):
    def body(x):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            sent = hvd.broadcast(x, 0) * (rank + 1.0)
            gathered = hvd.allgather(x) ** 2
            scattered = hvd.reducescatter(tf.tile(x, [size]), op=hvd.Sum) * (rank + 1.0)
        slices = [
            tf.IndexedSlices(tf.cast([x, 2 * x], dtype), tf.constant([0, 1]), tf.constant([2, 2]))
            for dtype in (tf.float32, tf.int32)
        ]
        means = [tf.convert_to_tensor(mean) for mean in hvd.grouped_allreduce(slices)]
        return [tape.gradient(y, x) for y in (sent, gathered, scattered)], means, sdp.allreduce(x)

    step = once(body)
    for weights in each():
        (of_sent, of_gathered, of_scattered), means, reduced = step(tf.constant([rank + 1.0, 8.0]))
        root = rank + 1.0 == weights[0]
        np.testing.assert_allclose(of_sent, [np.mean(weights) if root else 0.0] * 2, rtol=1e-6)
        np.testing.assert_allclose(of_gathered, [2 * (rank + 1.0), 16.0], rtol=1e-6)
        # Each element is in `size` places of the tiled tensor, which the ranks of the session share out evenly.
        of_ranks = np.repeat(weights, 2 * size // len(weights)).reshape(size, 2)
        np.testing.assert_allclose(of_scattered, of_ranks.sum(0) * len(weights), rtol=1e-6)
        expected = np.array([np.mean(weights), 8.0])
        np.testing.assert_allclose(means[0], [expected, 2 * expected], rtol=1e-6)
        np.testing.assert_array_equal(means[1], np.trunc([expected, 2 * expected]))
        np.testing.assert_allclose(reduced, expected, rtol=1e-6)


def test_a_root_that_is_gone(hvd, rank, size, sessions):
    step = once(lambda: hvd.broadcast(tf.constant(rank), size - 1))
    sessions.begin("all")
    assert int(step()) == size - 1
    sessions.begin("alone")
    with pytest.raises(tf.errors.InvalidArgumentError, match="`root_rank` must be from 0 to 0"):
        step()


def test_compiled_by_xla(hvd, rank, size, each):
    """What depends on the ranks is read at run time; only shapes are fixed, and then there is an error."""
    skip_jit(True, size)

    def gradient(weight):
        with tf.GradientTape() as tape:
            tape.watch(weight)
            sent = hvd.broadcast(weight, 0) * weight
        return tape.gradient(sent, weight)

    step = once(gradient, jit_compile=True)
    rows = once(hvd.allgather, jit_compile=True)
    mine = once(lambda x: hvd.reducescatter(x, op=hvd.Sum), jit_compile=True)

    def gradient_outside(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = step_inside(x) * x
        return tape.gradient(loss, x)

    step_inside = once(lambda x: hvd.broadcast(x, 0), jit_compile=True)
    sizes = []
    for weights in each():
        sizes.append(len(weights))
        first, mean = weights[0], np.mean(weights)
        expected = first + (mean if rank + 1.0 == first else 0.0)
        np.testing.assert_allclose(step(tf.constant(rank + 1.0)), expected, rtol=1e-6)
        np.testing.assert_allclose(gradient_outside(tf.constant(rank + 1.0)), expected, rtol=1e-6)
        x = tf.fill([size + 1, 2], rank + 1.0)
        if sizes[0] == len(weights):
            np.testing.assert_array_equal(rows(x)[:, 0], np.repeat(weights, size + 1))
            place = weights.index(rank + 1.0)
            even, more = divmod(size + 1, len(weights))
            np.testing.assert_array_equal(mine(x)[:, 0], [sum(weights)] * (even + (place < more)))
        else:
            for function in (rows, mine):
                with pytest.raises(tf.errors.OpError, match="compiled by XLA for .* ranks.*Received: a call with"):
                    function(x)


def test_synchronized_statistics(hvd, rank, size, each):
    layer = hvd.SyncBatchNormalization(epsilon=0.0, momentum=0.0)
    layer.build((None, 1))
    step = once(lambda x: layer(x, training=True))
    for weights in each():
        values = np.array([[weight, 3 * weight] for weight in weights])
        x = np.array([[rank + 1.0], [3 * (rank + 1.0)]])
        np.testing.assert_allclose(step(tf.constant(x, tf.float32)), (x - values.mean()) / values.std(), rtol=1e-5)
        np.testing.assert_allclose(layer.moving_mean, [values.mean()], rtol=1e-6)


def test_a_graph_of_tensorflow_1(hvd, rank, size, each):
    with tf.Graph().as_default(), v1.Session() as session:
        weight, dense, table = v1.placeholder(tf.float32, []), tf.Variable([1.0, 2.0]), tf.Variable(tf.ones([ROWS, 2]))
        loss = weight * (tf.reduce_sum(dense) + tf.reduce_sum(tf.gather(table, [2, 2])))
        grads = []
        for weights in each():
            if not grads:
                optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(1.0))
                grads = [tf.convert_to_tensor(grad) for grad, _ in optimizer.compute_gradients(loss, [dense, table])]
                grads += tf.gradients(hvd.broadcast(weight * dense, 0), dense)
                session.run(v1.global_variables_initializer())
            of_dense, of_table, of_sent = session.run(grads, {weight: rank + 1.0})
            np.testing.assert_allclose(of_dense, [np.mean(weights)] * 2, rtol=1e-6)
            np.testing.assert_allclose(of_table[1:3], [[0.0, 0.0], [2 * np.mean(weights)] * 2], rtol=1e-6)
            np.testing.assert_allclose(of_sent, [rank + 1.0 if rank + 1.0 == weights[0] else 0.0] * 2, rtol=1e-6)


@pytest.mark.parametrize("jit", [False, *in_full(True)])
def test_fit(hvd, rank, size, each, jit):
    """Keras keeps the function it has traced, and we keep the one for uneven data."""
    skip_jit(jit, size)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse", jit_compile=jit)
    x = np.full([4, 1], rank + 1.0, np.float32)
    for weights in each():
        for of_last in (2, 1):  # the batches of the last rank; the others have two
            model.set_weights([np.ones((1, 1))])
            mine = x[: 2 * of_last] if rank == size - 1 else x
            model.fit(mine, np.zeros_like(mine), batch_size=2, verbose=0)
            expected = 1.0
            for step in range(2):
                fed = [weight for weight in weights if weight < size or step < of_last]
                expected -= 0.01 * np.mean([2 * expected * weight**2 for weight in fed]) if fed else 0.0
            np.testing.assert_allclose(model.get_weights()[0], [[expected]], rtol=1e-5)


def test_ranks_that_change_places_with_a_set(hvd, rank, size, sessions, mpi):
    """Traced outside of a set a graph reduces nothing, which would keep the other members waiting later."""
    process_set, variable = hvd.ProcessSet([0]), tf.Variable([1.0])

    def body(weight):
        with tf.GradientTape() as tape:
            loss = weight * tf.reduce_sum(variable)
        return hvd.DistributedGradientTape(tape, process_set=process_set).gradient(loss, variable)

    step, backwards = once(body), mpi.Split(0, key=-rank)
    hvd.shutdown()
    hvd.init(process_sets=[process_set])
    np.testing.assert_allclose(step(tf.constant(rank + 1.0)), [rank + 1.0])
    hvd.shutdown()
    hvd.init(backwards, process_sets=[process_set])
    words = {0: "is not a member of the provided process set", size - 1: "was traced on a rank outside of process set"}
    if rank in words:
        with pytest.raises(tf.errors.InvalidArgumentError, match=words[rank]):
            step(tf.constant(1.0))
    else:
        np.testing.assert_allclose(step(tf.constant(rank + 1.0)), [rank + 1.0])
    hvd.shutdown()
    backwards.Free()
