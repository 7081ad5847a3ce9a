"""Every op on TensorFlow's fake GPU. The libraries come from FAKE_TF_DEVICE and SMDDP_GPU_LIBRARY."""

from __future__ import annotations

import os
import sys
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

tf.load_library(os.environ["FAKE_TF_DEVICE"])

import smddp_tf as hvd  # noqa: E402
import smddp_tf.keras as hvd_keras  # noqa: E402
from smddp_tf._native import loader  # noqa: E402
from smddp_tf.gradients.options import ReduceOptions  # noqa: E402
from smddp_tf.gradients.reducer import GradientReducer  # noqa: E402

SHAPES = [(3, 4), (1200, 1100), (0,), (17,), (1,), *((100, k) for k in range(1, 12))]


def numbers(shape, of_rank, seed=0, dtype=np.float32):
    """Whole numbers, so that sums are exact."""
    return np.random.default_rng(100 * seed + of_rank).integers(-50, 50, shape).astype(dtype)


def on_gpu(array):
    with tf.device("/GPU:0"):
        tensor = tf.identity(tf.constant(array))
    assert "GPU" in tensor.device
    return tensor


def check(tensor, expected):
    assert "GPU" in tensor.device, tensor.device
    np.testing.assert_array_equal(tensor.numpy(), expected)


def sum_of(size, shape, seed=0, dtype=np.float32):
    return sum(numbers(shape, rank, seed, dtype) for rank in range(size))


def named(rank, size):
    x = on_gpu(numbers((5, 3), rank))
    check(hvd.allreduce(x, op=hvd.Sum), sum_of(size, (5, 3)))
    group = [x, on_gpu(np.zeros((0, 4), np.float32)), on_gpu(numbers((7,), rank, 3, np.int64))]
    first, empty, integers = hvd.grouped_allreduce(group, op=hvd.Sum)
    check(first, sum_of(size, (5, 3)))
    check(empty, np.zeros((0, 4)))
    check(integers, sum_of(size, (7,), 3, np.int64))
    check(hvd.allreduce(on_gpu(np.zeros((0,), np.float32))), [])
    check(
        hvd.reducescatter(on_gpu(numbers((5, 2), rank, 9)), op=hvd.Sum),
        np.array_split(sum_of(size, (5, 2), 9), size)[rank],
    )
    with tf.device("/GPU:0"):
        np.testing.assert_array_equal(hvd.broadcast(x, size - 1), numbers((5, 3), size - 1))
        np.testing.assert_array_equal(hvd.allgather(x), np.concatenate([numbers((5, 3), r) for r in range(size)]))
        received, _ = hvd.alltoall(on_gpu(np.arange(size) + 10.0 * rank), splits=tf.ones(size, tf.int32))
        np.testing.assert_array_equal(received, rank + 10.0 * np.arange(size))
        hvd.barrier()
        assert hvd.size_op().numpy() == size
    np.testing.assert_array_equal(x, numbers((5, 3), rank))  # nobody wrote into the input


def planned(rank, size):
    variables = [tf.zeros(shape) for shape in SHAPES]
    reducer = GradientReducer("tf_ranks", ReduceOptions(op=hvd.Sum))

    @tf.function(autograph=False)
    def step(*gradients):
        with tf.device("/GPU:0"):
            reduced = reducer([tf.identity(gradient) for gradient in gradients], variables)
            return [tf.identity(each) for each in reduced]

    for number in range(3):
        seeds = [1 + 40 * number + index for index in range(len(SHAPES))]
        given = [numbers(shape, rank, seed) for shape, seed in zip(SHAPES, seeds)]
        tensors = [on_gpu(array) for array in given]
        for shape, seed, reduced in zip(SHAPES, seeds, step(*tensors)):
            check(reduced, sum_of(size, shape, seed))
        for tensor, array in zip(tensors, given):
            check(tensor, array)


def weights_after_fit(rank, device):
    """All but the reduction is on the CPU, for which alone this TensorFlow has kernels that compute."""
    keras.utils.set_random_seed(3)
    with tf.device("/CPU:0"):
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.01, momentum=0.9, clipnorm=1.0)
        model.compile(hvd_keras.DistributedOptimizer(optimizer, device_dense=device), "mse", jit_compile=False)
        x = np.random.default_rng(rank).normal(size=(64, 8)).astype("float32")
        callbacks = [hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)]
        model.fit(x, x.sum(1, keepdims=True), batch_size=16, epochs=2, verbose=0, callbacks=callbacks)
        return np.concatenate([variable.numpy().ravel() for variable in model.weights])


def main(case):
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    if case != "unreachable":
        loader.cuda_of = lambda build: "12.5"  # this TensorFlow is one for CPUs
    tf.config.set_soft_device_placement(True)
    if case == "pluggable":
        with pytest.raises(tf.errors.UnimplementedError, match="smddp_tf reduces on CUDA GPUs and on the CPU"):
            hvd.allreduce(on_gpu(np.ones(3, np.float32)))
        print("refused")
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        named(rank, size)
    told = [
        str(each.message) for each in caught if "TensorFlow uses a GPU that smddp_tf cannot reach" in str(each.message)
    ]
    assert len(told) == (case == "unreachable"), told
    planned(rank, size)
    np.testing.assert_array_equal(weights_after_fit(rank, "/GPU:0"), weights_after_fit(rank, "/CPU:0"))
    print(f"rank {rank} is through")


main(sys.argv[1])
