"""A Keras model under elastic.run.  python keras_ranks.py FOLDER [DEATH [BATCHES MILLISECONDS]]

The last rank kills itself after batch DEATH, when the commit before is on the disk. Every rank writes the number of
ranks to FOLDER/began.PID, and what it ends with to FOLDER/end.RANK.npz. Once there is FOLDER/hurry, batches take no
longer than they have to.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import smddp_tf.keras as hvd
from smddp_tf import elastic
from tests.support.scripts.elastic_ranks import COMMIT_EVERY, die_once, is_last_before

BATCHES, ROWS, RATE = 12, 12, 0.01


def main(folder: Path, death: int = -1, batches: int = BATCHES, milliseconds: int = 0) -> None:
    hvd.init()
    keras.utils.set_random_seed(3)
    layers = [
        keras.Input((4,)),
        keras.layers.Dense(8, "tanh"),
        keras.layers.Dropout(0.2, seed=1),
        keras.layers.Dense(1),
    ]
    model = keras.Sequential(layers)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(RATE * hvd.size()))
    state = elastic.TensorFlowKerasState(model, optimizer, batch=0)
    state.register_reset_callbacks([lambda: optimizer.learning_rate.assign(RATE * hvd.size())])
    begun = []

    @elastic.run
    def train(state: elastic.TensorFlowKerasState) -> None:
        begun.append((state.batch, hvd.rank(), hvd.size()))
        (folder / f"began.{os.getpid()}").write_text(str(hvd.size()))
        while state.batch < batches:
            x = np.random.default_rng(state.batch).normal(size=(ROWS, 4)).astype(np.float32)[hvd.rank() :: hvd.size()]
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(model(x, training=True) - x.sum(axis=1, keepdims=True)))
            optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
            state.batch += 1
            if state.batch % COMMIT_EVERY == 0:
                state.commit(wait=is_last_before(state.batch, death))
            if state.batch == death and hvd.rank() == hvd.size() - 1:
                die_once(folder)
            time.sleep(0 if (folder / "hurry").exists() else milliseconds / 1000)

    train(state)
    ends = [np.asarray(variable) for variable in (*model.variables, *optimizer.variables)]
    np.savez(folder / f"end.{hvd.rank()}.npz", *ends, begun=begun, rate=float(optimizer.learning_rate))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
