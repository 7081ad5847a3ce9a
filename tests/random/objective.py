"""Losses, metrics and optimizers of a case."""

from __future__ import annotations

from typing import Any

import keras

from tests.random.case import Case
from tests.random.models import output_names

_CLASSES = {
    "mse": "MeanSquaredError",
    "mae": "MeanAbsoluteError",
    "huber": "Huber",
    "binary_crossentropy": "BinaryCrossentropy",
    "sparse_categorical_crossentropy": "SparseCategoricalCrossentropy",
    "categorical_crossentropy": "CategoricalCrossentropy",
}


@keras.saving.register_keras_serializable("tests.random")
def one_number(y: Any, prediction: Any) -> Any:
    return keras.ops.mean(keras.ops.logaddexp(y - prediction, prediction - y))


@keras.saving.register_keras_serializable("tests.random")
def one_per_row(y: Any, prediction: Any) -> Any:
    return keras.ops.mean(keras.ops.square(y - prediction) / (1 + keras.ops.square(y)), axis=-1)


FUNCTIONS = {"one_number": one_number, "one_per_row": one_per_row}


def _loss(name: str, reduction: str) -> Any:
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    options = {"reduction": reduction} if reduction else {}
    return getattr(keras.losses, _CLASSES[name])(**options)


def _metrics(case: Case, loss: str) -> list[Any]:
    """New objects, as far as the loss has some that fit."""
    numbers = loss in ("mse", "mae", "huber", "one_number", "one_per_row")
    mean = [keras.metrics.MeanAbsoluteError(name="mean")]
    if case.masked != "loss":  # Keras cannot spread a mask over its values
        mean.append(keras.metrics.RootMeanSquaredError(name="root"))
    counted: list[Any] = []
    if loss == "binary_crossentropy":
        mean = [keras.metrics.BinaryAccuracy(name="mean")]
        counted = [
            keras.metrics.AUC(name="auc"),
            keras.metrics.Precision(name="precision"),
            keras.metrics.Recall(name="recall"),
        ]
    elif loss == "sparse_categorical_crossentropy":
        mean = [keras.metrics.SparseCategoricalAccuracy(name="mean")]
        counted = [keras.metrics.SparseCategoricalCrossentropy(name="entropy")]
    elif loss == "categorical_crossentropy":
        mean = [keras.metrics.CategoricalAccuracy(name="mean")]
        counted = [keras.metrics.F1Score(name="f1"), keras.metrics.OneHotMeanIoU(3, name="iou")]
    elif case.masked != "loss":
        counted = [keras.metrics.R2Score(name="r2")]
    functions = [one_per_row, one_number] if numbers else []
    chosen = {"": [], "mean": mean, "counted": counted, "function": functions}
    return chosen[case.metrics] if case.metrics in chosen else mean + counted + functions


def compile_arguments(case: Case) -> dict[str, Any]:
    """For `Model.compile`, without the optimizer and without how steps are run."""
    names = output_names(case)
    losses = {name: _loss(case.loss_of(i), case.reduction) for i, name in enumerate(names)}
    metrics = {name: _metrics(case, case.loss_of(i)) for i, name in enumerate(names)}
    factors = {name: 0.5 + i for i, name in enumerate(names)}
    single = case.outputs == 1
    made: dict[str, Any] = {
        "loss": losses["head0"] if single else _nested(case, losses),
        "weighted_metrics" if case.weighted_metrics else "metrics": (
            metrics["head0"] if single else _nested(case, metrics)
        ),
    }
    if case.loss_weights:
        made["loss_weights"] = [1.5] if single else _nested(case, factors)
    return made


def _nested(case: Case, by_name: dict[str, Any]) -> Any:
    return by_name if case.nested == "dict" else list(by_name.values())


def optimizer_of(case: Case) -> Any:
    """A plain optimizer of Keras."""
    rate: Any = 0.05
    if case.schedule:
        rate = keras.optimizers.schedules.PolynomialDecay(rate, 5, 0.01)
    options: dict[str, Any] = {"learning_rate": rate}
    if case.clip:
        options[case.clip] = 0.02 if case.clip == "clipvalue" else 0.1
    if case.ema:
        options.update(use_ema=True, ema_momentum=0.6, ema_overwrite_frequency=2 if case.number % 2 else None)
    if case.decay:
        options["weight_decay"] = 0.05
    if case.accumulation > 1:
        options["gradient_accumulation_steps"] = case.accumulation
    made = _plain(case.optimizer, options)
    return keras.optimizers.LossScaleOptimizer(made, initial_scale=1024.0) if case.scaled else made


def _plain(name: str, options: dict[str, Any]) -> Any:
    if name == "Momentum":
        return keras.optimizers.SGD(momentum=0.9, nesterov=True, **options)
    if name == "AMSGrad":
        return keras.optimizers.Adam(amsgrad=True, epsilon=1e-2, **options)
    if name in ("Adam", "AdamW", "Nadam", "RMSprop"):
        options["epsilon"] = 1e-2  # the sign of a gradient of nearly 0 is noise
    return getattr(keras.optimizers, name)(**options)
