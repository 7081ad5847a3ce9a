"""Ranks that reduce gradients on GPUs until rank 1 kills itself before a step; the others say what came of it.

python gpu_killed.py [HOST_OF_RANK], such as aab
"""

import os
import signal
import sys

from gpu_ranks import RANK, Framework, check, plan_of

import smddp_tf as hvd
from smddp_tf._native.loader import core


def main():
    if len(sys.argv) > 1:
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
        hvd.shutdown()


main()
