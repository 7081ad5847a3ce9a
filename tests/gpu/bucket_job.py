"""One bucket of gradients reduced on fake GPUs, with ranks as threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import ml_dtypes
import numpy as np

from tests import native_module
from tests.fake_gpu.gpu import count

_core = native_module.core()

SUM, MIN, MAX = 1, 3, 4
# Elements of the pieces: none, few, more than a chunk of 4096 bytes, odd.
BUCKETS = ((5000, 0, 1, 1023), (7,), (0, 0), (33, 2049, 4096), (31, 1, 2, 3))
ALIVE = ("allocations", "pinned", "streams", "events", "communicators")


def numpy_dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


@dataclass
class Job:
    layout: list[str]
    stage: str
    dtype: str = "float32"
    wire: str = "float32"
    op: int = SUM
    prescale: float = 1.0
    postscale: float = 1.0
    divisor: int = 1
    buckets: Sequence[Sequence[int]] = BUCKETS
    in_host_memory: dict[int, list[int]] = field(default_factory=dict)  # rank -> pieces
    chunk_bytes: int = 4096
    steps: int = 2
    pause_us: int = 200
    seconds: float = 30
    first_device: int = 0

    @property
    def pieces(self) -> int:
        return sum(len(bucket) for bucket in self.buckets)

    def brought(self) -> list[np.ndarray]:
        elements = sum(map(sum, self.buckets))
        random = [np.random.default_rng([rank, elements]) for rank in range(len(self.layout))]
        return [(each.standard_normal(elements) * 9).astype(numpy_dtype(self.dtype)) for each in random]

    def run(self) -> tuple[list[str], list[np.ndarray]]:
        """Every rank's error ("" without one) and results."""
        data = self.brought()
        ranks = range(len(self.layout))
        order = [[int(i) for i in np.random.default_rng(rank).permutation(len(self.buckets))] for rank in ranks]
        errors = _core.device_run(
            hosts=self.layout,
            stage=self.stage,
            dtype=self.dtype,
            wire=self.wire,
            op=self.op,
            prescale=self.prescale,
            postscale=self.postscale,
            divisor=self.divisor,
            buckets=[list(bucket) for bucket in self.buckets],
            data=[array.view(np.uint8) for array in data],
            orders=order,
            in_host_memory=[self.in_host_memory.get(rank, []) for rank in ranks],
            devices=[self.first_device + (0 if self.stage == "host" else rank) for rank in ranks],
            chunk_bytes=self.chunk_bytes,
            steps=self.steps,
            pause_us=self.pause_us,
            seconds=self.seconds,
        )
        return errors, data

    def results(self) -> list[np.ndarray]:
        waits = count("waits_of_host")
        errors, data = self.run()
        assert errors == [""] * len(self.layout)
        assert count("waits_of_host") == waits  # for copies from and to memory that is not pinned
        return data

    def on_cpu(self) -> Job:
        """The same, all of it in host memory: the CPU path."""
        everything = {rank: list(range(self.pieces)) for rank in range(len(self.layout))}
        return replace(self, stage="host", in_host_memory=everything)


def assert_equal_bits(results: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for rank, (got, want) in enumerate(zip(results, expected)):
        wrong = np.flatnonzero(got.view(np.uint8) != want.view(np.uint8))
        assert not wrong.size, f"rank {rank}: {wrong.size} wrong bytes, the first at {wrong[0]}"


def assert_sums(job: Job, results: list[np.ndarray]) -> None:
    """NumPy's answer, but for what the wire dtype rounds."""
    inputs = [array.astype(np.float64) for array in job.brought()]
    expected = sum(inputs) * job.prescale * job.postscale / job.divisor
    scale = sum(abs(each) for each in inputs) * abs(job.prescale * job.postscale) / job.divisor
    precision = max(float(ml_dtypes.finfo(numpy_dtype(name)).eps) for name in (job.dtype, job.wire))
    for rank, result in enumerate(results):
        wrong = np.flatnonzero(abs(result.astype(np.float64) - expected) > 4 * precision * (scale + 1e-6))
        assert not wrong.size, f"rank {rank}: {wrong.size} wrong elements, the first at {wrong[0]}"
