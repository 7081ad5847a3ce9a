"""One rank's step fails while a gradient of it is being handed over.

The memory of its result takes a second to come (test_cancel_watch.py puts a slow allocator in front of the system's);
half a second after the step began another op of it fails.
"""

import ctypes
import time

import tensorflow as tf

import smddp_tf as hvd
from smddp_tf.gradients.reducer import GradientReducer

hvd.init()
variables = [tf.Variable(tf.ones([(5 << 20) // 4])), tf.Variable([1.0, 2.0])]
reducer = GradientReducer("test.cancelled")


def after_a_while(fail):
    time.sleep(0.5)
    return fail


@tf.function
def step(fail):
    late_fail = tf.ensure_shape(tf.numpy_function(after_a_while, [fail], tf.bool), [])
    with tf.control_dependencies([tf.debugging.Assert(tf.logical_not(late_fail), ["deliberate"])]):
        late = tf.identity(variables[1])
    gradient = variables[0] * (hvd.rank() + 2.0)  # not 1, by which TensorFlow does not multiply
    reduced = reducer([gradient, late], variables)
    return reduced, gradient  # with another reader, so that the result cannot take its place


ctypes.CDLL(None).begin_slow_memory()
held = step(tf.constant(False))  # the next result needs memory of its own
try:
    step(tf.constant(hvd.rank() == 0))
    words = "no error"
except tf.errors.OpError as error:
    words = error.message.replace("\n", " ")
print(f"rank {hvd.rank()} was told: {words}", flush=True)
