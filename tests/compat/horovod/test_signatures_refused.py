"""Arguments that cannot be right are refused at the call, before anything is sent: nobody waits for it."""

from __future__ import annotations

import copy
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from smddp_tf import sdp
from smddp_tf.compat.horovod import keras as horovod_keras
from smddp_tf.sdp import keras as sdp_keras
from tests.support.refused import refused
from tests.variants import in_full

pytestmark = [pytest.mark.ranks("2"), pytest.mark.usefixtures("nothing_was_sent")]

v1 = tf.compat.v1


def slices() -> tf.IndexedSlices:
    return tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([2, 2]))


# --- process sets ---

OF_SETS = {
    "allgather": lambda hvd, **more: hvd.allgather(tf.ones([2]), **more),
    "allreduce": lambda hvd, **more: hvd.allreduce(tf.ones([2]), **more),
    "allreduce of slices": lambda hvd, **more: hvd.allreduce(slices(), **more),
    "alltoall": lambda hvd, **more: hvd.alltoall(tf.ones([hvd.size()]), **more),
    "barrier": lambda hvd, **more: hvd.barrier(**more),
    "broadcast": lambda hvd, **more: hvd.broadcast(tf.ones([2]), 0, **more),
    "broadcast_": lambda hvd, **more: hvd.broadcast_([variable()], 0, **more),
    "broadcast_variables": lambda hvd, **more: hvd.broadcast_variables([variable()], 0, **more),
    "grouped_allgather": lambda hvd, **more: hvd.grouped_allgather([tf.ones([2])], **more),
    "grouped_allreduce": lambda hvd, **more: hvd.grouped_allreduce([tf.ones([2])], **more),
    "grouped_reducescatter": lambda hvd, **more: hvd.grouped_reducescatter([tf.ones([2])], **more),
    "join": lambda hvd, **more: hvd.join(**more),
    "reducescatter": lambda hvd, **more: hvd.reducescatter(tf.ones([2]), **more),
    "tape": lambda hvd, **more: gradient(hvd, **more),
    "allgather_object": lambda hvd, **more: hvd.allgather_object(1, **more),
    "broadcast_object": lambda hvd, **more: hvd.broadcast_object(1, **more),
    "broadcast_object_fn": lambda hvd, **more: hvd.broadcast_object_fn(**more)(1),
    "keras optimizer": lambda hvd, **more: hvd.DistributedOptimizer(keras.optimizers.SGD(), **more).apply(
        [tf.ones([2])], [KERAS_VARIABLE]
    ),
    "tensorflow 1 optimizer": lambda hvd, **more: minimize(hvd, **more),
}
KERAS_VARIABLE = keras.Variable([1.0, 1.0])
VARIABLE = tf.Variable([1.0, 1.0])


def variable():
    return VARIABLE if v1.executing_eagerly_outside_functions() else v1.get_variable("v", [2], use_resource=True)


def gradient(hvd, **more):
    x = tf.ones([2])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x
    return hvd.DistributedGradientTape(tape, **more).gradient(y, x)


def minimize(hvd, **more):
    optimizer, weights = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.1), **more), variable()
    return optimizer.compute_gradients(lambda: tf.reduce_sum(weights), [weights])


def stale(hvd, which: str):
    """A set that names no set in use: as its user's program may have got hold of it."""
    if which == "never added":
        return hvd.ProcessSet([0])
    if which == "unknown number":
        process_set = hvd.ProcessSet([0])
        process_set.process_set_id = 999
        return process_set
    added = hvd.add_process_set([0])
    other = {"removed": added, "copied and removed": copy.copy(added)}.get(which) or pickle.loads(pickle.dumps(added))
    hvd.remove_process_set(added)
    return other


@pytest.mark.usefixtures("several_ranks")
@pytest.mark.parametrize(
    "which",
    ["never added", "pickled and removed", *in_full("unknown number", "removed", "copied and removed")],
)
def test_unknown_process_sets(dynamic, run_in, which):
    process_set = stale(dynamic, which)
    for name, call in OF_SETS.items():
        refused(
            name,
            "`process_set` is not in use|There is no process set",
            lambda call=call: run_in(lambda: call(dynamic, process_set=process_set)),
        )


def test_process_sets_that_are_none(hvd, run_in):
    for wrong in ([0], 0, 999, None, "0"):
        for call in OF_SETS.values():
            with pytest.raises(TypeError, match="`process_set` must be an `hvd.ProcessSet`"):
                run_in(lambda call=call, wrong=wrong: call(hvd, process_set=wrong))


def test_numbers_of_process_sets(hvd, size):
    """Where Horovod takes numbers."""
    for unknown in (999, -1):
        for call in (hvd.size_op, hvd.is_process_set_included):
            with pytest.raises(ValueError, match=f"There is no process set {unknown}"):
                call(unknown)
        with pytest.raises(ValueError, match=f"There is no process set {unknown}"):
            tf.function(hvd.size_op)(unknown)
        assert int(hvd.process_set_included_op(unknown)) == -3
    assert int(hvd.size_op(0)) == size


def test_process_sets_of_an_earlier_session(hvd, size):
    if size == 1:
        pytest.skip("one rank has no parts")
    hvd.shutdown()
    first = hvd.ProcessSet([0])
    hvd.init(process_sets=[first])
    copied = copy.copy(first)
    hvd.shutdown()
    for process_set in (first, copied, hvd.global_process_set):
        for name, call in OF_SETS.items():
            if name == "alltoall":  # which asks for the size to make its tensor
                continue
            with pytest.raises(ValueError, match=r"not in use|There is no process set|use hvd\.init\(\)"):
                call(hvd, process_set=process_set)
    hvd.init()
    with pytest.raises(ValueError, match="There is no process set 1"):
        hvd.allreduce(tf.ones([2]), process_set=copied)


# --- compression ---

OF_COMPRESSION = {
    "allreduce": lambda hvd, x, **more: hvd.allreduce(x, **more),
    "grouped_allreduce": lambda hvd, x, **more: hvd.grouped_allreduce([x], **more)[0],
    "keras.allreduce": lambda hvd, x, **more: hvk.allreduce(x, **more),
    "reducescatter": lambda hvd, x, **more: hvd.allgather(hvd.reducescatter(x, **more)),
    "grouped_reducescatter": lambda hvd, x, **more: hvd.allgather(hvd.grouped_reducescatter([x], **more)[0]),
    "tape": lambda hvd, x, **more: of_tape(hvd.DistributedGradientTape, x, **more),
    "partial tape": lambda hvd, x, **more: of_tape(hvd.PartialDistributedGradientTape, x, **more),
    "sdp tape": lambda hvd, x, **more: of_tape(sdp.DistributedGradientTape, x, **more),
    "optimizer": lambda hvd, x, **more: of_optimizer(hvd.DistributedOptimizer, x, **more),
    "keras optimizer": lambda hvd, x, **more: of_optimizer(hvk.DistributedOptimizer, x, **more),
    "horovod.keras optimizer": lambda hvd, x, **more: of_optimizer(horovod_keras.DistributedOptimizer, x, **more),
    "partial optimizer": lambda hvd, x, **more: of_optimizer(hvk.PartialDistributedOptimizer, x, **more),
    "sdp optimizer": lambda hvd, x, **more: of_optimizer(sdp.DistributedOptimizer, x, **more),
    "sdp keras optimizer": lambda hvd, x, **more: of_optimizer(sdp_keras.DistributedOptimizer, x, **more),
    "sdp.allreduce": lambda hvd, x, **more: sdp.allreduce(x, **more),
    "sdp.oob_allreduce": lambda hvd, x, **more: sdp.oob_allreduce(x, **more),
    "_make_allreduce_grads_fn": lambda hvd, x, **more: hvd._make_allreduce_grads_fn("mine", **more)([x])[0],
}


def of_tape(make, x, **more):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * tf.stop_gradient(x)
    return make(tape, **more).gradient(y, x)


def of_optimizer(make, x, **more):
    KERAS_VARIABLE.assign([0.0, 0.0])
    make(keras.optimizers.SGD(1.0), **more).apply([x], [KERAS_VARIABLE])
    return -KERAS_VARIABLE


@pytest.mark.parametrize("name", OF_COMPRESSION)
@pytest.mark.parametrize("compression", ["none", "fp16", "bf16"])
def test_compression_by_name(hvd, rank, size, name, compression):
    call, x = OF_COMPRESSION[name], tf.constant([1.0 + 2.0**-12, rank + 1.0])
    got = call(hvd, x, compression=compression)
    np.testing.assert_array_equal(got, call(hvd, x, compression=getattr(hvd.Compression, compression)))
    np.testing.assert_allclose(got, [1.0, (size + 1) / 2], rtol=1e-3)


@pytest.mark.parametrize("wrong", ["fp8", "", None, True, 16, np.float16, tf.float16, {}], ids=repr)
def test_what_is_no_compression(hvd, rank, wrong):
    x = tf.constant([1.0, rank + 1.0])
    for name, call in OF_COMPRESSION.items():
        words = "`compression` must be hvd.Compression.none, .fp16, .bf16"
        refused(name, words, lambda call=call: call(hvd, x, compression=wrong))
    for at_once in (
        lambda: hvd.DistributedOptimizer(keras.optimizers.SGD(), compression=wrong),
        lambda: hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.1), compression=wrong),
        lambda: hvd.DistributedGradientTape(tf.GradientTape(), compression=wrong),
        lambda: hvd.allreduce(slices(), compression=wrong),
        lambda: sdp.allreduce(slices(), compression=wrong),
        lambda: hvk.load_model("nowhere.keras", compression=wrong),
    ):
        refused("at once", "`compression` must be", at_once)


def test_a_callback_made_before_init(hvd, size):
    hvd.shutdown()
    try:
        with pytest.raises(ValueError, match="`root_rank` must be an integer"):
            hvk.callbacks.BroadcastGlobalVariablesCallback("0")
        assert hvk.callbacks.BroadcastGlobalVariablesCallback(size - 1).root_rank == size - 1
    finally:
        hvd.init()
