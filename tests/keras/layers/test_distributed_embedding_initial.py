"""The first values of a rank's part of a table."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from smddp_tf.keras.layers import distributed_embedding
from smddp_tf.keras.layers.distributed_embedding import initial_part
from smddp_tf.keras.layers.placement import Layout


def test_large_tables_are_drawn_in_blocks_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one seed: the values of one process for small tables, no row twice for large ones."""
    whole = keras.initializers.RandomUniform(seed=3)((11, 4)).numpy()
    layouts = [Layout(11, 4, placement, 3) for placement in ("row_wise", "column_wise")]
    for layout in layouts:
        for rank in range(3):
            draw = initial_part(keras.initializers.RandomUniform(seed=3), layout, rank)
            np.testing.assert_array_equal(draw(layout.held(rank)), whole[layout.part(rank)])
    monkeypatch.setattr(distributed_embedding, "_WHOLE", 0)
    monkeypatch.setattr(distributed_embedding, "_BLOCK", 8)  # two rows
    for layout in layouts:
        parts = [
            initial_part(keras.initializers.RandomUniform(seed=3), layout, rank)(layout.held(rank)).numpy()
            for rank in range(3)
        ]
        assert [part.shape for part in parts] == [layout.shape(rank) for rank in range(3)]
        values = np.concatenate([part.ravel() for part in parts])
        assert len(np.unique(values)) == len(values) == 44
