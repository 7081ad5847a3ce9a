"""Ranks that reduce gradients on GPUs until rank 1 kills itself before a step; the others say what came of it.

python gpu_killed.py HOST_OF_RANK FOLDER, such as aab; FOLDER is empty

mpirun ends what is left of a job when a process leaves it after such a loss. So each rank that was told leaves when
all of them have said so, with a file in FOLDER.
"""

import os
import signal
import sys
import time
from pathlib import Path

from gpu_ranks import RANK, Framework, check, plan_of

import smddp_tf as hvd
from smddp_tf._native.loader import core

PATIENCE_SECONDS = 30


def wait_for_the_others(folder):
    (folder / f"{hvd.rank()}").touch()
    until = time.monotonic() + PATIENCE_SECONDS
    while len(list(folder.iterdir())) < hvd.size() - 1 and time.monotonic() < until:
        time.sleep(0.01)


def main():
    os.environ["SMDDP_HOST_ID"] = sys.argv[1][RANK]
    framework = Framework()
    hvd.init()
    plan = plan_of()
    try:
        for step in range(7):
            framework.compute([step, hvd.rank()])
            if step == 5 and hvd.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            framework.reduce(plan)
            check(framework, step, range(hvd.size()))
    except core().EngineError as error:
        print(f"rank {hvd.rank()} was told in step {step}: {error}", flush=True)
        wait_for_the_others(Path(sys.argv[2]))
        hvd.shutdown()


main()
