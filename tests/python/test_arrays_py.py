"""`_core.broadcast` and `_core.allgather`: NumPy arrays between ranks, without TensorFlow."""

from __future__ import annotations

import numpy as np
import pytest

from smddp_tf._native import loader

pytestmark = pytest.mark.ranks("2", "2+1")

core = loader.core


def values(rank: int, rows: int, dtype: str) -> np.ndarray:
    return (np.arange(rows * 3).reshape(rows, 3) * 5 + 17 * rank).astype(dtype)


@pytest.mark.parametrize("root", ["first", "last"])
def test_broadcast_is_in_place_and_of_several_arrays(hvd, rank, size, root):
    number = 0 if root == "first" else size - 1
    arrays = [values(rank, rows, "float64") for rows in (1, 40_000)]
    core().broadcast(arrays, dtype="float64", root=number, name=f"arrays.{root}")
    for array, rows in zip(arrays, (1, 40_000)):
        np.testing.assert_array_equal(array, values(number, rows, "float64"))


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "complex128"])
def test_allgather_returns_bytes_and_rows(hvd, rank, size, dtype):
    """Rank 0 has no rows."""
    gathered, rows = core().allgather(values(rank, 2 * rank, dtype), dtype=dtype, name=f"rows.{dtype}")
    assert rows == [2 * other for other in range(size)]
    assert (gathered.dtype, gathered.ndim) == (np.uint8, 1)
    expected = np.concatenate([values(other, 2 * other, dtype) for other in range(size)])
    np.testing.assert_array_equal(gathered.view(dtype).reshape(-1, 3), expected)


def test_large_rows(hvd, rank, size):
    mine = values(rank, 100_000 + rank, "float32")
    gathered, _ = core().allgather(mine, dtype="float32", name="large")
    expected = np.concatenate([values(other, 100_000 + other, "float32") for other in range(size)])
    np.testing.assert_array_equal(gathered.view("float32").reshape(-1, 3), expected)


def test_bfloat16_travels_as_uint16(hvd, rank, size):
    gathered, rows = core().allgather(np.array([rank, 0x3F80], np.uint16), dtype="bfloat16", name="halves")
    assert gathered.view(np.uint16).tolist() == [number for other in range(size) for number in (other, 0x3F80)]
    assert rows == [2] * size


def test_a_dtype_of_another_size_is_refused_before_anything_is_sent(hvd, rank):
    """On rank 0 alone: the others do not wait for it."""
    if rank == 0:
        with pytest.raises(ValueError, match=r"4 bytes per element for dtype float32\. Received: 8"):
            core().broadcast([np.zeros(2)], dtype="float32", root=0, name="size")
        with pytest.raises(ValueError, match="float33"):
            core().allgather(np.zeros(2, "float32"), dtype="float33", name="name")
    assert hvd.allgather_object(rank) == list(range(hvd.size()))


def test_a_difference_of_shapes_has_a_reason(hvd, rank):
    with pytest.raises(core().EngineError, match="rank 0 has") as error:
        core().broadcast([np.zeros(2 + rank)], dtype="float64", root=0, name="shapes")
    assert error.value.reason == "tensors_differ"


def test_among_the_ranks_of_a_process_set(sets, rank, size):
    """`root` is a number among all ranks."""
    high = sets["high"]
    if not high.included():
        return
    array = np.array([rank + 0.5])
    core().broadcast([array], dtype="float64", root=size - 1, name="of a set", process_set=high.process_set_id)
    assert array[0] == size - 0.5
    gathered, rows = core().allgather(np.array([rank]), dtype="int64", name="of a set", process_set=high.process_set_id)
    assert gathered.view(np.int64).tolist() == high.ranks
    assert rows == [1] * (size - 1)
