"""Trains a small network and saves its weights.  python train_tuned.py FOLDER STEPS_OF_RANK_0 STEPS_OF_RANK_1"""

import sys

import numpy as np
import tensorflow as tf

import smddp_tf as hvd
from tests.launch.scripts.recorder import Recorder

LAYERS, WIDTH = 8, 48

hvd.init()
tf.config.experimental.enable_op_determinism()
rng = np.random.default_rng(0)
weights = [tf.Variable((rng.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32)) for _ in range(LAYERS)]
mine = np.random.default_rng(1 + hvd.rank())


@tf.function
def step(x: tf.Tensor) -> None:
    with tf.GradientTape() as tape:
        y = x
        for weight in weights:
            y = tf.tanh(y @ weight)
        loss = tf.reduce_mean((y - x) ** 2)
    gradients = hvd.DistributedGradientTape(tape).gradient(loss, weights)
    for weight, gradient in zip(weights, gradients):
        weight.assign_sub(0.1 * gradient)


def train() -> None:
    for _ in range(int(sys.argv[2 + hvd.rank()])):
        step(tf.constant(mine.standard_normal((16, WIDTH)).astype(np.float32)))


Recorder(sys.argv[1], hvd.rank()).call("train", train)
np.save(f"{sys.argv[1]}/weights_{hvd.rank()}.npy", np.stack([weight.numpy() for weight in weights]))
hvd.shutdown()
