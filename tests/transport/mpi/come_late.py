"""Rank 1 comes late to its second init, whose processor time it measures.  python come_late.py SECONDS"""

import sys
import time

import smddp_tf as hvd

hvd.init()
rank = hvd.rank()
hvd.barrier()
hvd.shutdown()
time.sleep(float(sys.argv[1]) if rank == 1 else 0)
begin, worked = time.monotonic(), time.thread_time()
hvd.init()
if rank == 1:
    print(f"init took {time.monotonic() - begin:.3f} s, {time.thread_time() - worked:.3f} s of a core", flush=True)
