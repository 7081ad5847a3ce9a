"""Ranks that reduce gradients on GPUs until rank 1 brings none any more; rank 0 says what it was told."""

import time

from gpu_ranks import Framework, check, plan_of

import smddp_tf as hvd
from tests.native_module import core


def main():
    framework = Framework()
    hvd.init()
    plan = plan_of()
    try:
        for step in range(3):
            framework.compute([step, hvd.rank()])
            while step == 2 and hvd.rank() == 1:
                time.sleep(0.05)
                core().barrier("until it fails")
            framework.reduce(plan)
            check(framework, step, range(hvd.size()))
    except core().EngineError as error:
        print(f"rank {hvd.rank()} was told in step {step}: {error}", flush=True)
        hvd.shutdown()


main()
