"""Cases in a `tf.function`, the same for every library: only how a list of tensors is reduced differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from benchmarks.backends import Prepared
from benchmarks.cases import Case, input_values, wrong_elements

__all__ = ["prepare"]

Reduce = Callable[[list[Any]], list[Any]]


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
