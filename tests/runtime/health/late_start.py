"""Rank 1 is late at the start of a program, and again later.  python late_start.py gradients|requests|fit"""

import sys
import time

import numpy as np
import tensorflow as tf

import smddp_tf as hvd
from smddp_tf import keras as hvk

SECONDS = 7.5  # a wait is told after 5 s, and again after 10


def late(seconds: float = SECONDS) -> None:
    time.sleep(seconds if hvd.rank() == 1 else 0)


def train() -> None:
    """Reduces the gradients of three steps. The ranks come to the second apart."""

    @tf.function
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(variable * tf.cast(hvd.rank() + 1, tf.float32))
        variable.assign_sub(hvd.DistributedGradientTape(tape).gradient(loss, [variable])[0])

    for number in range(3):
        late(SECONDS if number == 1 else 0)
        step()
    np.testing.assert_allclose(variable, [-4.5, -3.5, -2.5])


def start() -> None:
    late()
    hvd.broadcast_variables([variable], root_rank=0)
    late()
    assert hvd.broadcast_object({"of rank": hvd.rank()}, root_rank=0) == {"of rank": 0}
    late()
    assert hvd.allgather_object(hvd.rank() * 10) == [0, 10]
    late(2)
    assert hvd.allgather_object(hvd.rank() * 20, name="in time") == [0, 20]
    np.testing.assert_array_equal(variable, [0, 1, 2])


def fit() -> None:
    model = hvk._backend.keras.Sequential([hvk._backend.keras.layers.Dense(2)])
    model.compile(hvk.DistributedOptimizer(hvk._backend.keras.optimizers.SGD(0.1)), loss="mse")
    late()
    model.fit(np.ones((8, 3), np.float32), np.ones((8, 2), np.float32) * hvd.rank(), batch_size=4, verbose=0)


hvd.init()
variable = tf.Variable(np.arange(3, dtype=np.float32) + 10 * hvd.rank())
if sys.argv[1] == "gradients":
    start()
    train()
elif sys.argv[1] == "requests":
    for number in range(16):
        hvd.barrier(name=f"barrier {number}")
else:
    fit()
late()
assert hvd.allgather_object(hvd.rank() * 30, name="later") == [0, 30]
print("all came", flush=True)
