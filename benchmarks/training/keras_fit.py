"""Keras: `fit` alone, with smddp_tf, with Horovod and on JAX; and a loop under TensorFlow's own strategy.

Each way is a class, which imports its own libraries only.
"""

from __future__ import annotations

import importlib
import json
import os
import time
from typing import Any

import numpy as np

from benchmarks.training.common import LEARNING_RATE, MOMENTUM, WARM_STEPS, free_port, shared_facts
from benchmarks.training.models import batch_of, build

__all__ = ["Compiled", "Distribution", "HorovodFit", "Jax", "Mirrored", "Optimizer", "Plain"]


class Plain:
    """`fit` on TensorFlow, without any other rank."""

    jit = False

    def __init__(self, rank: int, ranks: int) -> None:
        self._rank, self._ranks = rank, ranks
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        self._start()

    def _start(self) -> None:
        """Joins the other ranks."""

    def about(self) -> dict[str, Any]:
        import keras
        import tensorflow as tf

        return {"keras": keras.__version__, "tensorflow": tf.__version__}

    def build(self, name: str) -> None:
        import keras

        keras.utils.set_random_seed(1)
        self._model, loss = build(name)
        optimizer = keras.optimizers.SGD(LEARNING_RATE, momentum=MOMENTUM)
        self._model.compile(self._wrapped(optimizer), loss, jit_compile=self.jit, **self._compile_arguments())
        self._name, self._clock = name, _clock()

    def _wrapped(self, optimizer: Any) -> Any:
        return optimizer

    def _compile_arguments(self) -> dict[str, Any]:
        return {}

    def _data(self, steps: int) -> Any:
        import tensorflow as tf

        del steps
        return tf.data.Dataset.from_tensors(self._batch()).repeat().prefetch(2)

    def _batch(self) -> tuple[np.ndarray, np.ndarray]:
        return batch_of(self._name, self._rank)

    def train(self, steps: int) -> float:
        steps += WARM_STEPS
        self._model.fit(self._data(steps), epochs=1, steps_per_epoch=steps, verbose=0, callbacks=[self._clock])
        return (self._clock.end - self._clock.begin) / (steps - WARM_STEPS)

    def weights(self) -> list[np.ndarray]:
        return [np.asarray(weight) for weight in self._model.trainable_variables]

    def close(self) -> None:
        """Leaves the other ranks."""


def _clock() -> Any:
    import keras

    class Clock(keras.callbacks.Callback):
        """From the end of the steps that are not counted to the end of the last one, whose results are there then."""

        async_safe = True
        begin = end = 0.0

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == WARM_STEPS - 1:
                self.begin = time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.end = time.perf_counter()

    return Clock()


class Optimizer(Plain):
    """`hvd.DistributedOptimizer` of smddp_tf."""

    library = "smddp_tf"

    def _start(self) -> None:
        self._hvd = importlib.import_module(self.library)
        self._hvd.init()

    def _wrapped(self, optimizer: Any) -> Any:
        return self._hvd.DistributedOptimizer(optimizer)

    def close(self) -> None:
        self._hvd.shutdown()


class Compiled(Optimizer):
    """The same, compiled by XLA."""

    jit = True


class Distribution(Plain):
    """`keras.distribution.DataParallel` with smddp_tf. All ranks give `fit` the batches of all ranks."""

    def _start(self) -> None:
        import keras

        importlib.import_module("smddp_tf.keras.distribution")  # fills in `keras.distribution`
        keras.distribution.initialize()
        keras.distribution.set_distribution(keras.distribution.DataParallel())

    def _batch(self) -> tuple[np.ndarray, np.ndarray]:
        x, y = zip(*(batch_of(self._name, rank) for rank in range(self._ranks)))
        return np.concatenate(x), np.concatenate(y)


class HorovodFit(Optimizer):
    """Horovod's, in Keras 2."""

    library = "horovod.tensorflow.keras"


class Jax(Plain):
    """Keras on JAX, which compiles by itself; the ranks of `jax.distributed` reduce with gloo."""

    jit = True

    def __init__(self, rank: int, ranks: int) -> None:
        self._rank, self._ranks = rank, ranks
        os.environ.update(KERAS_BACKEND="jax", XLA_FLAGS="--xla_cpu_multi_thread_eigen=false", OMP_NUM_THREADS="1")
        import jax

        if ranks > 1:
            jax.config.update("jax_cpu_collectives_implementation", "gloo")
            address = f"127.0.0.1:{shared_facts(rank, ranks, str(free_port()))[0]}"
            jax.distributed.initialize(address, ranks, rank)
        import keras

        if ranks > 1:
            keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))

    def about(self) -> dict[str, Any]:
        import jax
        import keras

        return {"keras": keras.__version__, "jax": jax.__version__}

    def _data(self, steps: int) -> Any:
        batch = self._batch()
        return (batch for _ in range(steps + 2))


class Mirrored(Plain):
    """TensorFlow's MultiWorkerMirroredStrategy, with the model in Keras 3 and a loop of its own."""

    def _start(self) -> None:
        import tensorflow as tf

        if self._ranks > 1:
            addresses = [f"127.0.0.1:{port}" for port in shared_facts(self._rank, self._ranks, str(free_port()))]
            task = {"type": "worker", "index": self._rank}
            os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
            self._strategy: Any = tf.distribute.MultiWorkerMirroredStrategy()
        else:
            self._strategy = tf.distribute.get_strategy()

    def build(self, name: str) -> None:
        import keras
        import tensorflow as tf

        self._name = name
        keras.utils.set_random_seed(1)
        with self._strategy.scope():
            self._model, loss_of = build(name)
            variables = self._model.trainable_variables
            rate, momentum, ranks = LEARNING_RATE, MOMENTUM, float(self._ranks)
            velocities = [tf.Variable(tf.zeros(variable.shape)) for variable in variables]

        def in_replica(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = loss_of(y, self._model(x, training=True))
            grads = tape.gradient(loss, [variable.value for variable in variables])
            reduced = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, grads)
            for grad, velocity, variable in zip(reduced, velocities, variables):
                velocity.assign(momentum * velocity - (rate / ranks) * grad)
                variable.value.assign_add(velocity)
            return loss

        @tf.function
        def step(iterator: Any) -> Any:
            return self._strategy.run(in_replica, args=next(iterator))

        self._step = step

    def train(self, steps: int) -> float:
        iterator = iter(self._data(steps))
        for step in range(steps + WARM_STEPS):
            if step == WARM_STEPS:
                begin = time.perf_counter()
            loss = self._step(iterator)
        np.asarray(self._strategy.experimental_local_results(loss)[0])
        return (time.perf_counter() - begin) / steps
