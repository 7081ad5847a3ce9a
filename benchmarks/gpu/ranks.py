"""A rank that reduces gradients on the GPU: `mpirun -np 2 python -m benchmarks.gpu.ranks --answer FOLDER`.

All ranks use the first GPU they see, with --own each the one of its local rank. The arrays are CuPy's or PyTorch's
where these are installed, else the engine's own memory; only their address is used (`__cuda_array_interface__`).
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import numpy as np

import smddp_tf as hvd
from benchmarks.cases import expected_sum, input_values
from benchmarks.gpu.answers import Answer, launched_rank, worker
from benchmarks.gpu.judge import LATE_RANK
from benchmarks.gpu.lists import GradientList, model_list, small_list
from benchmarks.gpu.memory import Machine
from tests.native_module import core

__all__ = ["Gradients"]

STEPS, SMALL_STEPS, WARM = 20, 3, 3
LATE = 2 * LATE_RANK  # seconds


class Gradients:
    """A list of float32 gradients on the GPU, and the plan that reduces them.

    Attributes:
        kind: whose arrays they are: "cupy", "torch" or "own".
    """

    def __init__(self, machine: Machine, gradients: GradientList, op: int, kind: str) -> None:
        self.machine, self.list = machine, gradients
        self.arrays, self.kind = allocate(machine, gradients, kind)
        self.at = [array.__cuda_array_interface__["data"][0] for array in self.arrays]
        shapes = [[elements] for elements in gradients.elements]
        count = len(gradients.elements)
        key = f"gpu-check {gradients.name} {op} {kind}"
        self.plan = core().register_plan(key, ["float32"] * count, shapes, op, 1.0, 1.0, "")

    def fill(self, rank: int) -> None:
        for place, (at, elements) in enumerate(zip(self.at, self.list.elements)):
            values = input_values(rank, (elements,), place)
            self.machine.gpu.copy(at, values.ctypes.data, values.nbytes, self.machine.stream)
            self.machine.wait()

    def step(self) -> float:
        """Seconds from the hand-over of all gradients until the stream has the results."""
        core().barrier("gpu-check")
        begin = time.perf_counter()
        self.reduce()
        self.machine.wait()
        return time.perf_counter() - begin

    def reduce(self) -> None:
        """Returns when the stream waits for the results."""
        core().gpu_reduce_planned(self.plan, self.at, self.list.elements, "float32", self.machine.stream)

    def wrong(self, ranks: int) -> int:
        """Elements that are not the exact sum over the ranks of what `fill` put there."""
        wrong = 0
        for place, (at, elements) in enumerate(zip(self.at, self.list.elements)):
            got = np.empty(elements, np.float32)
            self.machine.gpu.copy(got.ctypes.data, at, got.nbytes, self.machine.stream)
            self.machine.wait()
            wrong += int(np.count_nonzero(got != expected_sum(ranks, (elements,), place)))
        return wrong


class OwnArray:
    """Memory of the engine's device with the protocol of CuPy and PyTorch."""

    def __init__(self, machine: Machine, elements: int) -> None:
        self._block = machine.block(4 * elements)
        self._elements = elements

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        data = (self._block.address, False)
        return {"shape": (self._elements,), "typestr": "<f4", "data": data, "version": 3}


def allocate(machine: Machine, gradients: GradientList, kind: str) -> tuple[list[Any], str]:
    """Arrays of the kind asked for, or the engine's own when that library is not there or has no GPU."""
    try:
        if kind == "cupy" and not machine.fake:
            import cupy

            cupy.cuda.Device(machine.info["index"]).use()
            return [cupy.empty(elements, cupy.float32) for elements in gradients.elements], "cupy"
        if kind == "torch" and not machine.fake:
            import torch

            place = f"cuda:{machine.info['index']}"
            return [
                torch.empty(elements, dtype=torch.float32, device=place) for elements in gradients.elements
            ], "torch"
    except Exception as error:  # whatever such a library may raise at its first use
        print(f"{kind}: {type(error).__name__}: {error}", flush=True)
    return [OwnArray(machine, elements) for elements in gradients.elements], "own"


def check_and_time(machine: Machine, answer: Answer, gradients: GradientList, kind: str, steps: int) -> None:
    """Exact sums, twice, because the first step of a plan goes another way; then the times of averages."""
    sums = Gradients(machine, gradients, int(hvd.Sum), kind)
    wrong = 0
    for _ in range(3):
        sums.fill(hvd.rank())
        sums.step()
        wrong += sums.wrong(hvd.size())
    averages = Gradients(machine, gradients, int(hvd.Average), kind)
    averages.fill(hvd.rank())
    for _ in range(WARM):
        averages.step()
    seconds = [averages.step() for _ in range(steps)]
    answer["rows"].append(
        {"list": gradients.name, "arrays": sums.kind, "bytes": 4 * gradients.total, "wrong": wrong, "seconds": seconds}
    )
    answer.save()


def later_work(machine: Machine) -> float:
    """Seconds until work that rank 0's framework puts on its stream after a hand-over has run; the others come late.

    The rest of a backward pass must not wait for other ranks (`LATE` seconds).
    """
    gradients = Gradients(machine, small_list("ResNet-50", 500), int(hvd.Sum), "own")
    for _ in range(WARM):
        gradients.step()
    core().barrier("gpu-check")
    begin = time.perf_counter()
    if hvd.rank() > 0:
        time.sleep(LATE)
    reducing = threading.Thread(target=gradients.reduce)
    reducing.start()
    time.sleep(LATE / 6)
    machine.wait()
    seconds = time.perf_counter() - begin
    reducing.join()
    machine.wait()
    return seconds


def main() -> None:
    with worker(__doc__, "small", "own", "together") as (options, answer):
        if options.together:  # NCCL takes the ranks for ranks of different hosts, else it refuses two on one GPU
            os.environ["NCCL_HOSTID"] = str(launched_rank())
        hvd.init()
        fake = bool(os.environ.get("SMDDP_GPU_LIBRARY"))  # then every process has a first GPU of its own, or shares it
        machine = Machine(hvd.local_rank() if options.own and not fake else 0)
        answer.update(rank=hvd.rank(), size=hvd.size(), device=machine.info, rows=[])
        of = (lambda model: small_list(model, 500)) if options.small else model_list
        steps = SMALL_STEPS if options.small else STEPS
        for model, kind in (("ResNet-50", "cupy"), ("BERT-base", "torch")):
            check_and_time(machine, answer, of(model), kind, steps)
        answer["later_work_seconds"] = later_work(machine)
        answer["stats"] = core().stats()
        hvd.shutdown()


if __name__ == "__main__":
    main()
