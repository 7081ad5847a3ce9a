"""Rank 1 is late, and no time limit ends it: in its own program, and with one gradient of a step still to come.

python late.py
"""

import time
from threading import Thread

import numpy as np

import smddp_tf as hvd
from tests.native_module import core

SECONDS = 2.5


def reduce(name: str) -> None:
    values = np.arange(3, dtype=np.float32) + hvd.rank()
    core().allreduce([values], "float32", name, int(hvd.Sum))
    np.testing.assert_array_equal(values, [1, 3, 5])


def reduce_planned(index: int) -> None:
    core().reduce_planned(plan, index, np.full(3, hvd.rank() + index, np.float32), "float32")


hvd.init()
plan = core().register_plan("train", ["float32"] * 2, [[3]] * 2, int(hvd.Sum), 1.0, 1.0, "")
gradients = [Thread(target=reduce_planned, args=(index,)) for index in range(2)]

if hvd.rank() == 1:
    time.sleep(SECONDS)
reduce("after its own program")

if hvd.rank() == 1:
    gradients[0].start()
    time.sleep(SECONDS)
    gradients[1].start()
reduce("after a part of a step")
if hvd.rank() == 0:
    for gradient in gradients:
        gradient.start()
for gradient in gradients:
    gradient.join()
print("all came", flush=True)
