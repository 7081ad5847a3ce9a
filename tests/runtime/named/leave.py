"""Rank 1 goes away while the others wait for it.  python leave.py exit|raise FOLDER"""

import sys

import numpy as np

import smddp_tf as hvd
from tests.native_module import core
from tests.support.recorder import Recorder


def reduce(name: str) -> None:
    core().allreduce([np.ones(4, np.float32)], "float32", name, int(hvd.Sum))


manner, folder = sys.argv[1:]
hvd.init()
recorder = Recorder(folder, hvd.rank())
recorder.call("together", lambda: reduce("together"))
if hvd.rank() == 1:
    if manner == "exit":
        sys.exit(0)
    raise RuntimeError("rank 1 has a bug")
recorder.call("alone", lambda: reduce("alone"))
sys.exit(1)
