"""How fast pack and unpack move bytes, beside copies of the device: `python -m benchmarks.gpu.bandwidth`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.gpu import oracle
from benchmarks.gpu.answers import Answer, worker
from benchmarks.gpu.clock import Clock, batches, choose_clock
from benchmarks.gpu.lists import ITEM_BYTES, GradientList, addresses, model_list, placed, small_list
from benchmarks.gpu.memory import Block, Machine
from benchmarks.measure import Timing
from tests.native_module import core

__all__ = ["Bench", "measure_all"]

MIB = 1 << 20
PAIRS = (("float32", "float32"), ("float32", "bfloat16"), ("float32", "float16"), ("bfloat16", "bfloat16"))
Work = Callable[[], None]


class Bench:
    """Measures in one process; every figure is a row of the answer.

    Every piece of work has several sets of inputs and outputs, together far larger than the caches, and takes them in
    turn. All hold random values; a result is compared once, after the outputs were filled with something else.
    """

    def __init__(self, machine: Machine, answer: Answer, small: bool, until: float) -> None:
        self.machine, self.answer, self.until = machine, answer, until
        self.rotate = 4 * MIB if small else 1024 * MIB
        self.repeats = 3 if small else 40
        size = MIB if small else 2048 * MIB
        values = oracle.random_bytes("float32", size // 4, 1, ordinary=True)
        self.large = [machine.from_array(values), machine.block(size)]
        self.clock: Clock
        self.clock, why = choose_clock(machine, self.copy_large)
        answer.update(clock=self.clock.name, clock_note=why, rows=[], wrong=0, left_out=[])

    def copy_large(self) -> None:
        self.machine.gpu.copy(self.large[1].address, self.large[0].address, self.large[0].bytes, self.machine.stream)

    def row(self, what: str, how: str, size: int, pieces: Sequence[Work], launches: int = 1, **more: Any) -> bool:
        """Times `pieces` in turn; false when no time is left for that.

        Args:
            what: is done.
            how: by whom, for what several can do.
            size: bytes that each piece reads and writes.
            pieces: run in turn.
            launches: of each piece.
            more: goes into the row.
        """
        if time.monotonic() > self.until:
            self.answer["left_out"].append(f"{what}, {how}")
            return False
        rounds = [pieces[i % len(pieces)] for i in range(self.repeats)]
        began = time.perf_counter()
        for piece in pieces:  # warm, and how long the host takes
            piece()
        handing_over = (time.perf_counter() - began) / len(pieces)
        self.machine.wait()
        found = []
        for batch in batches(rounds, launches):
            found += self.clock.times(batch, self.plug(handing_over * len(batch)))
        timing = Timing.of(found)
        self.answer["rows"].append(
            {
                "what": what,
                "how": how,
                "bytes": size,
                "median": timing.median,
                "p10": timing.p10,
                "p90": timing.p90,
                "repetitions": len(found),
                "host": handing_over,
                **more,
            }
        )
        self.answer.save()
        return True

    def plug(self, seconds: float) -> Work:
        """Copies that keep the stream busy for twice the time that the host needs."""
        copy = 2 * self.large[0].bytes / 8e12  # no GPU of today copies faster
        times = max(1, min(200, int(2 * seconds / copy) + 1))

        def work() -> None:
            for _ in range(times):
                self.copy_large()

        return work

    def sets(self, size: int) -> int:
        return max(2, -(-self.rotate // size))

    def wrong(self, count: int) -> None:
        self.answer["wrong"] += count


def copy_rows(bench: Bench) -> None:
    """What the device can do: a large copy, the mark for everything else; and one between it and pinned memory."""
    machine, gpu = bench.machine, bench.machine.gpu
    size = bench.large[0].bytes
    bench.row("device copy", "large", 2 * size, [bench.copy_large])
    pinned_size = min(size, 256 * MIB)
    pinned = gpu.allocate_pinned(pinned_size)
    there, stream = bench.large[1].address, machine.stream
    bench.row("copy to host", "pinned", pinned_size, [lambda: gpu.copy(pinned, there, pinned_size, stream)])
    bench.row("copy from host", "pinned", pinned_size, [lambda: gpu.copy(there, pinned, pinned_size, stream)])
    machine.wait()
    gpu.free_pinned(pinned)


class ListSets:
    """A list of gradients several times in device memory, each with a packed buffer."""

    def __init__(self, bench: Bench, gradients: GradientList, dtype: str, wire: str) -> None:
        self.bench, self.gradients, self.dtype, self.wire = bench, gradients, dtype, wire
        layout = placed(gradients, ITEM_BYTES[dtype])
        self.item_bytes = [elements * ITEM_BYTES[dtype] for elements in gradients.elements]
        self.packed_bytes = gradients.total * ITEM_BYTES[wire]
        self.moved = sum(self.item_bytes) + self.packed_bytes
        values = oracle.random_bytes(dtype, layout.bytes // ITEM_BYTES[dtype], 7, ordinary=True)
        self.packed_values = self._packed(values, layout.starts)
        self.blocks: list[Block] = []
        self.addresses: list[Sequence[int]] = []
        self.buffers: list[Block] = []
        for _ in range(bench.sets(self.moved)):
            block, buffer = bench.machine.from_array(values), bench.machine.block(self.packed_bytes)
            self.blocks.append(block)
            self.buffers.append(buffer)
            self.addresses.append(addresses(layout, block.address))
        self.views = [core().GpuView(at, at, gradients.elements, dtype, wire) for at in self.addresses]

    def packs(self) -> list[Work]:
        gpu, stream = self.bench.machine.gpu, self.bench.machine.stream
        return [lambda v=v, b=b: gpu.pack(v, b.address, stream) for v, b in zip(self.views, self.buffers)]

    def unpacks(self) -> list[Work]:
        gpu, stream = self.bench.machine.gpu, self.bench.machine.stream
        return [lambda v=v, b=b: gpu.unpack(v, b.address, stream) for v, b in zip(self.views, self.buffers)]

    def copies(self) -> list[Work]:
        """One cudaMemcpyAsync for each tensor, in a loop of C++; only where nothing is converted."""
        gpu, stream = self.bench.machine.gpu, self.bench.machine.stream

        def loop(to: list[int], at: Sequence[int]) -> Work:
            return lambda: gpu.copy_each(to, at, self.item_bytes, stream)

        ends = np.cumsum([0, *self.item_bytes[:-1]])
        return [
            loop([buffer.address + int(end) for end in ends], at) for buffer, at in zip(self.buffers, self.addresses)
        ]

    def check_packed(self) -> int:
        """Elements that the last pack of any set has got wrong; the buffers were poisoned before."""
        return sum(oracle.differing(buffer.download(), self.packed_values, self.wire) for buffer in self.buffers)

    def poison(self) -> None:
        for buffer in self.buffers:
            buffer.poison()

    def free(self) -> None:
        for block in [*self.blocks, *self.buffers]:
            block.free()

    def _packed(self, values: np.ndarray, starts: Sequence[int]) -> np.ndarray:
        parts = [values[start : start + size] for start, size in zip(starts, self.item_bytes)]
        return oracle.cast(np.concatenate(parts), self.dtype, self.wire, self.gradients.total)


def list_rows(bench: Bench, gradients: GradientList, dtype: str, wire: str) -> None:
    sets = ListSets(bench, gradients, dtype, wire)
    facts: dict[str, Any] = {"list": gradients.name, "tensors": len(gradients.elements), "dtype": dtype, "wire": wire}
    label = f"{gradients.name} {dtype} as {wire}"
    sets.poison()
    if bench.row(f"pack {label}", "smddp_tf", sets.moved, sets.packs(), **facts):
        bench.wrong(sets.check_packed())
        bench.row(f"unpack {label}", "smddp_tf", sets.moved, sets.unpacks(), **facts)
    if dtype == wire:
        sets.poison()
        launches = len(sets.item_bytes)
        if bench.row(f"pack {label}", "cudaMemcpyAsync each", sets.moved, sets.copies(), launches, **facts):
            bench.wrong(sets.check_packed())
    sets.free()


def measure_all(bench: Bench, small: bool) -> None:
    copy_rows(bench)
    of = (lambda model: small_list(model, 5000)) if small else model_list
    for dtype, wire in PAIRS:
        for model in ("ResNet-50", "BERT-base"):
            if time.monotonic() < bench.until:
                list_rows(bench, of(model), dtype, wire)
            else:
                bench.answer["left_out"].append(f"{model} {dtype} as {wire}")


def main() -> None:
    with worker(__doc__, "small") as (options, answer):
        machine = Machine()
        answer["device"] = machine.info
        measure_all(Bench(machine, answer, options.small, time.monotonic() + options.seconds), options.small)


if __name__ == "__main__":
    main()
