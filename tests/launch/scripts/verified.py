"""Collectives with SMDDP_VERIFY=1, some spoilt, each in a session of its own.  python verified.py FOLDER"""

import os
import sys

import numpy as np

import smddp_tf as hvd
from smddp_tf._loader import core
from smddp_tf.elastic.running import is_lost_session
from tests.launch.scripts.recorder import Recorder

hvd.init()  # who am I?
me = hvd.rank()
hvd.shutdown()
recorder = Recorder(sys.argv[1], me)


def session(flip="", verify="1", body=None):
    os.environ["SMDDP_VERIFY"] = verify
    os.environ["SMDDP_TEST_FLIP_BIT"] = flip
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
    assert np.asarray(received).tolist() == [10 * rank + 2 * me + i for rank in range(3) for i in range(2)]
    core().barrier("barrier")


def in_the_set(some):
    if some.included():
        reduce("set", process_set=some.process_set_id)
    core().barrier("others wait")


recorder.call("right", lambda: session(body=everything))
recorder.call("output", lambda: session(f"1:output:{32 * 1234 + 31}:large", body=everything))
recorder.call("carried", lambda: session("2:output:3:small", body=everything))
recorder.call("input", lambda: session(f"0:input:{32 * 1234 + 30}:large", body=everything))
recorder.call("set", lambda: session("2:output:64:", body=in_the_set))
recorder.call("mismatch", lambda: session(verify=str(int(me != 1)), body=everything))
recorder.call("off", lambda: session("1:output:3:large", verify="0", body=everything))
