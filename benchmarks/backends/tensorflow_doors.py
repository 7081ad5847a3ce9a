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

    The inputs are tensors that somebody else holds, as is usual; the results are dropped inside the function, so that
    what leaves it costs no candidate anything.
    """
    tensors = [tf.constant(input_values(rank, shape, place)) for place, shape in enumerate(case.shapes())]

    @tf.function(jit_compile=False)
    def reduced():
        return reduce(tensors)

    @tf.function(jit_compile=False)
    def timed():
        with tf.control_dependencies(reduce(tensors)):
            return tf.constant(0)

    wrong = sum(wrong_elements(out.numpy(), ranks, place, divisor=ranks) for place, out in enumerate(reduced()))
    return Prepared(timed, wrong)
