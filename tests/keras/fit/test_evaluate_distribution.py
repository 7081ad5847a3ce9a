"""`keras.distribution.DataParallel`: `evaluate` and `predict` on all ranks give what one process gives."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from tests.support.distributed_keras import (
    BATCH,
    FEATURES,
    arguments,
    distributed,
    model,
    same_on_all,
    samples,
)
from tests.variants import combined

pytestmark = pytest.mark.ranks("2")


@pytest.mark.parametrize(("kind", "rows"), combined(["arrays", "tf.data", "PyDataset"], [70, 2]))
def test_evaluate_and_predict_are_those_of_one_process(hvd, mpi, kind, rows):
    x, y = samples(rows)
    alone = model("sgd")
    expected = alone.evaluate(**arguments(kind, x, y), return_dict=True, verbose=0)
    with distributed():
        together = model("sgd")
        results = together.evaluate(**arguments(kind, x, y), return_dict=True, verbose=0)
        data = arguments(kind, x, y)
        predicted = together.predict(**{name: data[name] for name in ("x", "batch_size") if name in data}, verbose=0)
    assert results == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(predicted, alone.predict(x, verbose=0), rtol=1e-6)
    assert same_on_all(mpi, predicted)


def test_several_outputs_are_predicted_in_order(hvd):
    inputs = keras.Input((FEATURES,))
    two = keras.Model(inputs, {"first": inputs[:, :1], "sum": keras.ops.sum(inputs, axis=1)})
    x, _ = samples()
    with distributed():
        predicted = two.predict(x, batch_size=BATCH, verbose=0)
    np.testing.assert_array_equal(predicted["first"], x[:, :1])
    np.testing.assert_allclose(predicted["sum"], x.sum(axis=1), rtol=1e-5, atol=1e-6)
