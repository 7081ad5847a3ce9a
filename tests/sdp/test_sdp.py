"""smddp_tf.sdp: SMDDP's functions, as scripts call them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from smddp_tf import sdp
from smddp_tf._native import loader
from smddp_tf.sdp import common
from smddp_tf.sdp import keras as sdp_keras
from smddp_tf.sdp.exceptions import SMDDPAlreadyInitializedError

pytestmark = pytest.mark.ranks("1", "2")


def test_init_may_be_called_once(hvd, rank, size):
    with pytest.raises(SMDDPAlreadyInitializedError, match="init called more than once") as caught:
        sdp.init()
    assert isinstance(caught.value, RuntimeError)
    assert "smdistributed.dataparallel is already initialized." in str(caught.value)
    assert (sdp.rank(), sdp.size()) == (rank, size)
    assert (sdp.local_rank(), sdp.local_size()) == (hvd.local_rank(), hvd.local_size())
    assert (sdp_keras.rank(), sdp_keras.size()) == (rank, size)


def test_worker_comm(hvd, rank, size):
    comm = sdp.get_worker_comm()
    assert (comm.Get_rank(), comm.Get_size()) == (rank, size)
    assert comm.allgather({"rank": rank}) == [{"rank": other} for other in range(size)]
    comm.Barrier()
    assert sdp.get_worker_comm() is comm


@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_gradients_one_by_one(hvd, rank, size, mode):
    """Every second place has no gradient; places are matched, whatever the order in which they come."""
    count = 6
    grads = {i: tf.constant([[i + 1.0, rank * 10.0]] * (i + 1)) for i in range(0, count, 2)}

    def reduce_all(order, **options):
        return {i: sdp.allreduce(grads.get(i), param_index=i, num_params=count, **options) for i in order}

    run = tf.function if mode == "graph" else (lambda function: function)
    order = range(count) if rank == 0 or mode == "eager" else reversed(range(count))
    reduced = run(lambda: reduce_all(order))()
    assert [i for i, grad in reduced.items() if grad is None] == ([1, 3, 5] if order == range(count) else [5, 3, 1])
    for i in grads:
        np.testing.assert_allclose(reduced[i], [[i + 1.0, 5.0 * (size - 1)]] * (i + 1))

    for op, expected in (("SUM", 5.0 * size * (size - 1)), ("MIN", 0.0), ("MAX", 10.0 * (size - 1))):
        result = run(
            lambda op=op: sdp.allreduce(grad=grads[0], param_index=0, num_params=1, op=getattr(sdp.ReduceOp, op))
        )()
        np.testing.assert_allclose(result, [[size if op == "SUM" else 1.0, expected]])
    half = run(lambda: sdp.allreduce(grads[2] + 2.0**-13, 0, 1, sdp.Compression.fp16))()
    assert half.dtype == tf.float32
    if size > 1 or mode == "eager":  # a plan of one rank narrows nothing
        np.testing.assert_allclose(half[0, 0], 3.0)


def test_gradients_of_a_graph_are_not_negotiated_in_each_step(hvd, rank, size):
    if size == 1:
        pytest.skip("one rank has nobody to negotiate with")

    @tf.function
    def step(x):
        return [sdp.allreduce(x * (i + 1.0), i, 3) for i in range(3)]

    step(tf.ones([4]))
    before = loader.core().stats()
    for _ in range(5):
        grads = step(tf.fill([4], float(rank)))
    after = loader.core().stats()
    assert after["named_requests"] == before["named_requests"]
    assert after["planned_buckets"] - before["planned_buckets"] == 15
    np.testing.assert_allclose(grads, [[(size - 1) / 2 * (i + 1)] * 4 for i in range(3)])


def test_a_long_list_of_gradients_goes_by_name_at_its_end(hvd, rank, size):
    """By plan below place 512, whatever the order of the calls; no rank needs to know what others have planned."""
    if size == 1:
        pytest.skip("one rank has nobody to negotiate with")
    places, count = (513, 0, 511, 512), 514

    @tf.function
    def step(x):
        return [sdp.allreduce(x * (i + 1.0), i, count) for i in places]

    step(tf.ones([4]))
    before = loader.core().stats()
    for _ in range(3):
        grads = step(tf.fill([4], float(rank)))
    after = loader.core().stats()
    assert after["named_requests"] - before["named_requests"] == 3 * 2
    assert after["planned_buckets"] - before["planned_buckets"] == 3 * 2
    np.testing.assert_allclose(grads, [[(size - 1) / 2 * (i + 1)] * 4 for i in places])


def test_wrong_places_are_refused(hvd):
    for index, count in ((2, 2), (-1, 2), (0, 0)):
        with pytest.raises(ValueError, match="`param_index` counts"):
            sdp.allreduce(tf.ones([1]), index, count)
    with pytest.raises(ValueError, match="two names"):
        sdp.allreduce(tf.ones([1]), 0, 1, grad=tf.ones([1]))


def test_slices(hvd, rank, size):
    slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([rank]), tf.constant([size, 2]))
    np.testing.assert_allclose(tf.convert_to_tensor(sdp.allreduce(slices, 0, 1)), np.full([size, 2], 1 / size))


def test_values_that_are_no_gradients(hvd, rank, size):
    mean = (size - 1) / 2
    np.testing.assert_allclose(sdp.oob_allreduce(tf.constant(float(rank))), mean)
    assert int(sdp.oob_allreduce(2 * rank)) == size - 1
    assert sdp.oob_allreduce(tf.constant([2 * rank], tf.int32)).dtype == tf.int32
    loss, accuracy = list(sdp.oob_allreduce([float(rank), 2.0 * rank]))
    assert (float(loss), float(accuracy)) == (mean, 2 * mean)
    np.testing.assert_allclose(sdp.oob_allreduce(np.array([rank, 1.0])), [mean, 1.0])
    mixed = sdp.oob_allreduce([tf.constant(float(rank)), tf.fill([2], 2 * rank)])
    assert [tensor.dtype for tensor in mixed] == [tf.float32, tf.int32]
    np.testing.assert_allclose(mixed[1], [size - 1] * 2)
    np.testing.assert_allclose(tf.function(lambda: sdp.oob_allreduce(tf.constant(float(rank))))(), mean)
    np.testing.assert_allclose(sdp.oob_allreduce(tf.constant(float(rank)), op=sdp.ReduceOp.MAX), size - 1)


def test_broadcasts(hvd, rank, size):
    root = size - 1
    np.testing.assert_allclose(sdp.broadcast(tf.constant([rank]), root), [root])
    variables = [tf.Variable(float(rank)), tf.Variable([rank, 1])]
    tf.function(lambda: sdp.broadcast_variables(variables, root_rank=root))()
    np.testing.assert_allclose(variables[0], root)
    np.testing.assert_allclose(variables[1], [root, 1])
    with pytest.raises(RuntimeError, match="does not support eager execution"):
        sdp.broadcast_global_variables(0)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = tf.compat.v1.get_variable("x", initializer=float(rank), use_resource=True)
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(sdp.broadcast_global_variables(root))
        assert session.run(variable) == root


def test_overlap_changes_nothing(hvd, rank):
    np.testing.assert_array_equal(tf.function(sdp.overlap)(tf.constant([rank, 2])), [rank, 2])


def test_tape(hvd, rank, size):
    """Averages, turns slices into dense gradients unless told otherwise, and takes what SMDDP's documents refuse."""
    table, weight = tf.Variable(tf.ones([3, 2])), tf.Variable([2.0])

    def gradients(**options):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [0, 0])) * (rank + 1.0) + tf.reduce_sum(weight) * rank
        return sdp.DistributedGradientTape(tape, **options).gradient(loss, [table, weight, tf.Variable(1.0)])

    of_table, of_weight, nothing = gradients()
    assert isinstance(of_table, tf.Tensor)
    assert nothing is None
    np.testing.assert_allclose(of_table, [[size + 1.0] * 2, [0, 0], [0, 0]])
    np.testing.assert_allclose(of_weight, [(size - 1) / 2])
    assert isinstance(gradients(sparse_as_dense=False)[0], tf.IndexedSlices)
    with pytest.warns(UserWarning, match="ignored here. Received: device_dense='/gpu:0'"):
        gradients(device_dense="/gpu:0", device_sparse="")
    with pytest.raises(ValueError, match="`op`.*hvd.Average"):
        gradients(op=sdp.ReduceOp.SUM)


def test_optimizers(hvd, rank, size):
    """Both ways to wrap one, in `apply_gradients` and in `fit`."""
    with pytest.warns(UserWarning, match="keeps its bucket size"):
        optimizer = sdp.DistributedOptimizer(
            keras.optimizers.SGD(0.5), name=None, device_dense="", device_sparse="", bucket_cap_mb=64
        )
    variable = tf.Variable([1.0, 2.0])
    optimizer.apply_gradients([(tf.constant([2.0 * rank, 1.0]), variable)])
    np.testing.assert_allclose(variable, [1.0 - 0.5 * (size - 1), 1.5])

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")])
    model.compile(
        sdp_keras.DistributedOptimizer(keras.optimizers.SGD(0.1), compression=sdp_keras.Compression.none),
        loss=lambda y, prediction: y * prediction,
        experimental_run_tf_function=False,
        run_eagerly=True,
    )
    callbacks = [sdp_keras.callbacks.BroadcastGlobalVariablesCallback(0), sdp_keras.callbacks.MetricAverageCallback()]
    history = model.fit(np.ones([1, 1]), np.array([[2.0 * rank]]), verbose=0, callbacks=callbacks)
    np.testing.assert_allclose(model.get_weights()[0], [[1 - 0.1 * (size - 1)]], rtol=1e-6)
    np.testing.assert_allclose(history.history["loss"], [size - 1], rtol=1e-6)


def test_bucket_sizes(hvd):
    for wrong in (0, -128, 100, 1.5):
        with pytest.raises(ValueError, match="multiple of 128 bytes"):
            common.setBucketSize(wrong)
    with pytest.raises(ValueError, match="multiple of 128 bytes"):
        sdp.DistributedOptimizer(keras.optimizers.SGD(), bucket_cap_mb=0.0001)
    hvd.shutdown()
    try:
        common.setBucketSize(64 << 20)
        assert os.environ["SMDDP_BUCKET_BYTES"] == str(64 << 20)
    finally:
        os.environ.pop("SMDDP_BUCKET_BYTES", None)
        sdp.init()


def test_profiler(hvd, rank, tmp_path):
    from smddp_tf.sdp import profiler

    path = hvd.broadcast_object(str(tmp_path / "trace.json"))
    profiler.start_profiler(path, append_rank=True)
    sdp.oob_allreduce(tf.constant(1.0))
    profiler.stop_profiler()
    if rank == 0:
        events = json.loads(Path(f"{path}.rank0").read_text())
        assert "allreduce" in json.dumps(events).lower()
    hvd.barrier()
