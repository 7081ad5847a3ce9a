"""Counts the pages that a step with a large result maps anew.  python fresh_pages.py FOLDER"""

import json
import resource
import sys
from pathlib import Path

import tensorflow as tf

import smddp_tf as hvd

STEPS = 16
ELEMENTS = 16 << 20


def faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


hvd.init()
# The input has other readers, so that the result needs memory of its own.
total = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum))
x = tf.fill([ELEMENTS], float(hvd.rank()))
for _ in range(3):
    total(x)
before = faults()
for _ in range(STEPS):
    total(x)
pages = 4 * ELEMENTS / resource.getpagesize()
(Path(sys.argv[1]) / f"rank-{hvd.rank()}.json").write_text(json.dumps((faults() - before) / STEPS / pages))
