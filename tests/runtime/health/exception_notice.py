"""Rank 1 of a job ends badly while rank 0 waits for it and rank 2 is busy; all print into one file.

python exception_notice.py raise|exit FILE
"""

import os
import sys
import time

import numpy as np

import smddp_tf as hvd
from tests.native_module import core


def reduce(name: str) -> None:
    core().allreduce([np.full(3, hvd.rank() + 1.0, np.float32)], "float32", name, int(hvd.Sum))


manner, file = sys.argv[1:]
shared = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.dup2(shared, 1)
os.dup2(shared, 2)
hvd.init()
reduce("together")
if hvd.rank() == 1:
    print("rank 1 has something to say")
    if manner == "exit":
        sys.exit(3)
    raise ValueError("rank 1 has\na bug")
if manner == "raise" and hvd.rank() == 2:
    time.sleep(600)
reduce("alone")
print("never printed")
