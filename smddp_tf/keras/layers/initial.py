"""The first values of a rank's part of a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from smddp_tf.keras._backend import keras
from smddp_tf.keras.layers.placement import Layout

_WHOLE = 1 << 25  # elements up to which every rank draws the full table, and takes its shard
_BLOCK = 1 << 24  # elements of larger ones that are drawn at once


def initial_part(initializer: Any, layout: Layout, rank: int) -> Callable[..., Any]:
    """An initializer for the part of `rank`.

    Tables of up to 2^25 elements begin with the values that one process would draw, if the initializer has a seed. Of
    larger ones each rank draws its own rows, in blocks, with seeds that differ.
    """
    initializer = keras.initializers.get(initializer)

    def draw(shape: tuple[int, ...], dtype: str | None = None) -> tf.Tensor:
        rows, columns = layout.part(rank)
        if not layout.is_sharded or 0 in layout.shape(rank):
            return initializer(shape, dtype=dtype)
        if layout.rows * layout.columns <= _WHOLE:
            return tf.convert_to_tensor(initializer((layout.rows, layout.columns), dtype=dtype))[rows, columns]
        blocks, step = [], max(1, _BLOCK // layout.columns)
        for number, begin in enumerate(range(0, shape[0], step)):
            seeded = initializer
            if isinstance(getattr(initializer, "seed", None), int):  # with one seed it draws the same each time
                seeded = type(initializer).from_config(initializer.get_config())
                seeded.seed = initializer.seed + number * layout.ranks + rank + 1
            block = seeded((min(step, shape[0] - begin), layout.columns), dtype=dtype)
            blocks.append(tf.convert_to_tensor(block)[:, columns])
        return tf.concat(blocks, axis=0)

    return draw
