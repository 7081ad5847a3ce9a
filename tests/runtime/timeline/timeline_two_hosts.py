"""Rank 1, on a pretended host, writes into the folder "elsewhere" what rank 0 must not see. Argument: the timeline."""

import sys
import time
from pathlib import Path

import numpy as np

import smddp_tf as hvd
from tests.native_module import core

hvd.init()
path = Path(sys.argv[1])
part = Path(f"{path}.rank1.part")
if hvd.rank() == 0:
    hvd.start_timeline(path)
else:
    while not part.exists():
        time.sleep(0.01)
    part.rename(path.parent / "elsewhere" / part.name)  # it stays open
core().barrier("moved")
core().allreduce([np.ones(1000, np.float32)], "float32", "seen", 1)
if hvd.rank() == 0:
    hvd.stop_timeline()
core().barrier("end")
