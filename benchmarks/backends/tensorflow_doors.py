"""Cases in a `tf.function`, the same for every library: only how a list of tensors is reduced differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.backends import Prepared
from benchmarks.cases import STEPS, Case, expected_sum, input_values, wrong_elements

__all__ = ["plus_one", "prepare", "prepare_step"]

Reduce = Callable[[list[Any]], list[Any]]
RATE = 2.0**-10  # exact in float32, and so small that the variables change little


def prepare(case: Case, rank: int, ranks: int, reduce: Reduce) -> Prepared:
    """Checks `reduce`, an average, and returns a `tf.function` of it.

    The inputs are variables' values, which TensorFlow neither folds into constants nor gives away. The results leave
    the function, so that no optimizer may leave out the work, and are dropped at once.
    """
    variables = [tf.Variable(input_values(rank, shape, place)) for place, shape in enumerate(case.shapes())]

    @tf.function(jit_compile=False)
    def reduced():
        return reduce([variable.read_value() for variable in variables])

    wrong = sum(wrong_elements(out.numpy(), ranks, place, divisor=ranks) for place, out in enumerate(reduced()))
    return Prepared(reduced, wrong)


def plus_one(elements: int) -> Prepared:
    """A `tf.function` of `x + 1`: what TensorFlow itself takes."""
    variable = tf.Variable(tf.zeros([elements]))
    return Prepared(tf.function(lambda: variable + 1, jit_compile=False), 0)


def prepare_step(case: Case, rank: int, ranks: int, hvd: Any) -> Prepared:
    """Checks and returns the smallest training step that has the model's gradients: each is fresh memory, in time.

    The loss is half the sum of squares, so the gradients are the variables' values. "alone" and "tape" return them;
    "applied" and "optimizer" apply them with plain SGD. The first step is checked.
    """
    applies, reduces = case.door in STEPS[2:], case.door in ("tape", "optimizer")
    shapes = case.shapes()
    variables = [tf.Variable(input_values(rank, shape, place)) for place, shape in enumerate(shapes)]
    one = tf.Variable(1.0)  # TensorFlow would leave out the product with a constant
    optimizer = tf.keras.optimizers.SGD(RATE)
    if applies:
        optimizer = hvd.DistributedOptimizer(optimizer) if reduces else optimizer
        optimizer.build(variables)

    @tf.function(jit_compile=False)
    def step():
        with tf.GradientTape() as tape:
            loss = one * tf.add_n([tf.nn.l2_loss(variable) for variable in variables])
        if applies and hasattr(optimizer, "minimize"):
            optimizer.minimize(loss, variables, tape=tape)  # Keras 2, where Horovod reduces between its two halves
            return loss
        gradients = (hvd.DistributedGradientTape(tape) if case.door == "tape" else tape).gradient(loss, variables)
        if not applies:
            return gradients
        optimizer.apply_gradients(zip(gradients, variables))
        return loss

    result = step()
    wrong = 0
    for place, shape in enumerate(shapes):
        mine = input_values(rank, shape, place)
        gradient = expected_sum(ranks, shape, place) / np.float32(ranks) if reduces else mine
        expected = mine - np.float32(RATE) * gradient if applies else gradient
        wrong += int(np.count_nonzero((variables if applies else result)[place].numpy() != expected))
    return Prepared(step, wrong)
