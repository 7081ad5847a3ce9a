"""Two ranks reduce large arrays until rank 0 finds FOLDER/stop, and note their steps.  python stopped_a_while.py FOLDER

Each rank writes to FOLDER/log.RANK: its process, and the number of each step whose sum was right.
"""

import os
import sys
from pathlib import Path

import numpy as np

import smddp_tf as hvd
from tests.native_module import core

ELEMENTS = 16 << 20  # 128 MiB, half of which each sends the other: more than the kernels keep of a connection

folder = Path(sys.argv[1])
hvd.init()
rank, number, stops = hvd.rank(), 0, False
with (folder / f"log.{rank}").open("w", buffering=1) as log:
    print(os.getpid(), file=log)
    while not stops:
        array = np.arange(ELEMENTS, dtype=np.float64) * (rank + 1) + number
        array[0] = rank == 0 and (folder / "stop").exists()
        core().allreduce([array], "float64", "step", int(hvd.Sum))
        stops = bool(array[0])
        assert np.array_equal(array[1:], np.arange(1, ELEMENTS, dtype=np.float64) * 3 + 2 * number), number
        print(number, file=log)
        number += 1
hvd.shutdown()
