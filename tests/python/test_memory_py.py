"""`_core.submit`: requests on memory of another framework (here NumPy's), and sets that their members make alone."""

from __future__ import annotations

import numpy as np
import pytest

from smddp_tf._native import loader
from tests.native_module import ALLGATHER, ALLREDUCE, ALLTOALL, AVERAGE, BARRIER, BROADCAST, REDUCESCATTER, SUM, submit

pytestmark = pytest.mark.ranks("2", "2+2", "2+1")

core = loader.core


def brought(rank: int, count: int = 6) -> np.ndarray:
    return (rank + 1.0) * np.arange(1, count + 1)


def total(ranks) -> float:
    return sum(rank + 1.0 for rank in ranks)


def test_reductions(hvd, rank, size):
    summed, mean, apart = brought(rank), brought(rank, 3), np.zeros(6)
    submit(ALLREDUCE, "sum", [(summed, summed), (mean, mean)]).wait(60.0)
    np.testing.assert_array_equal(summed, total(range(size)) * np.arange(1, 7))
    np.testing.assert_array_equal(mean, total(range(size)) * np.arange(1, 4))
    submit(ALLREDUCE, "mean", [(mine := brought(rank), apart)], op=AVERAGE).wait(60.0)
    np.testing.assert_allclose(apart, total(range(size)) / size * np.arange(1, 7), rtol=1e-15)
    np.testing.assert_array_equal(mine, brought(rank))
    part = np.zeros(3)
    submit(REDUCESCATTER, "part", [(brought(rank, 3 * size), part)], shape=[size, 3]).wait(60.0)
    np.testing.assert_array_equal(part, total(range(size)) * np.arange(1 + 3 * rank, 4 + 3 * rank))


def test_copies(hvd, rank, size):
    whole = np.zeros(sum(range(1, size + 1)))
    submit(ALLGATHER, "all", [(brought(rank, rank + 1), whole)]).wait(60.0)
    np.testing.assert_array_equal(whole, np.concatenate([brought(other, other + 1) for other in range(size)]))
    received = np.zeros(size * (rank + 1))
    sent = np.concatenate([np.full(other + 1, 10.0 * rank + other) for other in range(size)])
    submit(ALLTOALL, "to all", [(sent, received)], splits=range(1, size + 1)).wait(60.0)
    np.testing.assert_array_equal(received, np.repeat(10.0 * np.arange(size) + rank, rank + 1))
    one = brought(rank)
    submit(BROADCAST, "one", [(one, one)], root=size - 1).wait(60.0)
    np.testing.assert_array_equal(one, brought(size - 1))
    assert submit(BARRIER, "all here", []).wait(60.0) is True


def test_waits_end_and_memory_is_kept(hvd, rank, size):
    arrays = [brought(rank, 1000) for _ in range(8)]
    requests = [submit(ALLREDUCE, f"kept {i}", [(array, array)]) for i, array in enumerate(arrays)]
    firsts = [array[:1] for array in arrays]
    del arrays
    del requests  # waits: the engine writes there
    assert [first[0] for first in firsts] == [total(range(size))] * 8
    late = brought(rank)
    if rank == 0:
        request = submit(ALLREDUCE, "late", [(late, late)])
        assert request.wait(0.05) is False
        hvd.broadcast_object("go on", 0, name="go on")
    else:
        hvd.broadcast_object(None, 0, name="go on")
        request = submit(ALLREDUCE, "late", [(late, late)])
    assert request.wait(60.0)
    assert request.wait(0.0)  # it may be asked again
    assert late[0] == total(range(size))


def test_errors(hvd, rank, size):
    array = np.zeros(3 + rank)
    request = submit(ALLREDUCE, "shapes", [(array, array)])
    for _ in range(2):
        with pytest.raises(core().EngineError, match=r"rank 0 has \[3\], rank 1 has \[4\]"):
            request.wait(60.0)
    with pytest.raises(ValueError, match="no process set 99"):
        submit(ALLREDUCE, "set", [(array, array)], process_set=99)
    with pytest.raises(ValueError, match="float31"):
        core().submit(ALLREDUCE, "dtype", [("float31", [1], 0, 0, 1)], [], (SUM, ""), 0, [], 0)


def test_sets_made_by_their_members(hvd, rank, size):
    """Others do not call; `hvd.add_process_set` does not see them."""
    first = core().FIRST_OWN_SET
    for number, ranks in enumerate(([0, size - 1], [size - 1], list(range(1, size))), start=first):
        if rank in ranks:
            core().add_own_process_set(ranks, number)
            array = brought(rank)
            submit(ALLREDUCE, "in a set", [(array, array)], process_set=number).wait(60.0)
            np.testing.assert_array_equal(array, total(ranks) * np.arange(1, 7))
            submit(BROADCAST, "of a set", [(array, array)], root=ranks[-1], process_set=number).wait(60.0)
    assert hvd.process_set_ids() == [0]
    with pytest.raises(ValueError, match="no process set"):
        submit(BARRIER, "elsewhere", [], process_set=first + 7)
