"""Iterators over training data have no thread that tunes them, unless the user asks for it."""

from __future__ import annotations

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from tests.variants import combined

pytestmark = pytest.mark.ranks("2")


def dataset(enabled: bool | None = None) -> tf.data.Dataset:
    made = tf.data.Dataset.range(8).map(lambda value: (tf.cast([value], tf.float32), 1.0))
    options = tf.data.Options()
    if enabled is not None:
        options.autotune.enabled = enabled
    return made.with_options(options).batch(2)


DATA = {
    "dataset": lambda: (dataset(),),
    "arrays": lambda: (np.ones((8, 1)), np.ones(8)),
    "generator": lambda: (((np.ones((2, 1)), np.ones(2)) for _ in range(4)),),
    "on": lambda: (dataset(enabled=True),),
    "off": lambda: (dataset(enabled=False),),
}


def enabled_in(method, monkeypatch, data) -> list[bool | None]:
    """What the datasets say that Keras iterates over in `fit` or `evaluate`."""
    return [each.options().autotune.enabled for each in iterated_in(method, monkeypatch, data)]


def iterated_in(method, monkeypatch, data) -> list[tf.data.Dataset]:
    found = []
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(hvk.DistributedOptimizer(keras.optimizers.SGD(0.01)), loss="mse")
    iterator_class = sys.modules[keras.Model.fit.__module__].TFEpochIterator
    init = iterator_class.__init__

    def spy(self, *args, **kwargs):
        init(self, *args, **kwargs)
        found.append(self._distributed_dataset)

    monkeypatch.setattr(iterator_class, "__init__", spy)
    getattr(model, method)(*data, batch_size=None if len(data) == 1 else 2, verbose=0)
    return found


@pytest.mark.parametrize(("method", "kind"), combined(["fit", "evaluate"], list(DATA)))
def test_what_keras_iterates_over(hvd, size, monkeypatch, method, kind):
    expected = {"on": True, "off": False}.get(kind, False if size > 1 else None)
    assert enabled_in(method, monkeypatch, DATA[kind]()) == [expected]


def test_without_tuning_fit_prefetches_as_tensorflow_would(hvd, size, monkeypatch):
    """Unless the user has decided; on what `shard` has made, too; the data are the same."""
    if size == 1:
        pytest.skip("there the tuning is on, and TensorFlow prefetches")
    made: list[tf.data.Dataset] = []
    for data in (dataset(), hvk.data.shard(dataset()), hvk.data.shard(dataset()).repeat(2), dataset(enabled=False)):
        made.append(iterated_in("evaluate", monkeypatch, (data,))[0])
        assert made[-1].element_spec == data.element_spec
        assert int(made[-1].cardinality()) == int(data.cardinality())
    assert [prefetches(each) for each in made] == [1, 1, 2, 0]
    assert [prefetches(hvk.data.shard(dataset(enabled))) for enabled in (None, True, False)] == [1, 0, 0]


def prefetches(data: tf.data.Dataset) -> int:
    return ("Prefetch" in type(data).__name__) + sum(map(prefetches, data._inputs()))


@pytest.mark.parametrize(("before", "after"), [(None, False), (True, True), (False, False)])
def test_shard(hvd, size, before, after):
    assert hvk.data.shard(dataset(before)).options().autotune.enabled is after
    assert hvk.data.shard(dataset(before).filter(lambda x, y: True), even="drop").options().autotune.enabled is after


def test_the_way_back(hvd, monkeypatch):
    monkeypatch.setenv("SMDDP_DATA_AUTOTUNE", "1")
    assert hvk.data.shard(dataset()).options().autotune.enabled is None
    assert enabled_in("fit", monkeypatch, DATA["dataset"]()) == [None]
    monkeypatch.setenv("SMDDP_DATA_AUTOTUNE", "perhaps")
    with pytest.raises(ValueError, match="SMDDP_DATA_AUTOTUNE must be 1, true, 0 or false. Received: 'perhaps'"):
        hvk.data.shard(dataset(), rank=0, size=2)
