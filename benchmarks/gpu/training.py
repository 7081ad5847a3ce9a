"""The TensorFlow ops on a GPU: `model.fit` with and without XLA. Run by mpirun, where TensorFlow sees a GPU."""

from __future__ import annotations

import time

from benchmarks.gpu.answers import Answer, worker

__all__: list[str] = []


def train(answer: Answer, jit_compile: bool) -> None:
    """A small model on the ranks' own digits; all ranks must end with the same weights, and the loss must fall."""
    import keras
    import numpy as np

    import smddp_tf as hvd
    import smddp_tf.keras as hvd_keras

    keras.utils.set_random_seed(1 + hvd.rank())
    rng = np.random.default_rng(7)
    labels = rng.integers(0, 10, 4096)
    images = (rng.standard_normal((4096, 64)) * 0.3 + np.eye(10, 64)[labels]).astype(np.float32)
    mine = slice(hvd.rank(), None, hvd.size())
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(512, activation="relu"), keras.layers.Dense(10)])
    optimizer = hvd_keras.DistributedOptimizer(keras.optimizers.SGD(0.1))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=jit_compile)
    callbacks = [hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)]
    begin = time.perf_counter()
    history = model.fit(images[mine], labels[mine], batch_size=64, epochs=3, verbose=0, callbacks=callbacks)
    losses = history.history["loss"]
    weights = hvd.allgather_object([float(np.abs(weight).sum()) for weight in model.get_weights()])
    answer["runs"].append(
        {
            "jit_compile": jit_compile,
            "losses": [float(value) for value in losses],
            "seconds": time.perf_counter() - begin,
            "same_weights": all(one == weights[0] for one in weights),
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
        answer.update(tensorflow=tf.__version__, runs=[])
        for jit_compile in (False, True):
            train(answer, jit_compile)
        hvd.shutdown()


if __name__ == "__main__":
    main()
