"""A rank that needs no TensorFlow.  python ranks_without_tensorflow.py sum|fail|wait"""

import os
import sys
import time

manner = sys.argv[1]
rank = int(os.environ["HOROVOD_RANK"])


def broken():
    raise ValueError(f"rank {rank} is broken")


if manner == "sum":
    import numpy as np

    import smddp_tf as hvd
    from smddp_tf._loader import core

    hvd.init()
    array = np.full(3, hvd.rank() + 1.0, np.float32)
    core().allreduce([array], "float32", "sum", int(hvd.Sum))
    print(f"rank {rank} of {hvd.size()}: {array.tolist()} {os.environ['SMDATAPARALLEL_LOCAL_RANK']}")
    print(f"threshold {os.environ.get('HOROVOD_FUSION_THRESHOLD')} {os.environ.get('GIVEN')}", file=sys.stderr)
    hvd.shutdown()
elif manner == "fail":
    print("begun")
    if rank == 1:
        try:
            broken()
        except ValueError:
            import traceback

            traceback.print_exc()
            sys.exit(7)
    time.sleep(600)
elif manner == "wait":
    print(f"process {os.getpid()}", flush=True)
    time.sleep(600)
