"""Rank 1 goes away while the others wait for it.  python leave.py exit|raise FOLDER"""

import sys

import tensorflow as tf

import smddp_tf as hvd
from tests.launch.scripts.recorder import Recorder

manner, folder = sys.argv[1:]
hvd.init()
recorder = Recorder(folder, hvd.rank())
recorder.call("together", lambda: hvd.allreduce(tf.ones(4), name="together"))
if hvd.rank() == 1:
    if manner == "exit":
        sys.exit(0)
    raise RuntimeError("rank 1 has a bug")
recorder.call("alone", lambda: hvd.allreduce(tf.ones(4), name="alone"))
sys.exit(1)
