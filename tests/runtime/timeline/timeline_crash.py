"""Reduces arrays, without TensorFlow; then the last rank is killed. Argument: the timeline's path."""

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

import smddp_tf as hvd
from tests.native_module import core

hvd.init()
path = sys.argv[1]
hvd.start_timeline(path)
core().barrier("begin")
for step in range(3):
    core().allreduce([np.ones(1000, np.float32)], "float32", f"step {step}", 1)
part = Path(path if hvd.rank() == 0 else f"{path}.rank{hvd.rank()}.part")


def is_written() -> bool:
    """By another thread, which may write at this moment."""
    with contextlib.suppress(json.JSONDecodeError):
        return "step 2" in json.dumps(json.loads(part.read_text()))
    return False


while not is_written():
    time.sleep(0.01)
core().barrier("written")
if hvd.rank() == hvd.size() - 1:
    os.kill(os.getpid(), signal.SIGKILL)
core().allreduce([np.ones(1000, np.float32)], "float32", "never", 1)
