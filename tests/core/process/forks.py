"""Processes that begin as a copy of a rank with a session, and leave it alone.  python forks.py FOLDER"""

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import smddp_tf as hvd
from tests.native_module import core
from tests.support.recorder import Recorder


def reduce(name: str) -> None:
    array = np.full(3, hvd.rank() + 1.0, np.float32)
    core().allreduce([array], "float32", name, int(hvd.Sum))
    assert array.tolist() == [3.0, 3.0, 3.0]


def in_fork(manner: str) -> None:
    (folder / manner).mkdir(exist_ok=True)
    recorder = Recorder(str(folder / manner), rank)
    recorder.call("rank", hvd.rank)
    recorder.call("reduce", lambda: reduce("in a fork"))
    recorder.call("init", hvd.init)
    recorder.call("is_initialized", lambda: print("initialized" if hvd.is_initialized() else "not initialized"))
    recorder.call("shutdown", hvd.shutdown)


folder = Path(sys.argv[1])
hvd.init()
rank = hvd.rank()
reduce("before")

for manner in ("exit", "raises"):
    child = os.fork()
    if child == 0:
        in_fork(manner)
        if manner == "raises":
            raise ValueError("of a fork")
        sys.exit(0)  # with all that Python and C do at the end of a program
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == (0 if manner == "exit" else 1), (manner, status)
    reduce(f"after a fork that {manner}")

process = multiprocessing.get_context("fork").Process(target=in_fork, args=("multiprocessing",))
process.start()
process.join()
assert process.exitcode == 0, process.exitcode
assert subprocess.run([sys.executable, "-c", "pass"], check=True).returncode == 0
reduce("after all")
print(f"rank {rank} has reduced after all")
