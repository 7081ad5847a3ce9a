"""The TensorFlow ops on a GPU: `model.fit` with and without XLA. Run by mpirun, where TensorFlow sees a GPU."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.gpu.answers import Answer, worker

__all__: list[str] = []

EPOCHS, BATCH = 3, 64


def digits() -> tuple[Any, Any]:
    """4096 images of 64 pixels, float32, and their classes from 0 to 9; the same on all ranks."""
    import numpy as np

    rng = np.random.default_rng(7)
    labels = rng.integers(0, 10, 4096)
    return (rng.standard_normal((4096, 64)) * 0.3 + np.eye(10, 64)[labels]).astype(np.float32), labels


def model_of(seed: int) -> tuple[Any, Any]:
    """A small model with the weights of `seed`, and its loss."""
    import keras

    keras.utils.set_random_seed(seed)
    layers = [keras.Input((64,)), keras.layers.Dense(512, activation="relu"), keras.layers.Dense(10)]
    return keras.Sequential(layers), keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def weights_of_one_process(ranks: int, jit_compile: bool) -> list[Any]:
    """What the model must end with: one process that takes the batches of all ranks as one.

    Compiled by XLA where the other is: its products round differently, and at the corner of a ReLU that grows.
    """
    import keras
    import tensorflow as tf

    (images, labels), (model, loss) = digits(), model_of(seed=1)
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)

    @tf.function(jit_compile=jit_compile)
    def step(x: tf.Tensor, y: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        optimizer.apply(tape.gradient(value, model.trainable_variables), model.trainable_variables)

    batch = BATCH * ranks
    for _ in range(EPOCHS):
        for begin in range(0, len(images), batch):
            step(images[begin : begin + batch], labels[begin : begin + batch])
    return model.get_weights()


def train(answer: Answer, jit_compile: bool, expected: list[Any]) -> None:
    """The model on this rank's images; all ranks must end with the expected weights, and the loss must fall."""
    import keras
    import numpy as np

    import smddp_tf as hvd
    import smddp_tf.keras as hvd_keras

    (images, labels), (model, loss) = digits(), model_of(seed=1 + hvd.rank())
    mine = slice(hvd.rank(), None, hvd.size())
    optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1))
    model.compile(optimizer, loss, jit_compile=jit_compile)
    callbacks = [hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)]
    begin = time.perf_counter()
    history = model.fit(
        images[mine], labels[mine], batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=callbacks
    )
    losses = history.history["loss"]
    seconds = time.perf_counter() - begin
    got = model.get_weights()
    errors = [np.abs(one - other).max() / np.abs(other).max() for one, other in zip(got, expected, strict=True)]
    weights = hvd.allgather_object([float(np.abs(weight).sum()) for weight in got])
    answer["runs"].append(
        {
            "jit_compile": jit_compile,
            "losses": [float(value) for value in losses],
            "seconds": seconds,
            "same_weights": all(one == weights[0] for one in weights),
            "error": float(max(errors)),
            "devices": sorted({str(variable.value.device) for variable in model.trainable_variables}),
        }
    )
    answer.save()


def main() -> None:
    with worker(__doc__, "anywhere") as (options, answer):
        import tensorflow as tf

        import smddp_tf as hvd

        gpus = tf.config.list_physical_devices("GPU")
        if not gpus and not options.anywhere:
            answer["absent"] = "TensorFlow sees no GPU"
            return
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
        hvd.init()
        if gpus:
            tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")
        # Products rounded to ten bits would differ between a batch and its parts.
        tf.config.experimental.enable_tensor_float_32_execution(False)
        answer.update(tensorflow=tf.__version__, runs=[])
        for jit_compile in (False, True):
            train(answer, jit_compile, weights_of_one_process(hvd.size(), jit_compile))
        hvd.shutdown()


if __name__ == "__main__":
    main()
