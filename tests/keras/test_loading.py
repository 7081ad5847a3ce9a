"""What a wrapped optimizer leaves in files and pickles, and load_model."""

from __future__ import annotations

import contextlib
import functools
import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

import smddp_tf.keras as hvk
from smddp_tf.keras.optimizer.reducing import reducer_of
from smddp_tf.keras.roles.wrapping import is_wrapped
from tests.support.keras_training import (
    OPTIMIZERS,
    ROWS_PER_RANK,
    STEPS,
    dense_data,
    dense_model,
    distance,
    flat_weights,
    one_process,
    part_of,
)
from tests.support.optimizer_classes import RegisteredSGD, UnregisteredSGD
from tests.variants import FULL

pytestmark = pytest.mark.ranks("2")


def trained_model(optimizer, rank: int, size: int, steps: int = 3) -> keras.Model:
    x, y = dense_data(size, steps)
    model = dense_model()
    model.compile(optimizer, loss=keras.losses.MeanSquaredError())
    local_x, local_y = part_of(x, rank, size), part_of(y, rank, size)
    model.fit(local_x, local_y, batch_size=ROWS_PER_RANK, shuffle=False, verbose=0)
    return model


def state_of(optimizer) -> list[np.ndarray]:
    return [variable.numpy() for variable in optimizer.variables]


def test_wrapping_keeps_the_state(hvd):
    plain = keras.optimizers.Adam(0.01)
    plain.build([keras.Variable([1.0, 2.0])])
    plain.iterations.assign(5)
    before = state_of(plain)
    wrapped = hvk.DistributedOptimizer(plain)
    assert wrapped is not plain
    assert isinstance(wrapped, keras.optimizers.Adam)
    assert type(wrapped).__name__ == "Adam"
    for old, new in zip(before, state_of(wrapped)):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("optimizer_class", [keras.optimizers.Adam, RegisteredSGD, UnregisteredSGD])
def test_the_configuration_is_that_of_the_plain_optimizer(optimizer_class):
    plain = optimizer_class(0.01, name="mine")
    wrapped = hvk.DistributedOptimizer(plain)
    plain_config, wrapped_config = (keras.saving.serialize_keras_object(o) for o in (plain, wrapped))
    if optimizer_class is keras.optimizers.Adam:  # Keras names its own classes in one of two ways, both load
        assert wrapped_config.pop("registered_name") in ("Adam", None)
        plain_config.pop("registered_name")
    assert wrapped_config == plain_config


def test_loading_a_registered_class_gives_the_class_of_the_user():
    config = json.dumps(keras.saving.serialize_keras_object(hvk.DistributedOptimizer(RegisteredSGD(0.01))))
    assert type(keras.saving.deserialize_keras_object(json.loads(config))) is RegisteredSGD


HALF, ALL = 3, 6  # steps
RESUMED = {
    "adam_clipnorm": lambda: keras.optimizers.Adam(0.01, clipnorm=0.1),
    "ema": lambda: keras.optimizers.SGD(0.1, momentum=0.9, use_ema=True, ema_overwrite_frequency=2),
    "mixed_float16": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1, momentum=0.9), initial_scale=64.0),
}
MORE_STATE = ("ema", "scaled")


@contextlib.contextmanager
def policy_of(case: str) -> Iterator[None]:
    keras.config.set_dtype_policy("mixed_float16" if case == "mixed_float16" else "float32")
    try:
        yield
    finally:
        keras.config.set_dtype_policy("float32")


def fit_steps(model: keras.Model, rank: int, size: int, begin: int, end: int) -> keras.Model:
    part = slice(begin * ROWS_PER_RANK, end * ROWS_PER_RANK)
    x, y = (part_of(array, rank, size)[part] for array in dense_data(size, ALL))
    model.fit(x, y, batch_size=ROWS_PER_RANK, shuffle=False, verbose=0)
    return model


def fresh_model(case: str) -> keras.Model:
    with policy_of(case):
        model = dense_model()
        model.compile(hvk.DistributedOptimizer(RESUMED[case]()), loss="mean_squared_error")
    return model


@functools.cache
def halfway_and_at_the_end(case: str, rank: int, size: int) -> tuple[keras.Model, np.ndarray]:
    """A model with its state after half of the steps, and the weights after all of them, never interrupted."""
    model = fit_steps(fresh_model(case), rank, size, 0, HALF)
    variables = [*model.variables, *model.optimizer.variables]
    halfway = [variable.numpy() for variable in variables]
    at_the_end = flat_weights(fit_steps(model, rank, size, HALF, ALL))
    for variable, value in zip(variables, halfway):
        variable.assign(value)
    return model, at_the_end


def through_checkpoint(model: keras.Model, case: str, folder: Path) -> keras.Model:
    path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(str(folder / "checkpoint"))
    assert not [name for name, _ in tf.train.list_variables(path) if "smddp" in name]
    other = fresh_model(case)
    other.optimizer.build(other.trainable_variables)
    tf.train.Checkpoint(model=other, optimizer=other.optimizer).read(path).assert_existing_objects_matched()
    return other


def through_weights(model: keras.Model, case: str, folder: Path) -> keras.Model:
    model.save_weights(folder / "model.weights.h5")
    other = fresh_model(case)
    other.optimizer.build(other.trainable_variables)
    other.load_weights(folder / "model.weights.h5")
    return other


def through_pickle(model: keras.Model, case: str, folder: Path) -> keras.Model:
    del folder
    with policy_of(case):
        other = pickle.loads(pickle.dumps(model))
    other.optimizer = hvk.DistributedOptimizer(other.optimizer)
    return other


def through_file(model: keras.Model, case: str, path: Path) -> keras.Model:
    model.save(path)
    with policy_of(case):
        return hvk.load_model(path)


WAYS = {
    # .h5 comes last: Keras 3 pickles a model that it has saved so with the default optimizer
    "pickle": through_pickle,
    "checkpoint": through_checkpoint,
    "weights": through_weights,
    "keras": lambda model, case, folder: through_file(model, case, folder / "model.keras"),
    "h5": lambda model, case, folder: through_file(model, case, folder / "model.h5"),
}


# More kinds of state, in the two kinds of files.
RESUMED_THROUGH = [(case, way) for case in RESUMED for way in WAYS if case not in MORE_STATE or way in ("keras", "h5")]


@pytest.mark.parametrize(("case", "way"), RESUMED_THROUGH if FULL else RESUMED_THROUGH[::3])
def test_training_goes_on_bit_for_bit(hvd, rank, size, tmp_path, case, way):
    if case in MORE_STATE and size != 2:
        pytest.skip("two ranks are enough: the files do not depend on the number of ranks")
    half, at_the_end = halfway_and_at_the_end(case, rank, size)
    resumed = WAYS[way](half, case, tmp_path)
    assert resumed is not half
    assert is_wrapped(getattr(resumed.optimizer, "inner_optimizer", resumed.optimizer)) or is_wrapped(resumed.optimizer)
    fit_steps(resumed, rank, size, HALF, ALL)
    np.testing.assert_array_equal(flat_weights(resumed), at_the_end)


def test_a_legacy_file_whose_state_does_not_fit(hvd, rank, size, tmp_path):
    trained_model(hvk.DistributedOptimizer(keras.optimizers.SGD(0.1)), rank, size).save(tmp_path / "model.h5")
    with h5py.File(tmp_path / "model.h5", "r+") as file:
        config = json.loads(file.attrs["training_config"])
        config["optimizer_config"] = {"class_name": "Adam", "config": {"learning_rate": 0.01}}
        file.attrs["training_config"] = json.dumps(config)
    with pytest.warns(UserWarning, match="does not fit the optimizer .Adam.: expected"):
        resumed = hvk.load_model(tmp_path / "model.h5")
    fit_steps(resumed, rank, size, 0, 1)
    assert int(resumed.optimizer.iterations.numpy()) == HALF + 1  # Keras itself has restored the counter


def test_training_resumes_as_if_never_interrupted(hvd, rank, size, tmp_path):
    x, y = (part_of(array, rank, size) for array in dense_data(size))
    half = STEPS // 2 * ROWS_PER_RANK
    model = dense_model()
    model.compile(hvk.DistributedOptimizer(OPTIMIZERS["sgd_momentum"]()), loss=keras.losses.MeanSquaredError())
    model.fit(x[:half], y[:half], batch_size=ROWS_PER_RANK, shuffle=False, verbose=0)
    model.save(tmp_path / "half.keras")
    resumed = hvk.load_model(tmp_path / "half.keras")
    assert is_wrapped(resumed.optimizer)
    assert int(resumed.optimizer.iterations.numpy()) == STEPS // 2
    resumed.fit(x[half:], y[half:], batch_size=ROWS_PER_RANK, shuffle=False, verbose=0)
    assert distance(flat_weights(resumed), one_process("sgd_momentum", size)) < 1e-6


def test_load_model_keeps_the_loss_scale_and_takes_compression(hvd, rank, size, tmp_path):
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=128.0)
    trained_model(hvk.DistributedOptimizer(optimizer), rank, size).save(tmp_path / "model.keras")
    loaded = hvk.load_model(tmp_path / "model.keras", compression=hvk.Compression.fp16, legacy_opts=True).optimizer
    assert isinstance(loaded, keras.optimizers.LossScaleOptimizer)
    assert float(loaded.dynamic_scale.numpy()) == 128.0
    assert is_wrapped(loaded)
    assert reducer_of(loaded).settings.compression is hvk.Compression.fp16


@pytest.mark.parametrize("how", ["custom_optimizers", "custom_objects"])
def test_load_model_with_a_class_of_the_user(hvd, rank, size, tmp_path, how):
    trained_model(hvk.DistributedOptimizer(UnregisteredSGD(0.1)), rank, size).save(tmp_path / "model.keras")
    known = [UnregisteredSGD] if how == "custom_optimizers" else {"UnregisteredSGD": UnregisteredSGD}
    loaded = hvk.load_model(tmp_path / "model.keras", **{how: known})
    assert isinstance(loaded.optimizer, UnregisteredSGD)
    assert is_wrapped(loaded.optimizer)


def test_load_model_without_an_optimizer(hvd, tmp_path):
    model = dense_model()
    model.save(tmp_path / "model.keras")
    loaded = hvk.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(flat_weights(loaded), flat_weights(model))
