"""A job that loses a rank.  python lost_rank.py MANNER

Every rank says who it is; rank 1 is killed or stopped, or rank 0 kills the launcher; the others say what they saw.
"""

import os
import signal
import sys
import time

import numpy as np

import smddp_tf as hvd
from smddp_tf import _loader

manner = sys.argv[1]
hvd.init()
core = _loader.core()
rank = hvd.rank()
for step in range(3):
    core.allreduce([np.full(1000, rank + step, np.float32)], "float32", "before", int(hvd.Sum))
print(f"rank {rank} runs as process {os.getpid()} of {os.getppid()}", flush=True)
if rank == 1 and manner == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if rank == 1 and manner == "stopped":
    os.kill(os.getpid(), signal.SIGSTOP)
if manner == "stopped":
    time.sleep(600)  # in the user's own code, far from any operation
if rank == 0 and manner == "launcher":
    time.sleep(1)
    os.kill(os.getppid(), signal.SIGKILL)
try:
    while True:
        core.allreduce([np.full(1000, rank, np.float32)], "float32", "after", int(hvd.Sum))
        time.sleep(0.01)
except core.EngineError as error:
    print(f"rank {rank} caught {error}", flush=True)
    print(f"rank {rank} knows {core.session_failure()}", flush=True)
    raise
