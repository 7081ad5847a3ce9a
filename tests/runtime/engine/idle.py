"""Measures what the threads other than the main one cost while the program sleeps.  python idle.py FOLDER SECONDS"""

import json
import os
import sys
import threading
import time
from pathlib import Path

import numpy as np

import smddp_tf as hvd
from tests.native_module import core


def cpu_seconds_of_threads() -> dict[str, float]:
    """CPU time used so far by each thread but the main one, by `name:id`."""
    tick = os.sysconf("SC_CLK_TCK")
    times = {}
    for task in Path("/proc/self/task").iterdir():
        if int(task.name) == threading.main_thread().native_id:
            continue
        try:
            head, tail = (task / "stat").read_text().rsplit(")", 1)
        except FileNotFoundError:  # the thread has just ended
            continue
        user, system = tail.split()[11:13]
        times[f"{head.split('(', 1)[1]}:{task.name}"] = (int(user) + int(system)) / tick
    return times


folder, seconds = Path(sys.argv[1]), float(sys.argv[2])
hvd.init()
for step in range(20):  # the engine has worked, is warm, and must come to rest again
    core().allreduce([np.ones(100_000, np.float32)], "float32", f"step {step}", int(hvd.Sum))
time.sleep(1)
before = cpu_seconds_of_threads()
time.sleep(seconds)
after = cpu_seconds_of_threads()
used = {thread: spent - before.get(thread, 0.0) for thread, spent in after.items()}
(folder / f"rank-{hvd.rank()}.json").write_text(json.dumps(used))
hvd.shutdown()
