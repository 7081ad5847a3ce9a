"""`root_rank` is checked at the call."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from smddp_tf import sdp
from tests.support.refused import refused

pytestmark = [pytest.mark.ranks("2"), pytest.mark.usefixtures("nothing_was_sent")]

v1 = tf.compat.v1


VARIABLE = tf.Variable([1.0, 1.0])


def variable():
    return VARIABLE if v1.executing_eagerly_outside_functions() else v1.get_variable("v", [2], use_resource=True)


# --- roots ---

OF_ROOTS = {
    "broadcast": lambda hvd, root, **more: hvd.broadcast(tf.ones([2]), root, **more),
    "broadcast_": lambda hvd, root, **more: hvd.broadcast_([variable()], root, **more),
    "broadcast_variables": lambda hvd, root, **more: hvd.broadcast_variables([variable()], root, **more),
    "broadcast_object": lambda hvd, root, **more: hvd.broadcast_object(1, root, **more),
    "broadcast_object_fn": lambda hvd, root, **more: hvd.broadcast_object_fn(root, **more)(1),
}
WITHOUT_SETS = {
    "broadcast of strings": lambda hvd, root: hvd.broadcast_variables([tf.Variable("text")], root),
    "keras.broadcast": lambda hvd, root: hvk.broadcast([1.0], root),
    "sdp.broadcast": lambda hvd, root: sdp.broadcast(tf.ones([2]), root),
    "sdp.broadcast_variables": lambda hvd, root: sdp.broadcast_variables([variable()], root),
    "callback": lambda hvd, root: hvk.callbacks.BroadcastGlobalVariablesCallback(root),
    "hook": lambda hvd, root: hvd.BroadcastGlobalVariablesHook(root),
}


@pytest.mark.parametrize("wrong", ["0", None, 0.0, [0], True, {}], ids=repr)
def test_roots_of_a_wrong_type(hvd, run_in, wrong):
    for name, call in {**OF_ROOTS, **WITHOUT_SETS}.items():
        words = "`root_rank` must be an integer, the number of a rank. Received: root_rank="
        inside = run_in if name in OF_ROOTS else (lambda function: function())
        refused(name, words, lambda call=call, inside=inside: inside(lambda: call(hvd, wrong)))


def test_roots_that_do_not_exist(hvd, size, run_in):
    for wrong in (size, -1, 10**12):
        for name, call in {**OF_ROOTS, **WITHOUT_SETS}.items():
            words = f"`root_rank` must be from 0 to {size - 1}. Received: root_rank={wrong}"
            inside = run_in if name in OF_ROOTS else (lambda function: function())
            refused(name, words, lambda call=call, inside=inside, wrong=wrong: inside(lambda: call(hvd, wrong)))


@pytest.mark.usefixtures("several_ranks")
def test_roots_outside_of_a_process_set(dynamic, rank, size, run_in):
    last = dynamic.add_process_set([size - 1])
    try:
        for call in OF_ROOTS.values():
            with pytest.raises(ValueError, match="`root_rank` must be a rank of the process set.*root_rank=0"):
                run_in(lambda call=call: call(dynamic, 0, process_set=last))
            if rank == size - 1:
                run_in(lambda call=call: call(dynamic, size - 1, process_set=last))
    finally:
        dynamic.remove_process_set(last)


def test_what_counts_as_a_root(hvd, rank, size):
    for root in (np.int64(size - 1), np.uint8(size - 1), tf.constant(size - 1), size - 1):
        assert int(hvd.broadcast(tf.constant(rank), root)) == size - 1
        assert hvd.broadcast_object(rank, root) == size - 1
