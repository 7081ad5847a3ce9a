"""A job that loses a rank.  python lost_rank.py MANNER

Every rank says who it is; rank 1 is killed or stopped, or rank 0 kills the launcher; the others say what they saw.
`wrapped`: all is well, but the process that has started the rank ends soon; the one before it stays, for mpirun.
"""

import os
import signal
import sys
import time

import numpy as np

import smddp_tf as hvd
from tests import native_module

manner = sys.argv[1]
started, start = os.pipe()
ended, end = os.pipe()
if manner == "wrapped" and os.fork():
    os.close(end)
    os.read(ended, 1)
    sys.exit(0)
if manner == "wrapped" and os.fork():
    os.close(end)
    os.read(started, 1)
    os._exit(0)
hvd.init()
core = native_module.core()
rank = hvd.rank()
for step in range(3):
    core.allreduce([np.full(1000, rank + step, np.float32)], "float32", "before", int(hvd.Sum))
print(f"rank {rank} runs as process {os.getpid()} of {os.getppid()}", flush=True)
if manner == "wrapped":
    os.write(start, b".")
    for _ in range(20):  # longer than anybody takes to notice
        core.allreduce([np.full(1000, rank, np.float32)], "float32", "after", int(hvd.Sum))
        time.sleep(0.1)
    print(f"rank {rank} has outlived its parent", flush=True)
    sys.exit(0)
if rank == 1 and manner == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if rank == 1 and manner == "stopped":
    os.kill(os.getpid(), signal.SIGSTOP)
if manner == "stopped":
    time.sleep(600)  # in the user's own code, far from any operation
if manner == "launcher":
    core.barrier("all have said who they are")
if rank == 0 and manner == "launcher":
    time.sleep(1)  # until the launcher has passed it on
    os.kill(os.getppid(), signal.SIGKILL)
try:
    while True:
        core.allreduce([np.full(1000, rank, np.float32)], "float32", "after", int(hvd.Sum))
        time.sleep(0.01)
except core.EngineError as error:
    print(f"rank {rank} caught {error}", flush=True)
    print(f"rank {rank} knows {core.session_failure()}", flush=True)
    raise
