"""load_model: a saved model with its optimizer wrapped again."""

from __future__ import annotations

from smddp_tf.compression import Compression
from smddp_tf.keras._backend import keras
from smddp_tf.keras.optimizer import DistributedOptimizer


def load_model(filepath, custom_optimizers=None, custom_objects=None, compression=Compression.none):
    """Loads a model and makes its optimizer reduce gradients, so that training goes on where it stopped.

    The file may come from plain Keras or from a model trained with `hvd.DistributedOptimizer`: they are the same.
    Weights and the optimizer's state are restored. Either let every rank load the file, or let rank 0 load it and send
    its variables with `BroadcastGlobalVariablesCallback(0)`.

    Example:

    >>> model = hvd.load_model("checkpoint.keras")
    >>> model.fit(dataset, initial_epoch=epoch, epochs=epochs)

    Args:
        filepath: String or path, as for `keras.models.load_model`.
        custom_optimizers: List of optimizer classes of yours that the file may name. Defaults to none.
        custom_objects: Dictionary of names to classes or functions, as for `keras.models.load_model`.
        compression: What travels; see `hvd.DistributedOptimizer`. Defaults to `hvd.Compression.none`.

    Returns:
        The model. One saved without `compile` has no optimizer and comes back as it is.
    """
    known = {optimizer.__name__: optimizer for optimizer in custom_optimizers or ()}
    known.update(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=known)
    if getattr(model, "optimizer", None) is not None:
        DistributedOptimizer(model.optimizer, compression=compression)
    return model
