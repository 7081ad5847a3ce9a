"""On which thread the engine's work is done: on the caller's where it waits for the answer, else on the engine's."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
import tensorflow as tf

from smddp_tf._native import loader

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.ranks("2", "2+1")

CALLS = 60
ELEMENTS = 1 << 18  # 1 MiB, whose sums are most of the work


def share_of_others(call: Callable[[], object]) -> float:
    """Of the CPU time of `CALLS` calls, the part that other threads of this process have used."""
    for _ in range(5):
        call()
    mine, all_threads = time.thread_time(), time.process_time()
    for _ in range(CALLS):
        call()
    mine, all_threads = time.thread_time() - mine, time.process_time() - all_threads
    return 1 - mine / all_threads


def test_who_waits_in_eager_mode_does_the_work(hvd, rank, size):
    """On one node, where a round makes no call of MPI."""
    tensor = tf.fill([ELEMENTS], rank + 1.0)
    share = share_of_others(lambda: hvd.allreduce(tensor, op=hvd.Sum, name="eager"))
    assert (share < 0.3) == (hvd.local_size() == size), share
    result = hvd.allreduce(tensor, op=hvd.Sum, name="eager")
    np.testing.assert_array_equal(result, np.full(ELEMENTS, size * (size + 1) / 2))


def test_in_a_function_the_engine_does_it(hvd, rank):
    tensor = tf.fill([ELEMENTS], rank + 1.0)
    function = tf.function(lambda: hvd.allreduce(tensor, op=hvd.Sum, name="function"))
    assert share_of_others(function) > 0.4


def test_functions_in_other_orders_while_a_caller_waits(hvd, rank, size):
    """Collectives of a function block no thread of TensorFlow's, also while the thread beside drives."""
    order = range(40) if rank % 2 == 0 else reversed(range(40))

    @tf.function
    def in_this_order() -> list[tf.Tensor]:
        return [hvd.allreduce(tf.constant(rank + each), op=hvd.Sum, name=f"each.{each}") for each in order]

    beside = threading.Thread(target=lambda: hvd.barrier(name="beside"))
    if rank != 0:
        beside.start()
    total = tf.add_n(in_this_order())
    if rank == 0:
        beside.start()
    beside.join()
    assert int(total) == sum(40 * other + 780 for other in range(size))


def test_numpy_arrays_are_moved_by_the_caller(hvd, rank, size):
    """So it is with objects and metrics, which are NumPy arrays here."""
    array = np.full(ELEMENTS, rank + 1, np.float32)
    share = share_of_others(lambda: loader.core().broadcast([array], dtype="float32", root=size - 1, name="numpy"))
    assert (share < 0.3) == (hvd.local_size() == size), share
    np.testing.assert_array_equal(array, np.full(ELEMENTS, size))
