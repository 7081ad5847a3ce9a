"""Works without a launcher: one rank, and every collective gives back what it was given."""

import numpy as np
import tensorflow as tf

import smddp_tf as hvd

hvd.init()
topology = (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size())
assert topology == (0, 1, 0, 1, 0, 1), topology
assert hvd.is_homogeneous()

values = tf.constant([1.0, 2.0, 3.0])
for op in (hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product):
    np.testing.assert_array_equal(hvd.allreduce(values, op=op, name=f"op {op}"), values)
np.testing.assert_array_equal(hvd.allreduce(values, op=hvd.Sum, prescale_factor=2.0, name="scaled"), 2 * values)
np.testing.assert_array_equal(hvd.allgather(values), values)
np.testing.assert_array_equal(hvd.broadcast(values, root_rank=0), values)
assert hvd.broadcast_object({"epoch": 3}, root_rank=0) == {"epoch": 3}
assert hvd.allgather_object("me") == ["me"]
hvd.barrier()

weight = tf.Variable([3.0])
with tf.GradientTape() as tape:
    loss = weight * weight
[gradient] = hvd.DistributedGradientTape(tape).gradient(loss, [weight])
np.testing.assert_array_equal(gradient, [6.0])

table, local = tf.Variable(tf.ones([4, 2])), tf.Variable(1.0)


@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(weight) + tf.reduce_sum(tf.gather(table, [1, 1])) + local
    tape = hvd.DistributedGradientTape(tape)
    tape.register_local_source(local)
    return [tf.convert_to_tensor(grad) for grad in tape.gradient(loss, [weight, table, local])]


for gradient, expected in zip(step(), ([1.0], [[0, 0], [2, 2], [0, 0], [0, 0]], 1.0)):
    np.testing.assert_array_equal(gradient, expected)
emitted = [op.type for op in step.get_concrete_function().graph.get_operations() if op.type.startswith("Smddp")]
assert not emitted, f"a step of one rank pays for {emitted}"

hvd.shutdown()
assert not hvd.is_initialized()
hvd.init()
assert hvd.size() == 1
print("standalone works")
