"""Of two nodes of two ranks, the first rank of the second leaves, long after the last message; the others stay."""

import os
import time

import smddp_tf as hvd

BEYOND_THE_TIMEOUT = 1.5 * float(os.environ["SMDDP_HEARTBEAT_TIMEOUT"])

hvd.init()
rank = hvd.rank()
time.sleep(BEYOND_THE_TIMEOUT)
if rank != 2:
    time.sleep(BEYOND_THE_TIMEOUT / 4)
hvd.shutdown()
print(f"rank {rank} has left", flush=True)
