"""Calls of functions that XLA compiles, which run at the same time in one graph."""

from __future__ import annotations

import pytest
import tensorflow as tf

from tests.support.call_sites import STEPS, check_taped, mean, taped_plain, variables

pytestmark = pytest.mark.ranks("2", "2+2")


@pytest.mark.parametrize("outer", [False, True], ids=["plain around", "compiled around"])
def test_functions_that_xla_compiles(hvd, rank, size, outer):
    """They stay calls: nothing but their order tells them apart."""
    own = variables()
    update = tf.function(lambda scale: taped_plain(hvd, own, scale * (rank + 1.0)), jit_compile=True)
    summed = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum), jit_compile=True)

    @tf.function(jit_compile=outer)
    def step(x):
        return update(x), update(1000.0 * x), summed(x * (rank + 1)), summed(7.0 * x * (rank + 1))

    for _ in range(STEPS):
        first, second, one, seven = step(tf.constant(1.0))
        check_taped(first, 1.0, size)
        check_taped(second, 1000.0, size)
        assert float(one) == size * mean(size)
        assert float(seven) == 7 * size * mean(size)


def test_a_compiled_function_in_a_loop_and_beside_it(hvd, rank, size):
    own = variables()
    update = tf.function(lambda scale: taped_plain(hvd, own, scale * (rank + 1.0)), jit_compile=True)

    @tf.function
    def step(x):
        sums = [tf.zeros([3 + i]) for i in range(4)]
        for _ in tf.range(3):
            sums = [a + b for a, b in zip(sums, update(x))]
        plain = taped_plain(hvd, own, 50.0 * x * (rank + 1.0))
        return sums, update(100.0 * x), plain

    for _ in range(3):
        sums, beside, plain = step(tf.constant(1.0))
        check_taped(sums, 3.0, size)
        check_taped(beside, 100.0, size)
        check_taped(plain, 50.0, size)
