"""A little of everything that the engine's log speaks of; no TensorFlow.

python logged.py
"""

import numpy as np

import smddp_tf as hvd
from tests.native_module import core

hvd.init(process_sets="dynamic")
rank = hvd.rank()
core().allreduce([np.full(3, rank + 1.0, np.float32)], "float32", "loss", int(hvd.Sum))
plan = core().register_plan("train", ["float32"], [[300]], int(hvd.Sum), 1.0, 1.0, "")
for _ in range(2):
    core().reduce_planned(plan, 0, np.full(300, rank + 1.0, np.float32), "float32")
some = hvd.add_process_set([0, 1])
hvd.remove_process_set(some)
core().join()
