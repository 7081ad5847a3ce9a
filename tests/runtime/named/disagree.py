"""Rank 1 asks for something else than the others, in every way there is.  python disagree.py FOLDER"""

import sys

import tensorflow as tf

import smddp_tf as hvd
from tests.support.recorder import Recorder

hvd.init()
odd = hvd.rank() == 1
recorder = Recorder(sys.argv[1], hvd.rank())


def gradient_of(shape):
    """One step of a model with a single weight of `shape`, reduced as a plan."""
    weight = tf.ones(shape)
    with tf.GradientTape() as tape:
        tape.watch(weight)
        loss = tf.reduce_sum(weight * weight)
    return hvd.DistributedGradientTape(tape).gradient(loss, [weight])


gradient_in_graph = tf.function(gradient_of)

CASES = {
    "dtype": lambda: hvd.allreduce(tf.ones(4, tf.float64 if odd else tf.float32), name="dtype"),
    "shape": lambda: hvd.allreduce(tf.ones(5 if odd else 4), name="shape"),
    "rank of the shape": lambda: hvd.allreduce(tf.ones((2, 2) if odd else 4), name="rank of the shape"),
    "op": lambda: hvd.allreduce(tf.ones(4), op=hvd.Max if odd else hvd.Sum, name="op"),
    "prescale": lambda: hvd.allreduce(tf.ones(4), prescale_factor=2.0 if odd else 1.0, name="prescale"),
    "compression": lambda: hvd.allreduce(
        tf.ones(4), compression=hvd.Compression.fp16 if odd else hvd.Compression.none, name="compression"
    ),
    "collective": lambda: (hvd.allgather if odd else hvd.allreduce)(tf.ones(4), name="collective"),
    "root": lambda: hvd.broadcast(tf.ones(4), root_rank=1 if odd else 0, name="root"),
    "unknown root": lambda: hvd.broadcast(tf.ones(4), root_rank=7, name="unknown root"),
    "negative root": lambda: hvd.broadcast(tf.ones(4), root_rank=-1, name="negative root"),
    "broadcast shape": lambda: hvd.broadcast(tf.ones(5 if odd else 4), root_rank=0, name="broadcast shape"),
    "allgather row": lambda: hvd.allgather(tf.ones((2, 5 if odd else 4)), name="allgather row"),
    "group length": lambda: hvd.grouped_allreduce([tf.ones(4)] * (3 if odd else 2), name="group length"),
    "equal models": lambda: gradient_of((3, 2)),
    "second model": lambda: gradient_of((3, 4 if odd else 2)),
    "second model in a graph": lambda: gradient_in_graph((3, 4 if odd else 2)),
    "afterwards": lambda: hvd.allreduce(tf.ones(4), name="afterwards"),
    "a model afterwards": lambda: gradient_of((2, 2)),
}

for name, function in CASES.items():
    recorder.call(name, function)
hvd.shutdown()
