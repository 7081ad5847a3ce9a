"""A rank that reduces until something happens. Needs no TensorFlow.  python worker.py FOLDER MANNER [RANK]

Manners: steps; and, of rank RANK after some steps: raise, exit, skip (it sleeps), hold (it keeps Python's lock for
`HOLD_SECONDS` in C code). busy: all ranks but RANK sleep in C code with Python's lock held, far from any call of ours.

When FOLDER/stop is there, all ranks agree to end well.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time

import numpy as np

import smddp_tf as hvd
from tests.faults.notes import Notes
from tests.native_module import core

ELEMENTS = 50_000
READY_AFTER = 3
ACT_AT = 6
HOLD_SECONDS = 25
PAUSE_SECONDS = 0.02
FOR_EVER = 3600


def hold(seconds: int) -> None:
    """Sleeps in C code without giving Python's lock away."""
    ctypes.PyDLL(None).sleep(seconds)


def act() -> None:
    if manner == "busy" and rank != chosen:
        note("ready", time.time())
        hold(FOR_EVER)
    if rank != chosen:
        return
    note("acted", time.time())
    if manner == "raise":
        raise ValueError(f"rank {rank} has a bug")
    if manner == "exit":
        sys.exit(0)
    if manner == "skip":
        time.sleep(FOR_EVER)
    if manner == "hold":
        hold(HOLD_SECONDS)


def step(number: int) -> bool:
    """One allreduce, checked. Returns whether a rank has seen the file that ends the job."""
    array = np.arange(ELEMENTS, dtype=np.float64) + number + rank
    array[0] = float(os.path.exists(f"{folder}/stop"))
    core().allreduce([array], "float64", "step", int(hvd.Sum))
    ranks = hvd.size()
    expected = np.arange(ELEMENTS, dtype=np.float64) * ranks + number * ranks + ranks * (ranks - 1) // 2
    if not np.array_equal(array[1:], expected[1:]):
        note("wrong", number)
        sys.exit(f"rank {rank}: step {number} has a wrong sum")
    return array[0] > 0


def steps() -> None:
    number = 0
    while not step(number):
        number += 1
        if number == READY_AFTER and (manner != "busy" or rank == chosen):
            note("ready", time.time())
        if number == ACT_AT:
            act()
        time.sleep(PAUSE_SECONDS)
    note("steps", number)


folder, manner = sys.argv[1:3]
chosen = int(sys.argv[3]) if len(sys.argv) > 3 else -1
hvd.init()
rank, note = hvd.rank(), Notes(folder, hvd.rank()).write
try:
    steps()
except Exception as error:
    note("said", {"kind": type(error).__name__, "text": str(error), "at": time.time()})
    raise
hvd.shutdown()
