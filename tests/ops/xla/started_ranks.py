"""Runs of a compiled step whose one gradient XLA moves, or does not: `python started_ranks.py LIBRARY` under mpirun."""

from __future__ import annotations

import ctypes
import sys

import numpy as np

import smddp_tf as hvd
from smddp_tf._native import loader
from smddp_tf.collectives import emit
from smddp_tf.collectives.reduce_op import ReduceSpec, Sum

ELEMENTS = 1000
MOVED = "XLA has moved gradients of 'started'"


def main() -> None:
    hvd.init()
    loader.xla_library()
    calls = ctypes.CDLL(sys.argv[1])
    calls.describe.restype, calls.describe.argtypes = ctypes.c_int64, [ctypes.c_int, ctypes.c_int64]
    calls.run.restype, calls.run.argtypes = ctypes.c_char_p, [ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * 2]
    plan = emit.register_plan("started", ["float32"], [[ELEMENTS]], ReduceSpec(Sum))
    number = calls.describe(plan, ELEMENTS)

    def run(case: float, moves: bool, error: str = "") -> None:
        places = np.arange(ELEMENTS, dtype=np.float32)
        start = places + case * (hvd.rank() + 1)
        end = np.zeros_like(start) if moves else start
        told = calls.run(number, ELEMENTS, start.ctypes.data, end.ctypes.data).decode()
        assert told.startswith(error)
        assert bool(told) == bool(error), told
        if not error:
            ranks = hvd.size()
            np.testing.assert_array_equal(end, ranks * places + case * ranks * (ranks + 1) / 2)

    # Gradients that move are never reduced early. The first that stays is not yet; the next are.
    for case, moves in enumerate((True, True, False, False, False)):
        run(case, moves)
    run(6, moves=True, error=MOVED)
    run(7, moves=True)  # as at first
    print(f"rank {hvd.rank()} is through")
    hvd.shutdown()


if __name__ == "__main__":
    main()
