"""A process that reduces tensors on a GPU by name, thirty times; prints how often the GPU was asked for what."""

import json

import numpy as np

import smddp_tf as hvd
from tests.fake_gpu.gpu import call, count, finish, get, put
from tests.native_module import core

TENSORS, STEPS = 6, 30
ASKED = ("count", "open", "device_of", "event", "record")


def main():
    hvd.init()
    print(json.dumps({"after init": {what: max(count(what), 0) for what in ASKED}}))
    stream = call("make_stream", 1)
    memory = [put(np.full(5, 1.0 + i, np.float32), 1) for i in range(TENSORS)]
    print(json.dumps({"before": {what: max(count(what), 0) for what in ASKED}}))  # with what this script has asked
    for step in range(STEPS):
        core().gpu_allreduce([(at, [5]) for at in memory], "float32", f"step {step}", 1, postscale=2.0, stream=stream)
    print(json.dumps({"after": {what: max(count(what), 0) for what in ASKED}}))
    assert finish(stream, 1)
    for i, at in enumerate(memory):
        assert (get(at, 5, np.float32) == (1 + i) * 2.0**STEPS).all()
    hvd.shutdown()


main()
