"""Rank 1 does not come: first to a named allreduce, while it calls another one, and then to a planned one, in which it
holds the interpreter's lock.

python stalled.py FOLDER
"""

import sys
import time
from pathlib import Path

import numpy as np

import smddp_tf as hvd
from tests.native_module import core
from tests.support.recorder import Recorder


def reduce(name: str) -> None:
    core().allreduce([np.full(3, hvd.rank() + 1.0, np.float32)], "float32", name, int(hvd.Sum))


def reduce_planned() -> None:
    plan = core().register_plan("train", ["float32"], [[3]], int(hvd.Sum), 1.0, 1.0, "")
    core().reduce_planned(plan, 0, np.full(3, hvd.rank() + 1.0, np.float32), "float32")


def looks_for_a_file() -> None:
    while not file.exists():
        time.sleep(0.01)


def counts_for_ever() -> None:
    sum(range(10**15))


folder = sys.argv[1]
file = Path(folder) / "given-up"
hvd.init()
recorder = Recorder(folder, hvd.rank())
reduce("the first one")
if hvd.rank() == 1:
    looks_for_a_file()
else:
    recorder.call("named", lambda: reduce("the second one"))
    file.touch()
recorder.call("crossed", lambda: reduce(f"of rank {hvd.rank()} only"))
reduce_planned()
if hvd.rank() == 1:
    counts_for_ever()
recorder.call("planned", reduce_planned)
reduce_planned()
