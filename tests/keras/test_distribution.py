"""`keras.distribution.DataParallel`: `fit`, `evaluate` and `predict` on all ranks give what one process gives."""

from __future__ import annotations

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.distributed_keras import (
    BATCH,
    OPTIMIZERS,
    ROWS,
    VALIDATION,
    arguments,
    distributed,
    model,
    same_on_all,
    samples,
    weights,
    with_statistics,
)
from tests.variants import in_full

pytestmark = pytest.mark.ranks("2")

CASES = [
    *[
        ("tf.data", "adamw"),
        ("PyDataset", "ema"),
        ("generator", "clipnorm"),
        ("arrays", "accumulation"),
    ],
    *in_full(*itertools.product(("arrays", "tf.data", "PyDataset", "generator"), OPTIMIZERS)),
]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_fit_is_that_of_one_process(hvd, mpi, kind, name):
    x, y = samples()
    options = {"epochs": 4, "verbose": 0, "shuffle": False, "validation_data": (x[:VALIDATION], y[:VALIDATION])}
    alone = model(OPTIMIZERS[name]())
    expected = alone.fit(**arguments(kind, x, y), **options).history
    with distributed():
        together = model(OPTIMIZERS[name]())
        history = together.fit(**arguments(kind, x, y), **options).history
    np.testing.assert_allclose(weights(together), weights(alone), rtol=1e-6, atol=1e-6)
    assert set(history) == set(expected)
    for metric, values in expected.items():
        np.testing.assert_allclose(history[metric], values, rtol=1e-6, err_msg=metric)
    assert same_on_all(mpi, weights(together))


@pytest.mark.parametrize("way", ["fit", "train_on_batch"])
def test_all_ranks_compute_with_the_same_statistics(hvd, rank, mpi, way):
    """Steps change moving states by the rank's own rows; `evaluate`, `predict` and validation use those of rank 0."""
    x, y = samples(ROWS)
    with distributed():
        made, part = with_statistics()
        if way == "fit":
            validation = {"validation_data": (x[:VALIDATION], y[:VALIDATION])}
            history = made.fit(x + 1.0, y, batch_size=BATCH, epochs=2, verbose=0, **validation).history
        else:
            made.train_on_batch(x[rank::2] + 1.0, y[rank::2])
            assert same_on_all(mpi, part.predict(x, verbose=0)), "a part of the model has other statistics"
        predicted = made.predict(tf.data.Dataset.from_tensor_slices(x).batch(BATCH), verbose=0)
        assert same_on_all(mpi, weights(made)), "non-trainable variables differ"
        np.testing.assert_allclose(predicted, made(x), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(made.predict(x, verbose=0), made(x), rtol=1e-5, atol=1e-6)
        assert made.evaluate(x, y, verbose=0) == pytest.approx(float(np.mean((made(x) - y) ** 2)), rel=1e-5)
    if way == "fit":
        expected = np.mean((made(x[:VALIDATION]) - y[:VALIDATION]) ** 2)
        assert history["val_loss"][-1] == pytest.approx(float(expected), rel=1e-5)


def test_rows_of_a_table_are_summed_over_the_ranks(hvd):
    words = np.random.default_rng(3).integers(0, 11, (ROWS, 4))
    y = words[:, :1].astype(np.float32)

    def trained() -> np.ndarray:
        keras.utils.set_random_seed(5)
        table = keras.Sequential(
            [keras.layers.Embedding(11, 3), keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(1)]
        )
        table.compile(keras.optimizers.SGD(0.1), "mse")
        table.fit(words, y, batch_size=BATCH, epochs=3, shuffle=False, verbose=0)
        return weights(table)

    expected = trained()
    with distributed():
        np.testing.assert_allclose(trained(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", [{"steps_per_execution": 3}, *in_full({"run_eagerly": True})])
def test_other_ways_to_run_steps(hvd, options):
    x, y = samples(6 * BATCH - 6)  # older versions of Keras leave out what does not fill a call
    alone = model("adam", **options)
    alone.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    with distributed():
        together = model("adam", **options)
        together.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    np.testing.assert_allclose(weights(together), weights(alone), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("weighted_by", ["class_weight", *in_full("sample_weight")])
def test_weights_of_classes_and_samples(hvd, weighted_by):
    x, y = samples()
    by_sample = np.linspace(0.5, 2.0, len(x), dtype=np.float32)
    options = {"batch_size": BATCH, "epochs": 2, "shuffle": False, "verbose": 0, "validation_split": 0.2}
    options |= {weighted_by: {"class_weight": {0: 0.4, 1: 3.0}, "sample_weight": by_sample}[weighted_by]}
    alone = model("adam")
    expected = alone.fit(x, y, **options).history
    with distributed():
        together = model("adam")
        history = together.fit(x, y, **options).history
    np.testing.assert_allclose(weights(together), weights(alone), rtol=1e-6, atol=1e-6)
    assert {name: pytest.approx(values, rel=1e-6) for name, values in expected.items()} == history
