"""Optimizers that are made anew from the configuration of a wrapped one."""

from __future__ import annotations

import copy
import json
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf
import yaml

import smddp_tf.keras as hvk
from smddp_tf.gradients.options import ReduceOptions
from smddp_tf.keras.roles.optimizers import innermost
from smddp_tf.keras.roles.wrapping import is_wrapped, reducer_of
from tests.support.optimizer_classes import RegisteredSGD

pytestmark = pytest.mark.ranks("2")


def through_compile(optimizer):
    model = keras.Sequential([keras.layers.Dense(1)])  # not built: then Keras does not build the optimizer for it
    model.compile(optimizer, "mse")
    clone = keras.models.clone_model(model)
    clone.compile_from_config(model.get_compile_config())
    return clone.optimizer


MADE_ANEW = {
    "from_config": lambda o: type(o).from_config(o.get_config()),
    "from_config of JSON": lambda o: type(o).from_config(json.loads(json.dumps(o.get_config()))),
    "deserialize": lambda o: keras.optimizers.deserialize(keras.optimizers.serialize(o)),
    "compile_from_config": through_compile,
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda o: pickle.loads(pickle.dumps(o)),
}
KINDS = {
    "sgd": lambda **how: hvk.DistributedOptimizer(keras.optimizers.SGD(1.0), **how),
    "user's class": lambda **how: hvk.DistributedOptimizer(RegisteredSGD(1.0), **how),
    "scale inside": lambda **how: hvk.DistributedOptimizer(
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0), initial_scale=1.0), **how
    ),
    "scale outside": lambda **how: keras.optimizers.LossScaleOptimizer(
        hvk.DistributedOptimizer(keras.optimizers.SGD(1.0), **how), initial_scale=1.0
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", MADE_ANEW)
def test_an_optimizer_made_anew_keeps_its_settings(hvd, rank, size, way, kind):
    """The sum over the ranks of two passes; a variable that is local stays so, where no file is in between."""
    if way == "from_config of JSON" and kind == "scale outside":
        pytest.skip("the configuration of the inner optimizer went through JSON, and its class is Keras's own")
    original = KINDS[kind](op=hvk.Sum, backward_passes_per_step=2, average_aggregated_gradients=True)
    shared, local = keras.Variable([0.0]), keras.Variable([0.0])
    innermost(original).register_local_var(local)
    anew = MADE_ANEW[way](original)
    assert anew is not original
    assert type(anew.name) is str
    assert reducer_of(innermost(anew)).settings == reducer_of(innermost(original)).settings
    for number in range(2):
        gradient = tf.constant([rank + 1.0 + 10 * number])
        anew.apply([gradient, gradient], [shared, local])
    mean_of_passes = rank + 6.0
    np.testing.assert_allclose(shared, [-sum(other + 6.0 for other in range(size))], rtol=1e-6)
    if way not in ("pickle", "from_config of JSON"):
        np.testing.assert_allclose(local, [-mean_of_passes / size], rtol=1e-6)


def test_a_configuration_in_a_file_is_plain(hvd):
    """What is made from JSON by its names is Keras's own class; so is what another process unpickles of it."""
    config = keras.optimizers.serialize(hvk.DistributedOptimizer(keras.optimizers.SGD(1.0)))
    assert not is_wrapped(keras.optimizers.deserialize(json.loads(json.dumps(config))))
    assert b"smddp" not in pickle.dumps(config)
    assert not is_wrapped(keras.optimizers.deserialize(pickle.loads(pickle.dumps(config))))


FROM_CONFIG = {"adam": keras.optimizers.Adam, "one character": lambda: keras.optimizers.Adam(name="a")}


@pytest.mark.parametrize("kind", FROM_CONFIG)
def test_the_plain_class_makes_a_plain_optimizer(hvd, rank, size, kind):
    """On one rank alone too; it may be wrapped, and its own configuration leads to nothing of ours."""
    original = hvk.DistributedOptimizer(FROM_CONFIG[kind](), op=hvk.Sum)
    config = original.get_config()
    assert type(config["name"]) is str
    if rank == 0:
        probe = keras.optimizers.Adam.from_config(config)
        probe.apply([tf.ones([1])], [keras.Variable([0.0])])
        assert not is_wrapped(probe)
    plain = keras.optimizers.Adam.from_config(copy.deepcopy(config))
    assert not is_wrapped(keras.optimizers.deserialize(keras.optimizers.serialize(plain)))
    assert reducer_of(hvk.DistributedOptimizer(plain)).settings.op == hvk.Average
    assert yaml.safe_load(yaml.safe_dump({"name": config["name"]})) == {"name": original.name}


@pytest.mark.parametrize("kind", ["sgd", "scale inside", "scale outside"])
def test_what_an_optimizer_inherited_may_be_replaced(hvd, rank, size, kind):
    original = KINDS[kind](op=hvk.Sum)
    anew = keras.optimizers.deserialize(keras.optimizers.serialize(original))
    assert reducer_of(innermost(anew)).settings.op == hvk.Sum
    wrapped = hvk.DistributedOptimizer(anew, compression=hvk.Compression.bf16)
    assert reducer_of(innermost(wrapped)).settings == ReduceOptions(compression=hvk.Compression.bf16)
    for twice in (wrapped, original, copy.deepcopy(original), type(wrapped).from_config(wrapped.get_config())):
        if kind != "scale outside" or twice is not original:
            with pytest.raises(ValueError, match="not wrapped yet"):
                hvk.DistributedOptimizer(twice)
