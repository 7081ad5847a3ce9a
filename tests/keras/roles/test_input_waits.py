"""How long steps wait for batches: counted by iterators that take the place of Keras's."""

from __future__ import annotations

import time

import tensorflow as tf

from smddp_tf.keras.roles.input_waits import Timed, counted, take_back, timed


def pairs(flags: list[float]) -> tf.data.Dataset:
    """Batches of three rows, each with a flag: 0 is padding."""
    rows = tf.data.Dataset.from_tensor_slices((flags, tf.ones([len(flags), 3, 2])))
    return rows.map(lambda flag, batch: (flag, batch))


def test_batches_and_samples_are_counted_and_padding_is_no_sample() -> None:
    before = counted()
    seen = [float(flag) for flag, _ in Timed(pairs([1.0, 0.0, 1.0, 1.0]))]
    assert seen == [1.0, 0.0, 1.0, 1.0]
    after = counted()
    assert after.samples - before.samples == 9
    batches = after.batches - before.batches
    take_back(2)
    assert counted().batches - before.batches == batches - 2
    assert counted().samples == after.samples


def test_the_time_of_waiting_is_that_of_the_data() -> None:
    def slow(number: tf.Tensor) -> tf.Tensor:
        tf.py_function(lambda: time.sleep(0.03), [], [])
        return tf.fill([5], number)

    iterator = iter(Timed(tf.data.Dataset.range(3).map(slow)))
    before = counted()

    @tf.function
    def step(iterator: tf.data.Iterator) -> tf.Tensor:
        return next(iterator)

    began = time.perf_counter()
    for _ in range(3):
        step(iterator)
    took = time.perf_counter() - began
    seconds, batches, samples = (b - a for a, b in zip(before, counted()))
    assert 0.08 <= seconds <= took
    assert (batches, samples) == (3, 15)


def test_an_iterator_is_timed_once() -> None:
    iterator = timed(iter(tf.data.Dataset.range(2)))
    assert timed(iterator) is iterator
