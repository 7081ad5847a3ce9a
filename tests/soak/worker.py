"""One rank of a soak run: python -m tests.soak.worker CASE COUNT SEED.  The launcher is tests/soak/__main__.py."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable

import ml_dtypes
import numpy as np
import numpy.typing as npt

import smddp_tf as hvd
from tests.native_module import core

Array = npt.NDArray[np.generic]
CHUNKS = 20
THREADS = 4
DTYPES = {
    **{name: np.dtype(name) for name in ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")},
    "bool": np.dtype(np.bool_),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
OPS = (hvd.Sum, hvd.Average, hvd.Min, hvd.Max)


# --- what a rank brings, and what must come of it ---


def brought(rank: int, salt: int, length: int, dtype: str) -> Array:
    """Small whole numbers that differ by rank and position."""
    return ((np.arange(length) * 5 + rank * 7 + salt * 3) % 6).astype(DTYPES[dtype])


def as_sent(array: Array, dtype: str) -> Array:
    """The same memory with the element type that `_core` takes."""
    return array.view(np.uint16) if dtype == "bfloat16" else array


def reduced(ranks: list[int], salt: int, length: int, dtype: str, op: int) -> Array:
    """The oracle, in float64."""
    every = np.stack([brought(rank, salt, length, dtype).astype(np.float64) for rank in ranks])
    if op == hvd.Min:
        return every.min(axis=0)
    if op == hvd.Max:
        return every.max(axis=0)
    total = every.sum(axis=0)
    if dtype == "bool":
        return (total > 0).astype(np.float64)
    if op == hvd.Sum:
        return total
    average = total / len(ranks)
    return average if np.dtype(DTYPES[dtype]).kind in "fV" else np.trunc(average)


def same(came: Array, expected: Array, what: str) -> None:
    """Raises AssertionError with the first difference."""
    close = np.isclose(came.astype(np.float64), expected.astype(np.float64), rtol=0.01, atol=0)
    if not close.all():
        at = int(np.argmin(close))
        raise AssertionError(f"rank {hvd.rank()}, {what}: element {at} is {came[at]} instead of {expected[at]}")


class Collectives:
    """Draws and checks collectives. Two with the same seed draw the same, so that the ranks agree."""

    def __init__(self, seed: int, prefix: str, sets: dict[int, list[int]], largest: int) -> None:
        self._random = np.random.default_rng(seed)
        self._prefix = prefix
        self._sets = sets
        self._largest = largest
        self.done = 0

    def step(self) -> None:
        """One collective, of the ranks of one set."""
        draw = self._random
        number = int(draw.choice(list(self._sets)))
        kind = int(draw.integers(10))
        salt = int(draw.integers(1000))
        dtype = str(draw.choice(list(DTYPES)))
        length = int(self._largest ** draw.random()) - 1
        op = int(draw.choice(OPS))
        tensors = int(draw.integers(1, 4))
        root = int(draw.choice(self._sets[number]))
        self.done += 1
        if hvd.rank() not in self._sets[number]:
            return
        name = f"{self._prefix}.{self.done % 50}"
        if dtype == "bool" and op == hvd.Average:
            op = int(hvd.Sum)
        if kind < 5:
            self._allreduce(number, name, salt, dtype, length, op, tensors)
        elif kind < 7:
            arrays = [brought(hvd.rank(), salt + i, length, dtype) for i in range(tensors)]
            core().broadcast([as_sent(array, dtype) for array in arrays], dtype, root, name, number)
            for i, array in enumerate(arrays):
                same(array, brought(root, salt + i, length, dtype), f"broadcast '{name}'")
        elif kind == 7:
            self._allgather(number, name, salt, dtype, length)
        elif kind == 8:
            self._alltoall(number, name, salt, dtype)
        else:
            core().barrier(name, number)

    def _allreduce(self, number: int, name: str, salt: int, dtype: str, length: int, op: int, tensors: int) -> None:
        arrays = [brought(hvd.rank(), salt + i, length, dtype) for i in range(tensors)]
        core().allreduce([as_sent(array, dtype) for array in arrays], dtype, name, op, process_set=number)
        for i, array in enumerate(arrays):
            same(array, reduced(self._sets[number], salt + i, length, dtype, op), f"allreduce '{name}' of {dtype}")

    def _allgather(self, number: int, name: str, salt: int, dtype: str, length: int) -> None:
        ranks = self._sets[number]
        lengths = [(length + rank * 3) % 4000 for rank in ranks]
        mine = brought(hvd.rank(), salt, lengths[ranks.index(hvd.rank())], dtype)
        gathered, rows = core().allgather(as_sent(mine, dtype), dtype, name, number)
        expected = np.concatenate([brought(rank, salt, n, dtype) for rank, n in zip(ranks, lengths)])
        assert list(rows) == lengths, f"rank {hvd.rank()}, allgather '{name}': {rows} instead of {lengths}"
        same(gathered.view(DTYPES[dtype]), expected, f"allgather '{name}'")

    def _alltoall(self, number: int, name: str, salt: int, dtype: str) -> None:
        ranks = self._sets[number]
        splits = {rank: [(salt + rank * 5 + to * 3) % 40 for to in ranks] for rank in ranks}
        mine = brought(hvd.rank(), salt, sum(splits[hvd.rank()]), dtype)
        received, rows = core().alltoall(as_sent(mine, dtype), dtype, splits[hvd.rank()], name, number)
        place = ranks.index(hvd.rank())
        parts = []
        for rank in ranks:
            ends = np.cumsum([0, *splits[rank]])
            parts.append(brought(rank, salt, int(ends[-1]), dtype)[ends[place] : ends[place + 1]])
        assert list(rows) == [len(part) for part in parts], f"rank {hvd.rank()}, alltoall '{name}': {rows}"
        same(received.view(DTYPES[dtype]), np.concatenate(parts), f"alltoall '{name}'")


# --- what must not grow ---


def usage() -> dict[str, int]:
    """Of this process: memory in KiB, open files, mapped pieces of shared memory, names of it, threads."""
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as statm:
        pages = int(statm.read().split()[1])
    with open("/proc/self/maps", encoding="ascii") as maps:
        mapped = sum("smddp" in line for line in maps if "/dev/shm" in line)
    return {
        "memory": pages * os.sysconf("SC_PAGE_SIZE") // 1024,
        "files": len(os.listdir("/proc/self/fd")),
        "mapped": mapped,
        "names": sum(f"-{os.getpid()}-" in name for name in os.listdir("/dev/shm") if name.startswith("smddp")),
        "threads": len(os.listdir("/proc/self/task")),
    }


def check_flat(seen: list[dict[str, int]]) -> None:
    """The last of `seen` may be no more than the one in the middle; memory may be 5% and 16 MiB more."""
    early, last = seen[len(seen) // 2], seen[-1]
    print(f"rank {hvd.rank() if hvd.is_initialized() else '-'}: {early} -> {last}", flush=True)
    for what in ("files", "mapped", "names", "threads"):
        assert last[what] <= early[what], f"{what} grew from {early[what]} to {last[what]}"
    most = early["memory"] * 1.05 + 16 * 1024
    assert last["memory"] <= most, f"memory grew from {early['memory']} to {last['memory']} KiB"


# --- cases ---


def in_threads(work: Callable[[int], None], threads: int) -> None:
    """Runs work(0) ... work(threads - 1) side by side; the first exception is raised."""
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise errors[0]


def mixed(count: int, seed: int, largest: int = 20000) -> None:
    """`count` collectives on each rank from several threads; sets come and go, and ranks join, now and then."""
    hvd.init(process_sets="dynamic")
    size = hvd.size()
    every = list(range(size))
    sets = {0: every}
    for ranks in (every[::2], every[:-1], [size - 1, 0]):
        if len(ranks) > 1:
            sets[core().add_process_sets([(ranks, 0)], False)[0]] = ranks
    streams = [Collectives(seed + i, f"t{i}", sets, largest) for i in range(THREADS)]
    seen = []
    for chunk in range(CHUNKS):
        target = (chunk + 1) * count // CHUNKS // THREADS

        def until(number: int, target: int = target) -> None:
            while streams[number].done < target:
                streams[number].step()

        in_threads(until, THREADS)
        if size > 2:
            for _ in range(3):
                extra = core().add_process_sets([(every[1:], 0)], False)[0]
                assert core().remove_process_set(extra)
        for step in range(hvd.rank() % 4):
            array = np.ones(100, np.float32)
            core().allreduce([array], "float32", f"joined.{step}", int(hvd.Sum))
            same(array, np.full(100, sum(rank % 4 > step for rank in every)), "allreduce with joined ranks")
        last = core().join()
        assert 0 <= last < size
        seen.append(usage())
    check_flat(seen)
    hvd.shutdown()


def cycles(count: int, seed: int) -> None:
    """`count` times init, a collective or two, shutdown."""
    seen = []
    for cycle in range(count):
        hvd.init(process_sets="dynamic" if cycle % 2 else None)
        sets = {0: list(range(hvd.size()))}
        stream = Collectives(seed + cycle, "cycle", sets, 5000)
        for _ in range(2):
            stream.step()
        hvd.shutdown()
        if cycle % max(1, count // CHUNKS) == 0 or cycle == count - 1:
            seen.append(usage())
    check_flat(seen)


def many(count: int, seed: int) -> None:
    """`count` tensors in one request, and as many requests at once."""
    hvd.init()
    ranks = list(range(hvd.size()))
    for step in range(3):
        arrays = [brought(hvd.rank(), seed + i + step, i % 37, "float32") for i in range(count)]
        core().allreduce(arrays, "float32", "many", int(hvd.Sum))
        for i, array in enumerate(arrays):
            same(array, reduced(ranks, seed + i + step, i % 37, "float32", int(hvd.Sum)), f"tensor {i} of many")
    at_once = 200

    names = np.arange(count).reshape(at_once, -1)

    def requests(number: int) -> None:
        for i in names[number]:
            array = brought(hvd.rank(), int(i), 11, "int64")
            core().allreduce([array], "int64", f"one.{i}", int(hvd.Sum))
            same(array, reduced(ranks, int(i), 11, "int64", int(hvd.Sum)), f"request {i} of many")

    in_threads(requests, at_once)
    hvd.shutdown()


def large(count: int, seed: int) -> None:
    """A tensor of `count` bytes: reduced, sent, gathered."""
    hvd.init()
    length = count // 4
    block = 1 << 24
    pattern = brought(hvd.rank(), seed, block, "float32")
    array = np.empty(length, np.float32)

    def fill() -> None:
        for at in range(0, length, block):
            array[at : at + block] = pattern[: length - at]
            array[at] = at // block + hvd.rank()

    def check(expected: Array, first: Callable[[int], float], what: str) -> None:
        for at in range(0, length, block):
            part = array[at : at + block]
            assert part[0] == first(at // block), f"{what}: element {at} is {part[0]}"
            if not np.array_equal(part[1:], expected[1 : part.size]):
                raise AssertionError(f"{what} is wrong after element {at}")

    ranks = list(range(hvd.size()))
    fill()
    start = time.monotonic()
    core().allreduce([array], "float32", "large", int(hvd.Sum))
    print(f"rank {hvd.rank()}: allreduce of {count} bytes, {time.monotonic() - start:.1f} s", flush=True)
    total = reduced(ranks, seed, block, "float32", int(hvd.Sum)).astype(np.float32)
    check(total, lambda at: len(ranks) * at + sum(ranks), "allreduce")
    fill()
    root = ranks[-1]
    core().broadcast([array], "float32", root, "large")
    check(brought(root, seed, block, "float32"), lambda at: at + root, "broadcast")
    mine = array[: length // len(ranks)]
    mine[:] = hvd.rank() + 1
    mine[-1] = -hvd.rank()
    gathered, rows = core().allgather(mine, "float32", "large")
    assert list(rows) == [mine.size] * len(ranks)
    for rank in ranks:
        part = gathered.view(np.float32)[rank * mine.size : (rank + 1) * mine.size]
        right = part[-1] == -rank and (part[:-1] == rank + 1).all()
        assert right, f"allgather: the part of rank {rank} is wrong"
    hvd.shutdown()


CASES = {"collectives": mixed, "cycles": cycles, "many": many, "large": large, "crowded": mixed}


def main() -> None:
    """Runs the case; an exception ends the job."""
    case, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    CASES[case](count, seed)


if __name__ == "__main__":
    main()
