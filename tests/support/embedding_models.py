"""A small recommender with tables on several ranks, the same with Keras's own embeddings, and its data."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

import smddp_tf.keras as hvk

ROWS, COLUMNS = (50, 37, 23), (4, 6, 4)
# Feature: its table, and how many ids a sample has (0: one, in a tensor of rank 1).
FEATURES = {"a": (0, 0), "b": (0, 3), "c": (1, 3), "d": (2, 2)}


def features_of(placements: Any, combiner: str = "mean") -> dict[str, Any]:
    tables = [
        hvk.layers.TableConfig(f"table_{i}", ROWS[i], COLUMNS[i], placement=placement, combiner=combiner)
        for i, placement in enumerate(placements)
    ]
    return {
        name: hvk.layers.FeatureConfig(name, tables[i], (None, count)[: 1 + (count > 0)], (None, COLUMNS[i]))
        for name, (i, count) in FEATURES.items()
    }


def inputs_of() -> dict[str, Any]:
    return {
        name: keras.Input((count,) if count else (), dtype="int32", name=name) for name, (_, count) in FEATURES.items()
    }


def cut_model(placements: Any, combiner: str = "mean") -> keras.Model:
    inputs = inputs_of()
    rows = hvk.layers.DistributedEmbedding(features_of(placements, combiner), name="tables")(inputs)
    joined = keras.layers.Concatenate()([rows[name] for name in sorted(rows)])
    return keras.Model(inputs, keras.layers.Dense(1, name="top", kernel_initializer=_weights_of_top)(joined))


class DenseEmbedding(keras.layers.Embedding):
    """Its gradient is dense: Keras squares repeated rows of `tf.IndexedSlices` one by one, which is not their sum."""

    def call(self, inputs: Any) -> Any:
        return keras.ops.matmul(keras.ops.one_hot(inputs, self.input_dim), self.embeddings)


def plain_model(combiner: str = "mean") -> keras.Model:
    """With Keras's own embeddings: the oracle."""
    inputs = inputs_of()
    tables = [DenseEmbedding(ROWS[i], COLUMNS[i], name=f"table_{i}") for i in range(len(ROWS))]
    joined = []
    for name, (table, count) in sorted(FEATURES.items()):
        rows = tables[table](inputs[name])
        if count:
            total = keras.ops.sum(rows, axis=1)
            rows = total / {"sum": 1.0, "mean": float(count), "sqrtn": float(np.sqrt(count))}[combiner]
        joined.append(rows)
    top = keras.layers.Dense(1, name="top", kernel_initializer=_weights_of_top)
    return keras.Model(inputs, top(keras.layers.Concatenate()(joined)))


@keras.saving.register_keras_serializable("tests")
def _weights_of_top(shape: Any, dtype: Any = None) -> Any:
    return tf.reshape(tf.cast(tf.sin(tf.range(float(np.prod(shape)))), dtype), shape)


def first_tables() -> list[np.ndarray]:
    return [
        np.cos(np.arange(rows * columns, dtype="float32")).reshape(rows, columns)
        for rows, columns in zip(ROWS, COLUMNS)
    ]


def data_of(samples: int, seed: int = 3) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Ids that repeat often, within a sample too; each table has rows that nobody asks for."""
    random = np.random.default_rng(seed)
    x = {
        name: random.integers(0, int(ROWS[table] * 0.8), (samples, count) if count else samples).astype("int32")
        for name, (table, count) in FEATURES.items()
    }
    return x, random.normal(size=(samples, 1)).astype("float32")


def part(data: Any, rank: int, size: int) -> Any:
    """Every `size`-th sample from `rank` on."""
    x, y = data
    return {name: ids[rank::size] for name, ids in x.items()}, y[rank::size]


def give_first_tables(model: keras.Model) -> keras.Model:
    """The same tables, in whichever parts."""
    if any(layer.name == "tables" for layer in model.layers):
        layer = model.get_layer("tables")
        layer.load_own_variables({str(i): table for i, table in enumerate(first_tables())})
    else:
        for i, table in enumerate(first_tables()):
            model.get_layer(f"table_{i}").embeddings.assign(table)
    return model


def tables_of(model: keras.Model) -> list[np.ndarray]:
    """The whole tables and the weights of the top; of cut tables on rank 0 only."""
    top = [variable.numpy() for variable in model.get_layer("top").weights]
    if any(layer.name == "tables" for layer in model.layers):
        whole = model.get_layer("tables").get_embedding_tables()
        return [*(whole[name] for name in sorted(whole)), *top]
    return [*(model.get_layer(f"table_{i}").embeddings.numpy() for i in range(len(ROWS))), *top]


def relative_distance(ours: Any, expected: Any) -> float:
    """The largest difference, in relation to the largest value of all; 0 where there is nothing to compare."""
    largest = max((float(np.abs(b).max()) for b in expected), default=1.0)
    return max((float(np.abs(a - b).max()) for a, b in zip(ours, expected)), default=0.0) / largest


# For `load_model`: Keras 3.3 does not find a registered function by itself.
CUSTOM_OBJECTS = {_weights_of_top.__name__: _weights_of_top}
