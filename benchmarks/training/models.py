"""The models, in Keras 2 or 3, and their data, the same for every library. `torch_models` has the same in PyTorch.

Sizes and data need NumPy only; Keras is imported by the functions that build a model.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["FIVE_MS", "MODELS", "Model", "batch_of", "build", "parameters_of"]

MLP_WIDTH, MLP_LAYERS = 1024, 7
RESNET_WIDTHS, RESNET_BLOCKS, CLASSES = (16, 32, 64), 3, 10
WIDTH, POSITIONS, BLOCKS, HEADS = 256, 32, 4, 4
FIVE_MS = "5 ms"
STEP_SECONDS = 0.005


@dataclass(frozen=True)
class Model:
    """A model's data.

    Attributes:
        batch: samples of each rank in a step.
        inputs: shape of a sample.
        targets: shape of its target; () is a class.
    """

    batch: int
    inputs: tuple[int, ...]
    targets: tuple[int, ...]


MODELS = {
    "MLP": Model(32, (MLP_WIDTH,), (MLP_WIDTH,)),
    "ResNet-20": Model(32, (32, 32, 3), ()),
    "transformer": Model(8, (POSITIONS, WIDTH), (POSITIONS, WIDTH)),
    FIVE_MS: Model(32, (16,), (1,)),
}


def parameters_of(name: str) -> int:
    """How many numbers are trained."""
    if name == "MLP":
        return MLP_LAYERS * (MLP_WIDTH * MLP_WIDTH + MLP_WIDTH)
    if name == "transformer":
        attention, feed_forward = 4 * (WIDTH * WIDTH + WIDTH), 8 * WIDTH * WIDTH + 5 * WIDTH
        return BLOCKS * (attention + feed_forward + 2 * 2 * WIDTH)
    return _resnet20_parameters() if name == "ResNet-20" else 16 * 16 + 16 + 16 + 1


def _resnet20_parameters() -> int:
    """Kernels without bias, the two parameters of each normalisation, and the last layer."""
    widths = (RESNET_WIDTHS[0], *RESNET_WIDTHS)
    count = 9 * 3 * widths[0] + 2 * widths[0]
    for before, width in zip(widths, widths[1:]):
        count += 9 * before * width + (2 * RESNET_BLOCKS - 1) * 9 * width * width + 2 * RESNET_BLOCKS * 2 * width
        count += before * width + 2 * width if before != width else 0
    return count + widths[-1] * CLASSES + CLASSES


def batch_of(name: str, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """A rank's batch, the same in every step; another one on each rank."""
    model, draw = MODELS[name], np.random.default_rng(100 + rank)
    x = draw.standard_normal((model.batch, *model.inputs), np.float32)
    if model.targets:
        return x, draw.standard_normal((model.batch, *model.targets), np.float32)
    return x, draw.integers(0, CLASSES, model.batch).astype(np.int32)


def build(name: str) -> Any:
    """The model in Keras, and its loss."""
    import keras

    models: dict[str, Callable[[], Any]] = {
        "MLP": _mlp, "ResNet-20": _resnet20, "transformer": _transformer, FIVE_MS: _five_ms,
    }  # fmt: skip
    if MODELS[name].targets:
        return models[name](), keras.losses.MeanSquaredError()
    return models[name](), keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _mlp() -> Any:
    from keras import Sequential, layers

    hidden = [layers.Dense(MLP_WIDTH, activation="relu") for _ in range(MLP_LAYERS - 1)]
    return Sequential([layers.Input((MLP_WIDTH,)), *hidden, layers.Dense(MLP_WIDTH)])


def _resnet20() -> Any:
    from keras import Model as Functional
    from keras import layers

    def normalised(x: Any, width: int, size: int = 3, strides: int = 1) -> Any:
        x = layers.Conv2D(width, size, strides=strides, padding="same", use_bias=False)(x)
        return layers.BatchNormalization()(x)

    inputs = layers.Input((32, 32, 3))
    x = layers.ReLU()(normalised(inputs, RESNET_WIDTHS[0]))
    for stage, width in enumerate(RESNET_WIDTHS):
        for block in range(RESNET_BLOCKS):
            strides = 2 if stage and not block else 1
            shortcut = normalised(x, width, 1, strides) if strides > 1 else x
            x = normalised(layers.ReLU()(normalised(x, width, 3, strides)), width)
            x = layers.ReLU()(layers.add([x, shortcut]))
    return Functional(inputs, layers.Dense(CLASSES)(layers.GlobalAveragePooling2D()(x)))


def _transformer() -> Any:
    from keras import Model as Functional
    from keras import layers

    x = inputs = layers.Input((POSITIONS, WIDTH))
    for _ in range(BLOCKS):
        attended = layers.MultiHeadAttention(HEADS, WIDTH // HEADS)(x, x)
        x = layers.LayerNormalization()(layers.add([x, attended]))
        inner = layers.Dense(WIDTH)(layers.Dense(4 * WIDTH, activation="relu")(x))
        x = layers.LayerNormalization()(layers.add([x, inner]))
    return Functional(inputs, x)


def _five_ms() -> Any:
    """Hardly any gradients, and a step that waits for 5 ms, as a GPU's steps look to the host."""
    import keras
    import tensorflow as tf

    class Wait(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            waited = tf.py_function(lambda: (time.sleep(STEP_SECONDS), 0.0)[1], [], tf.float32)
            return x + tf.ensure_shape(waited, [])

    layers = keras.layers
    return keras.Sequential([layers.Input((16,)), Wait(), layers.Dense(16), layers.Dense(1)])
