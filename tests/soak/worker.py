"""One rank of a soak run: python -m tests.soak.worker CASE COUNT SEED.  The launcher is tests/soak/__main__.py."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

import numpy as np

import smddp_tf as hvd
from tests.native_module import core
from tests.soak.collectives import Array, Collectives, brought, reduced, same
from tests.soak.usage import check_flat, usage

CHUNKS = 20
THREADS = 4


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
    if "SMDDP_RANK" in os.environ:  # without MPI: as on two hosts, else data would go through shared memory alone
        host = 2 * int(os.environ["SMDDP_RANK"]) // int(os.environ["SMDDP_SIZE"])
        os.environ["SMDDP_HOST_ID"] = f"pretended-host-{host}"
    CASES[case](count, seed)


if __name__ == "__main__":
    main()
