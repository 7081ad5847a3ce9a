"""A small problem for optimizers whose state is in parts, and what is compared."""

from __future__ import annotations

import math

import keras
import numpy as np

import smddp_tf.keras as hvk
from tests.support.early_variables import with_variables

FEATURES, HIDDEN, BATCH, STEPS = 6, (67, 33), 8, 12
OPTIMIZERS = {
    "sgd": lambda: keras.optimizers.SGD(0.05),
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "adam": lambda: keras.optimizers.Adam(0.01, amsgrad=True),
    "adamw": lambda: keras.optimizers.AdamW(0.01, weight_decay=0.05),
    "lion": lambda: keras.optimizers.Lion(1e-3),
    "rmsprop": lambda: keras.optimizers.RMSprop(0.01, centered=True, momentum=0.5),
    "adagrad": lambda: keras.optimizers.Adagrad(0.05),
    "nadam": lambda: keras.optimizers.Nadam(0.01),
    "adamax": lambda: keras.optimizers.Adamax(0.01),
    "adadelta": lambda: keras.optimizers.Adadelta(0.5),
    "ftrl": lambda: keras.optimizers.Ftrl(0.05),
    "ema": lambda: keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.8),
    "ema that overwrites": lambda: keras.optimizers.Adam(0.01, use_ema=True, ema_overwrite_frequency=5),
    "clipvalue": lambda: keras.optimizers.SGD(0.1, clipvalue=0.02),
    "loss scale": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(0.01), dynamic_growth_steps=4),
}
# Keras 3.3 has neither Lamb nor Muon.
WHOLE_TENSORS = {
    name: getattr(keras.optimizers, name)
    for name in ("Adafactor", "Lamb", "Muon", "ScheduleFreeAdamW")
    if hasattr(keras.optimizers, name)
}


def degree_of(hvd, shard):
    return {"world": hvd.size(), "node": hvd.local_size()}.get(shard, shard)


def data_of(rank, rows=BATCH * STEPS):
    random = np.random.default_rng(100 + rank)
    x = random.normal(size=(rows, FEATURES)).astype(np.float32)
    return x, (x[:, :1] * (1 + rank) - np.sin(x[:, 1:2])).astype(np.float32)


def model_of(**options):
    keras.utils.set_random_seed(5)
    layers = [keras.layers.Dense(width, activation="tanh", **options) for width in HIDDEN]
    return keras.Sequential([keras.Input((FEATURES,)), *layers, keras.layers.Dense(1)])


def trained(rank, optimizer, model=None, rows=BATCH * STEPS, compiled=None, **options):
    model = model or model_of()
    model.compile(hvk.DistributedOptimizer(optimizer, **options), loss="mse", **compiled or {})
    if "partition_state" not in options:
        with_variables(model)
    x, y = data_of(rank, rows)
    model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    return model


def assert_identical(ours, expected, start):
    for one, other, first in zip(ours.get_weights(), expected.get_weights(), start.get_weights()):
        np.testing.assert_array_equal(one, other)
        assert not np.array_equal(one, first), "nothing was learned"


def slot_elements(model):
    return sum(math.prod(variable.shape) for variable in model.optimizer.variables if len(variable.shape))
