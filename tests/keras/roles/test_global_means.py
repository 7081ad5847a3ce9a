"""`keras.distribution`: losses, weighted means, masks, sparse gradients and float64 are those of one process."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from smddp_tf.keras.distribution import DataParallel
from tests.support.distributed_keras import distributed, weights
from tests.support.early_variables import with_variables
from tests.support.keras_training import skip_jit
from tests.variants import in_full

pytestmark = pytest.mark.ranks("2")

ROWS, BATCH, STEPS, FEATURES = 37, 8, 5, 3  # the last batch has 5 rows
HAS_WEIGHTED_MEAN = tuple(map(int, keras.__version__.split(".")[:2])) >= (3, 9)
random = np.random.default_rng(17)
X = random.normal(size=(ROWS, FEATURES)).astype(np.float32)
Y = {"a": X[:, :1] * 2 + 1, "b": np.tanh(X[:, :2]) * np.arange(ROWS, dtype=np.float32)[:, None] / 9}
WEIGHTS = random.uniform(0, 3, ROWS).astype(np.float32)
LENGTHS = random.integers(1, STEPS + 1, ROWS)
SEQUENCES = random.normal(size=(ROWS, STEPS, FEATURES)).astype(np.float32)
SEQUENCES *= np.arange(STEPS)[None, :, None] < LENGTHS[:, None, None]  # zeros behind the end
TIMED = random.uniform(0, 3, (ROWS, STEPS)).astype(np.float32)
TARGETS = SEQUENCES.sum(-1, keepdims=True) + LENGTHS[:, None, None].astype(np.float32)


def mean_distance(y: Any, predicted: Any) -> Any:
    """A loss or a metric that returns one number."""
    return keras.ops.mean(keras.ops.abs(y - predicted))


class Measuring(keras.Model):
    """Steps of the user's own: a loss object, and a mean of one number for each batch."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.mine = keras.metrics.Mean(name="mine")

    def train_step(self, data: Any) -> dict[str, Any]:
        logs = super().train_step(data)
        self.mine.update_state(mean_distance(data[1], self(data[0])))
        return {**logs, "mine": self.mine.result()}

    def test_step(self, data: Any) -> dict[str, Any]:
        logs = super().test_step(data)
        self.mine.update_state(mean_distance(data[1], self(data[0])))
        return {**logs, "mine": self.mine.result()}


def two_outputs(loss: Any, **options: Any) -> keras.Model:
    inputs = keras.Input((FEATURES,))
    hidden = keras.layers.Dense(4, "tanh", kernel_regularizer="l2")(inputs)
    outputs = {name: keras.layers.Dense(units, name=name)(hidden) for name, units in (("a", 1), ("b", 2))}
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.SGD(0.03), loss, **options)
    return model


def one_output(
    loss: Any, of: type[keras.Model] = keras.Model, accumulate: int | None = None, **options: Any
) -> keras.Model:
    inputs = keras.Input((FEATURES,))
    model = of(inputs, keras.layers.Dense(1)(keras.layers.Dense(4, "tanh")(inputs)))
    model.compile(keras.optimizers.SGD(0.02, gradient_accumulation_steps=accumulate), loss, **options)
    return model


def masked(loss: Any = "mse", rate: float = 0.05) -> keras.Model:
    inputs = keras.Input((STEPS, FEATURES))
    outputs = keras.layers.Dense(1)(keras.layers.SimpleRNN(4, return_sequences=True)(keras.layers.Masking()(inputs)))
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.SGD(rate), loss, metrics=["mae"])
    return model


def mse(reduction: str | None) -> keras.losses.Loss:
    return keras.losses.MeanSquaredError(reduction=reduction)


WEIGHTED_MEAN = "mean_with_sample_weight" if HAS_WEIGHTED_MEAN else "sum_over_batch_size"
ONE = (X, Y["a"], WEIGHTS)
TWO = (X, Y, {"a": WEIGHTS, "b": WEIGHTS[::-1].copy()})
CASES: dict[str, tuple[Callable[[], keras.Model], tuple[Any, ...]]] = {
    "outputs": (lambda: two_outputs({"a": "mse", "b": "mae"}, loss_weights={"a": 0.3, "b": 2.0}), (X, Y)),
    "outputs, weighted": (lambda: two_outputs({"a": mse(WEIGHTED_MEAN), "b": mse("sum")}), TWO),
    "eager": (lambda: two_outputs({"a": mse(WEIGHTED_MEAN), "b": "mae"}, run_eagerly=True), TWO),
    "sum": (lambda: one_output(mse("sum")), ONE),
    "none": (lambda: one_output(mse(None)), ONE),
    "weighted mean": (lambda: one_output(mse(WEIGHTED_MEAN), weighted_metrics=["mse"]), ONE),
    "accumulation": (lambda: one_output(mse(WEIGHTED_MEAN), accumulate=2), ONE),
    "several steps": (lambda: one_output(mse(WEIGHTED_MEAN), steps_per_execution=5), ONE),
    "one number": (lambda: one_output(mean_distance, Measuring, metrics=[mean_distance]), ONE[:2]),
    "mask": (masked, (SEQUENCES, TARGETS)),
    "mask, weights": (lambda: masked(mse(WEIGHTED_MEAN)), (SEQUENCES, TARGETS, TIMED)),
    "mask, sum": (lambda: masked(mse("sum"), 1e-3), (SEQUENCES, TARGETS)),
}

QUICK = ("outputs, weighted", "accumulation", "several steps", "one number", "mask, weights")


def trained(make: Callable[[], keras.Model], data: tuple[Any, ...], batch: int = BATCH) -> tuple[np.ndarray, dict]:
    """The weights, and all that the user sees."""
    keras.utils.set_random_seed(3)
    model = make()
    if keras.distribution.distribution() is None:
        with_variables(model)
    options = {"batch_size": batch, "verbose": 0}
    x, y, *weight = data
    seen = model.fit(
        x, y, sample_weight=weight[0] if weight else None, epochs=2, shuffle=False, validation_data=data, **options
    ).history
    evaluated = model.evaluate(x, y, sample_weight=weight[0] if weight else None, return_dict=True, **options)
    return weights(model), {**seen, **{f"evaluate {name}": value for name, value in evaluated.items()}}


COMPILED = {
    "compiled": (lambda: one_output(mse(WEIGHTED_MEAN), jit_compile=True), ONE),
    "compiled, outputs": (lambda: two_outputs({"a": mse("sum"), "b": "mae"}, jit_compile=True), (X, Y)),
}


@pytest.mark.parametrize("case", [*QUICK, *in_full(*(case for case in CASES if case not in QUICK), *COMPILED)])
def test_losses_and_means_are_those_of_one_process(hvd, size, case):
    skip_jit(case in COMPILED, size)
    make, data = {**CASES, **COMPILED}[case]
    expected, expected_logs = trained(make, data)
    with distributed():
        found, logs = trained(make, data)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert logs.keys() == expected_logs.keys()
    for name, values in expected_logs.items():
        np.testing.assert_allclose(logs[name], values, rtol=1e-5, err_msg=name)


def test_losses_of_equal_parts(hvd, size):
    """No rows travel there."""
    rows = 2 * size
    make, data = CASES["outputs, weighted"]
    data = (X[: 2 * rows], *({k: v[: 2 * rows] for k, v in part.items()} for part in data[1:]))
    expected, expected_logs = trained(make, data, rows)
    with distributed():
        found, logs = trained(make, data, rows)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    for name, values in expected_logs.items():
        np.testing.assert_allclose(logs[name], values, rtol=1e-5, err_msg=name)


def test_evaluate_on_parts_of_different_lengths(hvd, rank, size):
    """The ranks bring their own data: one number counts as often as its batch has rows."""
    if "auto_shard_dataset" not in inspect.signature(keras.distribution.DataParallel).parameters:
        pytest.skip("in this Keras a DataParallel always shards")
    make = CASES["outputs"][0]
    starts = [0, *(ROWS // 2 + r for r in range(size - 1)), ROWS]
    part = slice(starts[rank], starts[rank + 1])
    keras.utils.set_random_seed(3)
    expected = make().evaluate(X, Y, batch_size=1, return_dict=True, verbose=0)
    with distributed(auto_shard_dataset=False):
        keras.utils.set_random_seed(3)
        targets = {name: values[part] for name, values in Y.items()}
        found = make().evaluate(X[part], targets, batch_size=7, return_dict=True, verbose=0)
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.skipif(not HAS_WEIGHTED_MEAN, reason="this Keras has no such reduction")
def test_train_on_batch_with_sample_weights(hvd, rank, size):
    make = lambda: one_output(mse(WEIGHTED_MEAN))  # noqa: E731
    keras.utils.set_random_seed(3)
    alone, whole = make(), slice(0, 4 * size)
    part = slice(4 * rank, 4 * rank + 4)
    for _ in range(3):
        alone.train_on_batch(X[whole], Y["a"][whole], WEIGHTS[whole])
    with distributed():
        keras.utils.set_random_seed(3)
        together = make()
        for _ in range(3):
            together.train_on_batch(X[part], Y["a"][part], WEIGHTS[part])
    np.testing.assert_allclose(weights(together), weights(alone), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["Adam", *in_full("Adagrad", "RMSprop", "SGD", "Lion")])
def test_each_lookup_of_a_word_is_a_gradient_of_its_own(hvd, name):
    """As in one process, whether the table is large or small, and in batches that the ranks do not divide."""
    for inputs in (40000, 50):
        make, data = table(inputs, name, ROWS)
        expected, _ = trained(make, data)
        with distributed():
            found, _ = trained(make, data)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def table(inputs: int, name: str, rows: int, **options: Any) -> tuple[Callable[[], keras.Model], tuple[Any, ...]]:
    words = np.random.default_rng(5).integers(0, 7, (rows, 4)) ** 2

    def make() -> keras.Model:
        layers = [keras.layers.Embedding(inputs, 3), keras.layers.Flatten(), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input((4,), dtype="int32"), *layers])
        model.compile(getattr(keras.optimizers, name)(0.05), "mse", **options)
        return model

    return make, (words, X[:rows, :1])


@pytest.mark.parametrize("jit", [False, *in_full(True)])
def test_lookups_of_a_word_in_equal_parts(hvd, size, jit):
    skip_jit(jit, size)
    make, data = table(50, "Adam", 8 * size, jit_compile=jit)
    expected, _ = trained(make, data, 4 * size)
    with distributed():
        found, _ = trained(make, data, 4 * size)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", [{"gradient_accumulation_steps": 2}, *in_full({})])
def test_float64(hvd, size, options):
    """No factor is rounded to float32; parts of the state change no bit."""

    def make() -> keras.Model:
        layers = [keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)]
        model = keras.Sequential([keras.Input((FEATURES,)), *layers])
        model.compile(keras.optimizers.Adam(0.01, amsgrad=True, **options), mse(WEIGHTED_MEAN))
        return model

    before = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
    try:
        data = tuple(part.astype(np.float64) for part in ONE)
        expected, _ = trained(make, data)
        with distributed():
            whole, _ = trained(make, data)
        with DataParallel(partition_state=size).scope():
            found, _ = trained(make, data)
    finally:
        keras.config.set_floatx(before[0])
        keras.config.set_dtype_policy(before[1])
    assert whole.dtype == np.float64
    np.testing.assert_allclose(whole, expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    if size == 2 and not options:  # three numbers are not always added in one order, nor passes and ranks
        np.testing.assert_array_equal(found, whole)
