"""Rank 1 sleeps where the others join, or begin a second session.

python left_alone.py FOLDER (join | init)
"""

import os
import sys
import time

import smddp_tf as hvd
from tests.support.recorder import Recorder

hvd.init()
rank, recorder = hvd.rank(), Recorder(sys.argv[1], hvd.rank())
if sys.argv[2] == "init":
    hvd.shutdown()
    os.environ["SMDDP_START_TIMEOUT"] = "3"
if rank == 1:
    time.sleep(600)
recorder.call(sys.argv[2], hvd.join if sys.argv[2] == "join" else hvd.init)
