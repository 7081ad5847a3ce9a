"""A step fails on rank 0 while its tensor is still on the way from the fake GPU to the host; rank 1 never brings it."""

import os
import time

import tensorflow as tf

tf.load_library(os.environ["FAKE_TF_DEVICE"])

import smddp_tf as hvd  # noqa: E402
from smddp_tf._native import loader  # noqa: E402

loader.cuda_of = lambda build: "12.5"  # this TensorFlow is one for CPUs
hvd.init()
with tf.device("/GPU:0"):
    x = tf.identity(tf.constant([1.0, 2.0]))
assert "GPU" in x.device


def fails_soon():
    time.sleep(0.2)
    return True


@tf.function
def step(x):
    with tf.device("/CPU:0"):  # else it fails as late as the GPU works
        fail = tf.ensure_shape(tf.numpy_function(fails_soon, [], tf.bool), [])
        with tf.control_dependencies([tf.debugging.Assert(tf.logical_not(fail), ["deliberate"])]):
            late = tf.constant(1.0)
    # So many that their copies take longer than those of TensorFlow before the error.
    return hvd.grouped_allreduce([x] * 16, name="on_rank_0"), late


began = time.monotonic()
try:
    step(x) if hvd.rank() == 0 else hvd.allreduce(tf.constant(1.0), name="on_rank_1")
    words = "no error"
except tf.errors.OpError as error:
    words = error.message.replace("\n", " ")
print(f"rank {hvd.rank()} was told after {time.monotonic() - began:.1f} s: {words}", flush=True)
