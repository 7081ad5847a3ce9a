"""A rank that needs no TensorFlow.  python ranks_without_tensorflow.py sum|fail|raise|leave|leave-alone|wait|look

fail FOLDER: rank 1 of two fails when both have begun, of which the files in FOLDER, empty at first, tell.
"""

import os
import sys
import time
from pathlib import Path

manner = sys.argv[1]
rank = int(os.environ["HOROVOD_RANK"])


def broken():
    raise ValueError(f"rank {rank} is broken")


if manner in ("sum", "raise", "leave", "leave-alone"):
    import numpy as np

    import smddp_tf as hvd
    from tests.native_module import core

    hvd.init()
if manner == "sum":
    array = np.full(3, hvd.rank() + 1.0, np.float32)
    core().allreduce([array], "float32", "sum", int(hvd.Sum))
    print(f"rank {rank} of {hvd.size()}: {array.tolist()} {os.environ['SMDATAPARALLEL_LOCAL_RANK']}")
    print(f"threshold {os.environ.get('HOROVOD_FUSION_THRESHOLD')} {os.environ.get('GIVEN')}", file=sys.stderr)
    hvd.shutdown()
elif manner in ("raise", "leave"):
    core().allreduce([np.ones(3, np.float32)], "float32", "first", int(hvd.Sum))
    if rank == 1 and manner == "leave":
        sys.exit(3)
    if rank == 1:
        broken()
    core().allreduce([np.ones(3, np.float32)], "float32", "sum", int(hvd.Sum))
elif manner == "leave-alone":
    if rank == 1:
        raise SystemExit(3)
    time.sleep(600)  # in code of its own
elif manner == "fail":
    print("begun")
    if sys.argv[2:]:
        Path(sys.argv[2], str(rank)).touch()
        while len(list(Path(sys.argv[2]).iterdir())) < 2:
            time.sleep(0.02)
    if rank == 1:
        try:
            broken()
        except ValueError:
            import traceback

            traceback.print_exc()
            sys.exit(7)
    time.sleep(600)
elif manner == "look":
    # Who shows the value of a variable to everybody on this host?
    shown = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            shown += [line for line in [file.read_bytes()] if os.environ["GIVEN"].encode() in line]
        except OSError:  # it has ended
            pass
    keys = [name for name in os.environ if name == "SMDDP_RUN_KEY"]
    print(f"{os.environ['GIVEN']} is on {len(shown)} command lines {shown}; {keys}")
elif manner == "wait":
    print(f"process {os.getpid()}", flush=True)
    time.sleep(600)
