"""Datasets that are dealt out to the ranks, and what the ranks got, put together again."""

from __future__ import annotations

import tensorflow as tf

ITEMS = 22


def of_unknown_length(count: int = ITEMS) -> tf.data.Dataset:
    return tf.data.Dataset.range(count).filter(lambda item: item >= 0)


def numbers(dataset) -> list[int]:
    return [int(item) for item in dataset.as_numpy_iterator()]


def dealt(mpi, mine: list[int]) -> list[int]:
    """What all ranks got, one item of each in turn."""
    everybody = mpi.allgather(mine)
    return [part[i] for i in range(max(map(len, everybody))) for part in everybody if i < len(part)]


def padded(size: int, count: int = ITEMS) -> list[int]:
    return [*range(count), *range(-count % size)]


def looks(part, how: str) -> None:
    """What one rank does with its part besides."""
    if how == "one element":
        next(iter(part))
    elif how == "some":
        numbers(part.batch(2).take(2).unbatch())
    else:
        numbers(part)
