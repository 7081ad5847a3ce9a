"""Ranks whose gradients lie on a GPU, without TensorFlow: plans, process sets, hvd.join, a second session.

python gpu_ranks.py HOST_OF_RANK, such as aab
"""

import os
import sys

import numpy as np

import smddp_tf as hvd
from tests.native_module import core

RANK = int(next(os.environ[name] for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK") if name in os.environ))
SIZES = (3000, 1, 4097, 12345, 17, 8000)


class Framework:
    """What a framework would do on its GPU."""

    def __init__(self):
        self.gpu = core().Gpu(0)
        self.stream = self.gpu.stream()
        self.memory = [self.gpu.allocate(4 * size) for size in SIZES]

    def compute(self, seed):
        """Brings gradients to the GPU; returns them too."""
        random = np.random.default_rng(seed)
        self.arrays = [random.standard_normal(size).astype(np.float32) for size in SIZES]
        for array, memory in zip(self.arrays, self.memory):
            self.gpu.copy(memory, array.ctypes.data, array.nbytes, self.stream)

    def reduce(self, plan, process_set=0):
        core().gpu_reduce_planned(plan, self.memory, SIZES, "float32", self.stream, process_set)

    def results(self):
        arrays = [np.empty(size, np.float32) for size in SIZES]
        for array, memory in zip(arrays, self.memory):
            self.gpu.copy(array.ctypes.data, memory, array.nbytes, self.stream)
        self.gpu.synchronize(self.stream)
        return arrays


def plan_of(process_set=0, key="gradients"):
    return core().register_plan(
        key=key,
        dtypes=["float32"] * len(SIZES),
        shapes=[[size] for size in SIZES],
        op=int(hvd.Sum),
        prescale=1.0,
        postscale=1.0,
        wire_dtype="",
        process_set=process_set,
    )


def check(framework, step, ranks):
    total = 0
    for rank in ranks:
        random = np.random.default_rng([step, rank])
        total = total + np.concatenate([random.standard_normal(size).astype(np.float32) for size in SIZES])
    np.testing.assert_allclose(np.concatenate(framework.results()), total, rtol=1e-5, atol=1e-5)


def train(framework, plan, steps, ranks, process_set=0):
    for step in steps:
        framework.compute([step, hvd.rank()])
        framework.reduce(plan, process_set)
        check(framework, step, ranks)


def main():
    os.environ["SMDDP_HOST_ID"] = sys.argv[1][RANK]
    framework = Framework()
    for session in range(2):
        evens = hvd.ProcessSet([0, 2])
        hvd.init(process_sets=[evens])
        everybody = range(hvd.size())
        train(framework, plan_of(), range(5), everybody)
        if evens.included():
            train(framework, plan_of(evens.process_set_id), range(5, 8), [0, 2], evens.process_set_id)
        framework.compute([9, hvd.rank()])
        core().gpu_allreduce(
            list(zip(framework.memory, [[size] for size in SIZES])),
            "float32",
            "named",
            int(hvd.Sum),
            stream=framework.stream,
        )
        check(framework, 9, everybody)
        if hvd.rank() == 0:
            for step in (10, 11):  # the others bring zeros
                framework.compute([step, 0])
                framework.reduce(plan_of())
                check(framework, step, [0])
        core().join()
        print(f"rank {hvd.rank()}, session {session}: all sums are right", flush=True)
        hvd.shutdown()


if __name__ == "__main__":
    main()
