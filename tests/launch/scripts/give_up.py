"""An op of rank 1's step fails while its first gradient waits for the second.  python give_up.py FOLDER"""

import sys

import tensorflow as tf

import smddp_tf as hvd
from smddp_tf.reduction import GradientReducer
from tests.launch.scripts.recorder import Recorder

hvd.init()
recorder = Recorder(sys.argv[1], hvd.rank())
reducer = GradientReducer("give_up")
variables = [tf.Variable(tf.ones(4)), tf.Variable(tf.ones(4))]


@tf.function
def step(divisor):
    good = tf.ones(4) * divisor
    bad = tf.debugging.check_numerics(tf.ones(4) / divisor, "this batch has a zero")
    return reducer([good, bad], variables)


recorder.call("good step", lambda: step(tf.constant(2.0)))
recorder.call("bad step", lambda: step(tf.constant(float(hvd.rank() == 0))))
recorder.call("afterwards", lambda: step(tf.constant(2.0)))
