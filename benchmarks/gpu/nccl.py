"""The engine's NCCL adapter with the real library, in a group of one: `python -m benchmarks.gpu.nccl`.

One GPU takes one rank (NCCL refuses two), so this shows that the library is found, that its functions are called as it
expects, and that a group begins and ends; not that ranks reduce together.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.gpu.answers import Answer, worker
from benchmarks.gpu.memory import Machine
from tests.native_module import core

__all__ = ["check"]

KINDS = (0, 1, 2)  # of tf_ops/device/group.h: allreduce, reduce-scatter, allgather
DTYPES = {"float32": np.float32, "float16": np.float16, "float64": np.float64}


def check(answer: Answer, elements: int, until: float) -> None:
    """With one member all collectives are copies; in place they change nothing."""
    answer.update(version=core().gpu_group_version(), wrong=0)
    machine = Machine()
    answer["device"] = machine.info
    group = core().GpuGroup(machine.gpu, core().gpu_group_id(), 1, 0)

    def wait() -> None:
        while not group.ready():
            if time.monotonic() > until:
                raise TimeoutError("NCCL did not get ready in time.")
            time.sleep(1e-4)
        group.health()

    wait()
    answer["joined"] = True
    rng = np.random.default_rng(1)
    for name, dtype in DTYPES.items():
        values = rng.standard_normal(elements).astype(dtype)
        with machine.from_array(values) as source, machine.block(values.nbytes) as into:
            for kind in KINDS:
                into.poison()
                group.call(kind, into.address, source.address, elements, name, machine.stream)
                wait()
                answer["wrong"] += int(np.count_nonzero(into.download().view(dtype) != values))
                group.call(kind, source.address, source.address, elements, name, machine.stream)
                wait()
                answer["wrong"] += int(np.count_nonzero(source.download().view(dtype) != values))
    group.abort()


def main() -> None:
    with worker(__doc__, "small") as (options, answer):
        try:
            core().gpu_group_version()
        except Exception as error:
            answer["absent"] = str(error)
            return
        check(answer, 1_001 if options.small else 1_000_003, time.monotonic() + options.seconds)


if __name__ == "__main__":
    main()
