"""Rank 1 sleeps where the others join, or begin a second session.

python left_alone.py FOLDER (join | init)
"""

import os
import sys
import time
from pathlib import Path

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
# The first rank that ends has the launcher end the others: it waits until the other one has written too.
give_up_at = time.monotonic() + 30
while not Path(sys.argv[1], f"rank-{2 - rank}.json").exists() and time.monotonic() < give_up_at:
    time.sleep(0.05)
