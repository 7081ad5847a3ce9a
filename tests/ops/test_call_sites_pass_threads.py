"""Threads that reduce at the same time: told apart by their names."""

from __future__ import annotations

import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

from smddp_tf._native import threads
from tests.support.call_sites import mean, taped_plain

pytestmark = pytest.mark.ranks("2", "2+2")


def in_threads(names, work):
    """Begins `work(i)` in one thread for each name (None: unnamed) and returns what each gave, or its error."""
    results = {}

    def run(i):
        try:
            results[i] = work(i)
        except Exception as error:
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,), name=name) for i, name in enumerate(names)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.fixture
def models(hvd, rank, size):
    """Trains model i for three steps; of two threads another one begins on each rank."""
    begun = [threading.Event(), threading.Event()]

    def train(i, alone=False):
        if (i + rank) % 2 and not alone:
            begun[1 - i].wait(60)
        variable = tf.Variable(tf.zeros([4]))

        @tf.function
        def step():
            grad = taped_plain(hvd, [variable], 10.0**i * (rank + 1))[0]
            variable.assign_add(grad)
            return hvd.allreduce(grad)

        begun[i].set()
        for _ in range(3):
            step()
        return float(variable[0])

    return train


def test_threads_with_names(models, rank, size):
    results = in_threads(["critic", f"actor of rank {rank}"], models)
    assert results == {0: pytest.approx(3 * mean(size)), 1: pytest.approx(30 * mean(size))}


def test_the_main_thread_and_another(models, size):
    """Which needs no name."""
    done = {}
    other = threading.Thread(target=lambda: done.update({0: models(0)}))
    other.start()
    done[1] = models(1)
    other.join()
    assert done == {0: pytest.approx(3 * mean(size)), 1: pytest.approx(30 * mean(size))}


def test_threads_of_one_kind_are_refused(hvd):
    """The second one that reduces while the first is alive, and from then on both."""
    asked, together = threading.Event(), threading.Barrier(2, timeout=60)

    def work(i):
        if i == 0:
            threads.label()
        together.wait()
        try:
            if i == 1:
                return hvd.allreduce(1.0)
            asked.wait(60)
            return threads.label()
        finally:
            asked.set()
            together.wait()  # both are alive until then

    for error in in_threads(["trainer-1", "trainer-2"], work).values():
        assert isinstance(error, ValueError)
        assert "Threads that may reduce at the same time need names" in str(error)
    assert in_threads(["trainer-3"], lambda i: threads.label()) == {0: "trainer-#"}  # the others are gone


def test_idle_threads_need_no_names(models, rank, size):
    """On one rank only others of the same kind are alive; and one after the other may reduce."""
    stop = threading.Event()
    idle = [threading.Thread(target=stop.wait, name=f"Thread-{1000 + n}") for n in range(3 * rank)]
    for thread in idle:
        thread.start()
    try:
        for _ in range(2):
            assert in_threads([None], lambda i: models(i, alone=True)) == {0: pytest.approx(3 * mean(size))}
    finally:
        stop.set()
        for thread in idle:
            thread.join()


def test_fits_in_two_threads(hvd, rank, size):
    """What the library asks for by itself in a `fit` stays in its thread, too."""
    import smddp_tf.keras as hvd_keras

    begun = [threading.Event(), threading.Event()]

    def train(i):
        if (i + rank) % 2:
            begun[1 - i].wait(60)
        begun[i].set()
        assert hvd.broadcast_object(f"object {i}") == f"object {i}"
        assert hvd.allgather_object((i, rank)) == [(i, other) for other in range(size)]
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
        given = [hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0), hvd_keras.callbacks.MetricAverageCallback()]
        x = np.random.default_rng(rank).normal(size=(8, 2)).astype(np.float32)
        y = np.full((8, 1), 100.0**i, np.float32)
        losses = model.fit(x, y, batch_size=4, epochs=2, verbose=0, callbacks=given).history["loss"]
        return hvd.allgather_object((i, losses))

    results = in_threads(["critic", "actor"], train)
    for i, everybody in results.items():
        assert everybody == [(i, everybody[0][1])] * size, results
    assert results[1][0][1][0] > 100 * results[0][0][1][0]
