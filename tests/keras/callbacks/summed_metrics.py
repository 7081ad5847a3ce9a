"""What the tests of merged metrics share: a model with many metrics, and a part of the data for each rank."""

from __future__ import annotations

import keras
import numpy as np

import smddp_tf.keras as hvk
from tests.support.classifiers import FEATURES, classifier
from tests.support.early_variables import with_variables

BATCH = 4


def build(metrics, distributed: bool = True) -> keras.Model:
    """The learning rate is 0: the weights stay as they are, so the order of the batches makes no difference."""
    optimizer = keras.optimizers.SGD(0.0)
    return classifier(metrics, optimizer=hvk.DistributedOptimizer(optimizer) if distributed else optimizer)


def part_of_rank(rank: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """More samples, and more positive ones, on each further rank."""
    random = np.random.default_rng([rank, seed])
    rows = 3 + 9 * rank + seed
    x = random.normal(size=(rows, FEATURES)).astype(np.float32)
    return x, (random.random((rows, 1)) < 0.2 + 0.3 * rank).astype(np.float32)


def fit(model, rank, *more, **options) -> dict:
    x, y = part_of_rank(rank, 0)
    options = {"epochs": 2, "batch_size": BATCH, "verbose": 0, "shuffle": False, **options}
    return (
        with_variables(model, (x, y)).fit(x, y, callbacks=[hvk.callbacks.MetricSumCallback(), *more], **options).history
    )
