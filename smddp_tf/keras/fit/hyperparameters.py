"""The hyperparameters of a job, in TensorBoard's form."""

from __future__ import annotations

from typing import Any

from smddp_tf.basics import cross_size, is_initialized, size
from smddp_tf.keras._backend import keras


def write_hyperparameters(board: Any, model: Any, params: dict[str, Any]) -> None:
    """Writes them into the run of `board`, a TensorBoard callback; `params` are those that Keras gives to callbacks."""
    from tensorboard.plugins.hparams import api  # installed wherever the callback itself can write

    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)  # that of a loss scale
    values = {
        "ranks": size() if is_initialized() else 1,
        "nodes": cross_size() if is_initialized() else 1,
        "optimizer": type(optimizer).__name__,
        "learning_rate": float(keras.ops.convert_to_numpy(getattr(optimizer, "learning_rate", 0.0))),
        "epochs": params.get("epochs", 0),
        "steps_per_execution": model.steps_per_execution,
        "jit_compile": bool(model.jit_compile),
        "dtype": keras.config.dtype_policy().name,
    }
    with board._train_writer.as_default():
        api.hparams(values)
    board._train_writer.flush()
