"""Trains a small network and checks that all ranks end with equal weights: `smddprun -np 2 python -m smddp_tf.demo`.

Needs TensorFlow and nothing else: the images, ten patterns under noise, are made here. `examples/` has the same with
handwritten digits, and explains it.
"""

from __future__ import annotations

import argparse
import hashlib

import smddp_tf.keras as hvd
from smddp_tf import allgather_object
from smddp_tf.keras._backend import keras


def main() -> None:
    """Raises SystemExit where the ranks hold different weights, or the model has not learned."""
    import numpy as np  # where it is missing, TensorFlow is, and the error names that

    parser = argparse.ArgumentParser(description="Trains on all ranks and checks that they end with equal weights.")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--jit-compile", action="store_true", help="XLA compiles the training step")
    arguments = parser.parse_args()
    hvd.init()

    random = np.random.default_rng(1)  # the same images on all ranks
    y = random.integers(10, size=2048)
    x = (random.normal(size=(10, 8, 8, 1))[y] + random.normal(scale=2, size=(len(y), 8, 8, 1))).astype("float32")
    keras.utils.set_random_seed(hvd.rank())  # every rank starts elsewhere; the broadcast makes them equal
    layers = keras.layers
    hidden = [layers.Conv2D(16, 3, activation="relu"), layers.Flatten(), layers.Dense(32, "relu")]
    model = keras.Sequential([keras.Input((8, 8, 1)), *hidden, layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.003 * hvd.size()))
    model.compile(optimizer, loss, metrics=["accuracy"], jit_compile=arguments.jit_compile)
    data = hvd.data.shard((x, y), batch_size=32, shuffle=True)
    model.fit(data, epochs=arguments.epochs, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)], verbose=2)

    accuracy = float(np.mean(model.predict(x, verbose=0).argmax(axis=1) == y))
    content = b"".join(np.ascontiguousarray(weight.numpy()).tobytes() for weight in model.weights)
    hashes = allgather_object(hashlib.sha256(content).hexdigest())
    if len(set(hashes)) > 1:
        raise SystemExit(f"rank {hvd.rank()}: the ranks hold different weights: {hashes}")
    if accuracy < 0.9:
        raise SystemExit(f"rank {hvd.rank()}: the model has not learned: accuracy {accuracy:.4f}, expected 0.9")
    if hvd.rank() == 0:
        print(f"accuracy: {accuracy:.4f}\nequal weights on all {hvd.size()} rank(s): sha256 {hashes[0]}")


if __name__ == "__main__":
    main()
