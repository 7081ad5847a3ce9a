"""Several Python threads of a rank use the session at once, each in an order of its own.  python threads.py FOLDER"""

import random
import sys
import threading
import time
from pathlib import Path

import numpy as np

import smddp_tf as hvd
from tests.native_module import core

THREADS, OPERATIONS = 6, 40
errors: list[BaseException] = []


def reduce(name: str, value: float) -> None:
    array = np.full(1000, value * (hvd.rank() + 1), np.float32)
    core().allreduce([array], "float32", name, int(hvd.Sum))
    expected = value * sum(range(1, hvd.size() + 1))
    assert (array == expected).all(), (name, array[0], expected)


def work(thread: int) -> None:
    try:
        hvd.init()  # all threads at once: one session
        gathered, _ = core().allgather(np.full((hvd.rank() + 1, 2), thread, np.int32), "int32", f"gather {thread}")
        assert np.frombuffer(gathered, np.int32).tolist() == [thread] * 2 * sum(range(1, hvd.size() + 1))
        for operation in range(OPERATIONS):
            reduce(f"thread {thread}, operation {operation}", 1.0 + thread + operation)
    except BaseException as error:
        errors.append(error)


def in_threads(function) -> None:
    threads = [threading.Thread(target=function, args=(number,)) for number in range(THREADS)]
    random.shuffle(threads)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def leaves_alone(thread: int) -> None:
    """Waits for what no other rank asks for, until the session ends under it."""
    try:
        reduce(f"only rank {hvd.rank()} has this, thread {thread}", 1.0)
    except (RuntimeError, ValueError) as error:
        ended.append(str(error))


def wait_for(file: Path) -> None:
    give_up_at = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < give_up_at, file
        time.sleep(0.01)


in_threads(work)
if errors:
    raise errors[0]
assert hvd.is_initialized()
rank, ended = hvd.rank(), []
# A session that ends with operations under way ends those of the other ranks too, so the barrier must be over there.
passed, left = Path(sys.argv[1]) / "passed", Path(sys.argv[1]) / "left"
if rank == 0:
    threads = [threading.Thread(target=leaves_alone, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    core().barrier("one")
    wait_for(passed)
    hvd.shutdown()
    left.touch()
    for thread in threads:
        thread.join()
    assert len(ended) == THREADS, ended
    assert all("ended" in text or "shut down" in text or "not been initialized" in text for text in ended), ended
else:
    core().barrier("one")
    passed.touch()
    wait_for(left)
print(f"rank {rank} is through")
