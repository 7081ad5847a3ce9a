"""Training whose variables are partitioned, on ranks that come and go.  partitioned_ranks.py FOLDER BATCHES SECONDS WAY

WAY: "fit", "function" (a `tf.function` made in the training function), or "kept" (one that outlives the session).
Notes and files are those of `elastic_ranks.py`. Weights at the end are compared with those of plain Keras, in this
process, with full tables and state, and full batches: "end BATCHES RANKS DIFFERENCE ROUNDING", by rank 0.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import smddp_tf.keras as hvd
from smddp_tf import elastic
from smddp_tf.keras.layers import DistributedEmbedding, FeatureConfig, TableConfig

ROWS, COMMIT_EVERY = 12, 3
TABLES = {"column_wise": (37, 6), "row_wise": (50, 4), "table_wise": (23, 4)}  # in the order of Keras


def tables() -> dict[str, np.ndarray]:
    random = np.random.default_rng(4)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in TABLES.items()}


def model_of(embeddings: Any) -> keras.Model:
    inputs = {name: keras.Input((), dtype="int64", name=name) for name in TABLES}
    rows = embeddings(inputs)
    hidden = keras.layers.Dense(67, "tanh", kernel_initializer=keras.initializers.RandomNormal(seed=1))
    out = keras.layers.Dense(1, kernel_initializer=keras.initializers.RandomNormal(seed=2))
    return keras.Model(inputs, out(hidden(keras.ops.concatenate([rows[name] for name in TABLES], axis=1))))


def divided() -> keras.Model:
    def table(name: str) -> TableConfig:
        return TableConfig(name, *TABLES[name], placement=name)

    features = {name: FeatureConfig(name, table(name), (None,), (None, TABLES[name][1])) for name in TABLES}
    layer = DistributedEmbedding(features)
    with hvd.partition_weights(min_elements=500):  # the kernel of 14 x 67
        model = model_of(layer)
    layer.load_own_variables({str(number): values for number, values in enumerate(tables().values())})
    return model


def plain() -> keras.Model:
    def look_up(inputs: Any) -> Any:
        return {
            name: keras.layers.Embedding(*values.shape, weights=[values], name=f"{name}_table")(inputs[name])
            for name, values in tables().items()
        }

    return model_of(look_up)


def batch_of(number: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """With each id once, so that Adam gets dense and sparse gradients alike."""
    random = np.random.default_rng(number)
    x = {name: random.permutation(rows)[:ROWS] for name, (rows, _) in TABLES.items()}
    return x, random.normal(size=(ROWS, 1)).astype(np.float32)


def optimizer_of() -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam(0.01, amsgrad=True)


def step_of(model: keras.Model, optimizer: Any) -> Any:
    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    ids = {name: tf.TensorSpec([None], tf.int64) for name in TABLES}
    return tf.function(step, input_signature=[ids, tf.TensorSpec([None, 1])])  # traced once


def main(folder: Path, batches: int, seconds: float, way: str) -> None:
    log = os.open(folder / f"log.{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(*words: object) -> None:
        os.write(log, (" ".join(map(str, words)) + "\n").encode())

    hvd.init()
    model = divided()
    model.compile(hvd.DistributedOptimizer(optimizer_of(), partition_state="world"), loss="mse")
    state = elastic.TensorFlowKerasState(model, batch=0)
    kept = step_of(model, model.optimizer)

    @elastic.run
    def train(state: elastic.TensorFlowKerasState) -> None:
        note("begin", state.batch, hvd.rank(), hvd.size(), hvd.local_rank(), hvd.size())
        step = kept if way == "kept" else step_of(model, model.optimizer)
        while state.batch < batches:
            x, y = batch_of(state.batch)
            part = slice(hvd.rank(), None, hvd.size())
            x, y = {name: ids[part] for name, ids in x.items()}, y[part]
            if way == "fit":
                model.fit(x, y, batch_size=len(y), verbose=0)
            else:
                step({name: tf.constant(ids) for name, ids in x.items()}, tf.constant(y))
            state.batch += 1
            if state.batch % COMMIT_EVERY == 0:
                state.commit()
                note("commit", state.batch)
            time.sleep(0 if (folder / "hurry").exists() else seconds)

    train(state)
    model.save(folder / "end.keras")
    rank, size = hvd.rank(), hvd.size()
    hvd.shutdown()
    note("end", state.batch, size, compared(folder, batches) if rank == 0 else "")


def trained(batches: int, order: int) -> list[np.ndarray]:
    """Weights and slots of plain Keras; `order`: 1, or -1 for the rows of a batch in reverse."""
    model, optimizer = plain(), optimizer_of()
    optimizer.build(model.trainable_variables)
    step = step_of(model, optimizer)
    for number in range(batches):
        x, y = batch_of(number)
        step({name: tf.constant(ids[::order]) for name, ids in x.items()}, tf.constant(y[::order]))
    return [np.asarray(variable) for variable in (*model.weights, *optimizer.variables)]


def compared(folder: Path, batches: int) -> str:
    """The largest difference to what was saved, relative; and that of plain Keras to itself, by rounding."""
    saved, expected = keras.models.load_model(folder / "end.keras"), trained(batches, 1)
    ours = [np.asarray(variable) for variable in (*saved.weights, *saved.optimizer.variables)]
    assert len(ours) == len(expected) == 30
    return " ".join(f"{distance(each, expected):.1e}" for each in (ours, trained(batches, -1)))


def distance(values: list[np.ndarray], expected: list[np.ndarray]) -> float:
    return max(float(np.max(np.abs(a - b)) / (np.max(np.abs(b)) + 1e-9)) for a, b in zip(values, expected))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4])
