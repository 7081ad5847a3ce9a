"""Which Keras this process trains with: Keras 3, or Keras 2 (`tf_keras`) where TF_USE_LEGACY_KERAS=1 asks for it.

The variable is TensorFlow's; what `tf.keras` is tells how TensorFlow read it. Modules that work with both take `keras`
from here. What exists for Keras 3 only imports Keras 3 itself.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from smddp_tf._native import loader


def _is_legacy() -> bool:
    try:
        return bool(tf.keras.optimizers.Optimizer.__module__.split(".")[0] == "tf_keras")
    except ImportError:
        _refuse_other_backend()  # with some of them `tf.keras` cannot be imported
        minor = loader.minor_of(tf.__version__)
        raise ImportError(
            "`tf.keras` cannot be imported. With TF_USE_LEGACY_KERAS=1 it is Keras 2, the package tf_keras, which "
            f"smddp_tf.keras needs then. Install it with: pip install --no-deps 'tf_keras=={minor}.*' (or unset "
            "TF_USE_LEGACY_KERAS to use Keras 3)."
        ) from None


def _refuse_other_backend() -> None:
    module = importlib.import_module("keras")
    if hasattr(module, "config") and module.config.backend() != "tensorflow":
        raise ImportError(
            f"smddp_tf.keras needs Keras with the TensorFlow backend. Found: the {module.config.backend()!r} backend. "
            "Set KERAS_BACKEND=tensorflow (or remove `backend` from ~/.keras/keras.json) before Keras is imported.",
            name="keras.backend",
        )


LEGACY = _is_legacy()
if TYPE_CHECKING:
    import keras as keras  # in annotations, for the class of that name in the Keras that is used
elif LEGACY:
    keras = importlib.import_module("tf_keras")
else:
    _refuse_other_backend()
    keras = importlib.import_module("keras")


def needs_keras_3(what: str) -> None:
    """Refuses what does not work with Keras 2.

    Args:
        what: begins the message.

    Raises:
        NotImplementedError: this process uses Keras 2.
    """
    if LEGACY:
        raise NotImplementedError(
            f"{what} needs Keras 3. This process uses Keras 2 (tf_keras {keras.__version__}), because "
            "TF_USE_LEGACY_KERAS=1 is set. Unset it, or leave this out."
        )


def optimizer_variables(optimizer: keras.optimizers.Optimizer) -> list[Any]:
    """The variables of an optimizer; in the oldest optimizers of Keras 2 `variables` is a method."""
    variables = optimizer.variables
    return list(variables if isinstance(variables, list) else variables())


def build_optimizer(optimizer: keras.optimizers.Optimizer, variables: list[Any]) -> None:
    """Creates the optimizer's variables unless they exist."""
    if hasattr(optimizer, "_create_all_weights"):  # Keras 2, `optimizers.legacy`
        optimizer._create_all_weights(variables)
    elif not getattr(optimizer, "built", False):  # Keras 2's other optimizers look themselves whether they are built
        optimizer.build(variables)
