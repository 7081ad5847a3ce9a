"""Configurations of a DistributedEmbedding, of keras_rs too, by their attributes; and the layer in one process."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from smddp_tf.keras.layers import DistributedEmbedding, FeatureConfig, TableConfig


def of_keras_rs() -> dict[str, Any]:
    """Objects with the attributes of keras_rs 0.4, two features with one table."""
    table = SimpleNamespace(
        name="users",
        vocabulary_size=10,
        embedding_dim=4,
        initializer="ones",
        optimizer="adam",
        combiner="sum",
        placement="sparsecore",
        max_ids_per_partition=256,
        max_unique_ids_per_partition=256,
    )
    return {
        "one": SimpleNamespace(name="one", table=table, input_shape=(8,), output_shape=(8, 4)),
        "more": [SimpleNamespace(name="three", table=table, input_shape=(8, 3), output_shape=(8, 4))],
    }


def test_objects_of_keras_rs() -> None:
    layer = DistributedEmbedding(of_keras_rs(), table_stacking="auto", update_stats=False)
    rows = layer({"one": tf.constant([1, 2]), "more": [tf.constant([[1, 2, 3], [4, 5, 5]])]})
    assert [tuple(weight.shape) for weight in layer.weights] == [(10, 4)]
    np.testing.assert_array_equal(rows["one"], np.ones((2, 4)))
    np.testing.assert_array_equal(rows["more"][0], np.full((2, 4), 3.0))


def test_a_model_in_a_file(tmp_path: Path) -> None:
    """Without `init`: tables are whole, and the nest of features comes back, with its shared table."""
    users, days = TableConfig("users", 30, 4, keras.initializers.RandomNormal(seed=1)), TableConfig("days", 7, 4)
    features = (
        FeatureConfig("user", users, (None,), (None, 4)),
        {
            "friends": FeatureConfig("friends", users, (None, 2), (None, 4)),
            "day": FeatureConfig("day", days, (None,), (None, 4)),
        },
    )
    user, day = (keras.Input((), dtype="int32") for _ in range(2))
    friends = keras.Input((2,), dtype="int32")
    first, others = DistributedEmbedding(features, name="tables")((user, {"friends": friends, "day": day}))
    model = keras.Model([user, friends, day], keras.layers.Concatenate()([first, others["friends"], others["day"]]))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    ids = [tf.constant([3, 4]), tf.constant([[1, 2], [3, 3]]), tf.constant([0, 6])]
    np.testing.assert_array_equal(model(ids), loaded(ids))
    assert [tuple(weight.shape) for weight in loaded.get_layer("tables").weights] == [(30, 4), (7, 4)]
    assert set(loaded.get_layer("tables").get_embedding_tables()) == {"users", "days"}
