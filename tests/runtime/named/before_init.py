"""Every function that needs init() is called without it.  python before_init.py FOLDER"""

import sys

import tensorflow as tf

import smddp_tf as hvd
from tests.support.recorder import Recorder

recorder = Recorder(sys.argv[1], 0)


def gradient():
    weight = tf.ones(3)
    with tf.GradientTape() as tape:
        tape.watch(weight)
        loss = tf.reduce_sum(weight * weight)
    return hvd.DistributedGradientTape(tape).gradient(loss, [weight])


CASES = {
    "rank": hvd.rank,
    "size": hvd.size,
    "local_rank": hvd.local_rank,
    "local_size": hvd.local_size,
    "cross_rank": hvd.cross_rank,
    "cross_size": hvd.cross_size,
    "is_homogeneous": hvd.is_homogeneous,
    "allreduce": lambda: hvd.allreduce(tf.ones(4), name="a"),
    "allgather": lambda: hvd.allgather(tf.ones(4), name="b"),
    "broadcast": lambda: hvd.broadcast(tf.ones(4), root_rank=0, name="c"),
    "alltoall": lambda: hvd.alltoall(tf.ones(4), name="d"),
    "reducescatter": lambda: hvd.reducescatter(tf.ones(4), name="e"),
    "grouped_allreduce": lambda: hvd.grouped_allreduce([tf.ones(4)], name="f"),
    "grouped_allgather": lambda: hvd.grouped_allgather([tf.ones(4)], name="g"),
    "grouped_reducescatter": lambda: hvd.grouped_reducescatter([tf.ones(4)]),
    "broadcast_variables": lambda: hvd.broadcast_variables([tf.Variable(1.0)], 0),
    "broadcast_object": lambda: hvd.broadcast_object(1, 0),
    "allgather_object": lambda: hvd.allgather_object(1),
    "add_process_set": lambda: hvd.add_process_set([0]),
    "start_timeline": lambda: hvd.start_timeline(sys.argv[1] + "/timeline.json"),
    "size_op": lambda: hvd.size_op() + 0,
    "join": hvd.join,
    "barrier": hvd.barrier,
    "gradient": gradient,
}

for name, function in CASES.items():
    recorder.call(name, function)
