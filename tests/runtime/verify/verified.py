"""Collectives with SMDDP_VERIFY=1, some damaged, each in a session of its own.  python verified.py FOLDER"""

import os
import sys
from contextlib import nullcontext

import numpy as np

import smddp_tf as hvd
from smddp_tf.elastic.running import is_lost_session
from tests.damage import bytes_of, flickering, shared_segments
from tests.native_module import core
from tests.support.recorder import Recorder

TRIES = 500
ELEMENTS = 1 << 20
AT = 25_000  # the element that is damaged
FIRST_SLOT = 4096  # where it begins in a segment (tf_ops/transport/shm/node_layout.h)

hvd.init()  # who am I?
me = hvd.rank()
hvd.shutdown()
recorder = Recorder(sys.argv[1], me)


def session(body, verify="1"):
    os.environ["SMDDP_VERIFY"] = verify
    some = hvd.ProcessSet([0, 2])
    try:
        hvd.init(process_sets=[some])
        body(some)
    except core().EngineError as error:
        if is_lost_session(error):
            raise RuntimeError("a wrong result must not be tried again") from error
        raise
    finally:
        hvd.shutdown()


def reduce(name, elements=5000, process_set=0):
    """Sums of whole numbers: exact."""
    array = np.arange(elements, dtype=np.float32) * (me + 1)
    core().allreduce([array], "float32", name, int(hvd.Sum), process_set=process_set)
    factor = 4 if process_set else 6
    assert array.tolist() == (np.arange(elements) * factor).tolist(), array


def everything(some):
    reduce("large")
    reduce("small", 3)
    if some.included():
        reduce("set", process_set=some.process_set_id)
    array = np.arange(70000) if me == 1 else np.zeros(70000, int)
    core().broadcast([array], "int64", 1, "broadcast")
    assert array.tolist() == list(range(70000))
    gathered, _ = core().allgather(np.full((me, 2), me, np.uint8), "uint8", "allgather")
    assert np.asarray(gathered).ravel().tolist() == [1, 1, 2, 2, 2, 2]
    received, _ = core().alltoall(np.arange(6) + 10 * me, "int64", None, "alltoall")
    assert np.asarray(received).view(np.int64).tolist() == [
        10 * rank + 2 * me + i for rank in range(3) for i in range(2)
    ]
    core().barrier("barrier")


def damaged(rank, memories, call):
    """Repeats `call` while a byte of that rank's memory changes."""
    with flickering(memories, 4 * AT + 3) if me == rank else nullcontext():
        for _ in range(TRIES):
            call()


def received(some):
    """Rank 2 gets something else than rank 1 has sent."""
    array = np.ones(ELEMENTS, np.float32)
    damaged(2, [bytes_of(array)], lambda: core().broadcast([array], "float32", 1, "sent"))


def brought(some):
    """Rank 0 brings something else than it had when the operation began."""
    array = np.ones(ELEMENTS, np.float32)
    damaged(0, [bytes_of(array)], lambda: core().allgather(array, "float32", "brought"))


def shared(some):
    """What rank 1 has published to rank 0, or rank 0 to rank 1, is something else when the other reads it."""

    def reduce_ones():
        core().allreduce([np.ones(ELEMENTS, np.float32)], "float32", "in shared memory", int(hvd.Sum))

    damaged(1, [segment[FIRST_SLOT:] for segment in shared_segments()], reduce_ones)


def in_the_set(some):
    if some.included():
        array = np.ones(ELEMENTS, np.float32)
        number = some.process_set_id
        damaged(2, [bytes_of(array)], lambda: core().broadcast([array], "float32", 0, "set", process_set=number))


recorder.call("right", lambda: session(everything))
recorder.call("off", lambda: session(everything, verify="0"))
recorder.call("received", lambda: session(received))
recorder.call("brought", lambda: session(brought))
recorder.call("shared", lambda: session(shared))
recorder.call("set", lambda: session(in_the_set))
recorder.call("mismatch", lambda: session(everything, verify=str(int(me != 1))))
