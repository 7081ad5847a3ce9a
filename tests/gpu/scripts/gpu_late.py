"""Ranks that reduce gradients on GPUs until rank 1 brings none any more; rank 0 says what it was told.

python gpu_late.py FOLDER, where rank 0 leaves a file when it was told. Rank 1 asks for nothing before: its own request
would be given up, too.
"""

import sys
import time
from pathlib import Path

from gpu_ranks import Framework, check, plan_of

import smddp_tf as hvd
from tests.native_module import core


def main():
    told = Path(sys.argv[1], "told")
    framework = Framework()
    hvd.init()
    plan = plan_of()
    try:
        for step in range(3):
            framework.compute([step, hvd.rank()])
            while step == 2 and hvd.rank() == 1:
                time.sleep(0.05)
                if told.exists():
                    core().barrier("until it fails")
            framework.reduce(plan)
            check(framework, step, range(hvd.size()))
    except core().EngineError as error:
        print(f"rank {hvd.rank()} was told in step {step}: {error}", flush=True)
        told.touch()
        hvd.shutdown()


main()
