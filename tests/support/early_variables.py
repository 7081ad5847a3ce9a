"""Variables that the first step of a compiled model would make, made before.

TensorFlow traces a step that makes variables twice, and traces are most of what a short `fit` costs. So the oracle has
its variables before, and so has a model where it is not the test's subject who makes them.
"""

from __future__ import annotations

import keras
import numpy as np


def with_variables(model: keras.Model, data: tuple[np.ndarray, np.ndarray] | None = None) -> keras.Model:
    """The model, with the variables of its optimizer, and of its metrics where there are `data` (one row is enough).

    A model that is not built is left as it is.
    """
    if model.built:
        model.optimizer.build(model.trainable_variables)
        if data is not None:
            x, y = data
            model.compute_metrics(x, y, model(x))
            model.reset_metrics()
    return model
