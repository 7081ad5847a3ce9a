"""The first collective in a compiled function comes after TensorFlow has compiled something else."""

import sys

import tensorflow as tf


@tf.function(jit_compile=True)
def twice(x):
    return 2 * x


assert float(twice(tf.constant(1.0))) == 2.0
assert "smddp_tf" not in sys.modules

import smddp_tf as hvd  # noqa: E402

hvd.init()


@tf.function(jit_compile=True)
def summed(x):
    return hvd.allreduce(x + 1, op=hvd.Sum)


assert float(summed(tf.constant(1.0))) == 2.0
print("compiled late")
