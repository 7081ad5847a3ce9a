"""Which elements of a variable belong to which rank: every element to one place, and files hold each once."""

from __future__ import annotations

import math

import numpy as np
import pytest

from smddp_tf.keras.sharding.shards import FlatPart

SHAPES = [(), (1,), (16,), (17,), (1000,), (7, 5), (33, 67), (3, 50, 11), (640, 1)]
PLACES = [(0, 1), (0, 1, 2, 3), (0, 1, 0, 1), (0, 2, 1, 3, 0, 2, 1, 3), (0, 1, 2)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("places", PLACES)
def test_every_element_once(shape: tuple[int, ...], places: tuple[int, ...]) -> None:
    layout = FlatPart(shape, max(places) + 1, places)
    whole = np.arange(1, math.prod(shape) + 1, dtype=np.float32).reshape(shape)
    gathered = np.zeros_like(whole)
    for rank in range(len(places)):
        part = layout.shard(whole, rank)
        first, end = layout.span(rank)
        assert first == end or first % 16 == 0
        assert len(part) == end - first <= layout.length
        if layout.count(rank):
            assert layout.count(rank) == len(part)
            layout.put(gathered, rank, part)
    np.testing.assert_array_equal(gathered, whole)
    assert sum(map(layout.count, range(len(places)))) == math.prod(shape)


def test_a_part_is_a_copy() -> None:
    whole = np.ones((4, 40), np.float32)
    FlatPart((4, 40), 2, (0, 1)).shard(whole, 1)[:] = 5
    assert np.all(whole == 1)


class Dataset:
    """Remembers which rows were read, as a dataset of h5py would read them."""

    def __init__(self, value: np.ndarray) -> None:
        self.value, self.rows = value, 0

    def __getitem__(self, rows: slice) -> np.ndarray:
        self.rows += len(self.value[rows])
        return self.value[rows]


def test_only_the_rows_that_are_needed_are_read() -> None:
    dataset = Dataset(np.arange(64 * 32).reshape(64, 32))
    part = FlatPart((64, 32), 4, (0, 1, 2, 3)).shard(dataset, 2)
    np.testing.assert_array_equal(part, np.arange(2 * 512, 3 * 512))
    assert dataset.rows == 16
