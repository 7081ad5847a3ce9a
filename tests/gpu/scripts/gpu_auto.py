"""Ranks that reduce two plans of gradients on GPUs, and say what they were told.

python gpu_auto.py HOST_OF_RANK, such as aab
"""

import os
import sys

from gpu_ranks import RANK, Framework, check, plan_of

import smddp_tf as hvd
from smddp_tf._native.loader import core


def main():
    os.environ["SMDDP_HOST_ID"] = sys.argv[1][RANK]
    framework = Framework()
    hvd.init()
    try:
        for plan in (plan_of(), plan_of(key="others")):
            for step in range(3):
                framework.compute([step, hvd.rank()])
                framework.reduce(plan)
                check(framework, step, range(hvd.size()))
        print(f"rank {hvd.rank()}: all sums are right", flush=True)
    except core().EngineError as error:
        print(f"rank {hvd.rank()} was told: {error}", flush=True)
    hvd.shutdown()


main()
